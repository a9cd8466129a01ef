#include "train/result.h"

#include <cmath>

#include "nlohmann/json.hpp"

namespace miniray::train {
namespace {

using Json = nlohmann::ordered_json;  // Fields stay in the order given here.

// JSON has no numbers that are not finite.
Json JsonOf(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

Json JsonOf(const Metrics& metrics) {
  Json json = Json::object();
  for (const auto& [name, value] : metrics) json[name] = JsonOf(value);
  return json;
}

Json JsonOf(const Timing& timing) {
  return {{"compute", timing.compute},
          {"wait", timing.wait},
          {"sync", timing.sync}};
}

Json JsonOf(const ps::SyncResult& sync) {
  return {{"version", sync.version},
          {"num_workers", sync.num_workers},
          {"num_refused", sync.num_refused},
          {"num_lost", sync.num_lost},
          {"repeated", sync.repeated},
          {"bytes", sync.bytes},
          {"bytes_saved", sync.bytes_saved},
          {"seconds_pull", sync.seconds_pull},
          {"seconds_aggregate", sync.seconds_aggregate},
          {"seconds_push", sync.seconds_push}};
}

Json JsonOf(const EpochResult& epoch) {
  Json per_worker = Json::array();
  for (const Metrics& metrics : epoch.per_worker) {
    per_worker.push_back(JsonOf(metrics));
  }
  Json json = {{"epoch", epoch.epoch},
               {"metrics", JsonOf(epoch.metrics)},
               {"min", JsonOf(epoch.min)},
               {"max", JsonOf(epoch.max)},
               {"per_worker", std::move(per_worker)},
               {"seconds", epoch.seconds},
               {"timing", JsonOf(epoch.timing)},
               {"synced", epoch.synced}};
  if (epoch.synced) json["sync"] = JsonOf(epoch.sync);
  return json;
}

std::string Text(const Json& json, int indent) {
  // What is not UTF-8 becomes U+FFFD.
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string EpochResult::ToJson() const { return Text(JsonOf(*this), -1); }

std::string Result::ToJson() const {
  Json json = {{"path", path},
               {"error", nullptr},
               {"epochs", history.size()},
               {"metrics", JsonOf(metrics())},
               {"seconds", seconds},
               {"timing", JsonOf(timing())},
               {"warnings", warnings},
               {"history", Json::array()}};
  if (!error.ok()) {
    json["error"] = {{"code", absl::StatusCodeToString(error.code())},
                     {"message", std::string(error.message())}};
  }
  for (const EpochResult& epoch : history) {
    json["history"].push_back(JsonOf(epoch));
  }
  return Text(json, 1);
}

}  // namespace miniray::train
