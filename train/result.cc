#include "train/result.h"

#include <cmath>
#include <exception>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
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
          {"sync", timing.sync},
          {"checkpoint", timing.checkpoint}};
}

Json JsonOf(const ps::SyncResult& sync) {
  return {{"version", sync.version},
          {"num_workers", sync.num_workers},
          {"num_refused", sync.num_refused},
          {"num_lost", sync.num_lost},
          {"num_behind", sync.num_behind},
          {"repeated", sync.repeated},
          {"num_pieces", sync.num_pieces},
          {"bytes", sync.bytes},
          {"bytes_saved", sync.bytes_saved},
          {"seconds_pull", sync.seconds_pull},
          {"seconds_aggregate", sync.seconds_aggregate},
          {"seconds_push", sync.seconds_push}};
}

Json JsonOf(const absl::Status& error) {
  if (error.ok()) return nullptr;
  return {{"code", absl::StatusCodeToString(error.code())},
          {"message", std::string(error.message())}};
}

Json JsonOf(const WorkerFailure& failure) {
  return {{"epoch", failure.epoch},
          {"worker", failure.worker_id},
          {"fatal", failure.fatal},
          {"error", JsonOf(failure.error)}};
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
  if (!epoch.notes.empty()) json["notes"] = epoch.notes;
  return json;
}

// The other way; they throw for JSON of another shape.

double NumberOf(const Json& json) {
  if (!json.is_string()) return json.get<double>();
  const std::string text = json.get<std::string>();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  throw std::invalid_argument(absl::StrCat("'", text, "' is no number"));
}

Metrics MetricsOf(const Json& json) {
  Metrics metrics;
  for (const auto& [name, value] : json.items()) {
    metrics[name] = NumberOf(value);
  }
  return metrics;
}

ps::SyncResult SyncOf(const Json& json) {
  ps::SyncResult sync;
  json.at("version").get_to(sync.version);
  json.at("num_workers").get_to(sync.num_workers);
  json.at("num_refused").get_to(sync.num_refused);
  json.at("num_lost").get_to(sync.num_lost);
  // Checkpoints of earlier versions do not have it.
  sync.num_behind = json.value("num_behind", int64_t{0});
  json.at("repeated").get_to(sync.repeated);
  json.at("num_pieces").get_to(sync.num_pieces);
  json.at("bytes").get_to(sync.bytes);
  json.at("bytes_saved").get_to(sync.bytes_saved);
  json.at("seconds_pull").get_to(sync.seconds_pull);
  json.at("seconds_aggregate").get_to(sync.seconds_aggregate);
  json.at("seconds_push").get_to(sync.seconds_push);
  return sync;
}

EpochResult EpochOf(const Json& json) {
  EpochResult epoch;
  json.at("epoch").get_to(epoch.epoch);
  epoch.metrics = MetricsOf(json.at("metrics"));
  epoch.min = MetricsOf(json.at("min"));
  epoch.max = MetricsOf(json.at("max"));
  for (const Json& metrics : json.at("per_worker")) {
    epoch.per_worker.push_back(MetricsOf(metrics));
  }
  epoch.seconds = NumberOf(json.at("seconds"));
  const Json& timing = json.at("timing");
  epoch.timing = {.compute = NumberOf(timing.at("compute")),
                  .wait = NumberOf(timing.at("wait")),
                  .sync = NumberOf(timing.at("sync"))};
  // Checkpoints of earlier versions do not have it.
  if (timing.contains("checkpoint")) {
    epoch.timing.checkpoint = NumberOf(timing.at("checkpoint"));
  }
  json.at("synced").get_to(epoch.synced);
  if (epoch.synced) epoch.sync = SyncOf(json.at("sync"));
  if (json.contains("notes")) json.at("notes").get_to(epoch.notes);
  return epoch;
}

std::string Text(const Json& json, int indent) {
  // What is not UTF-8 becomes U+FFFD.
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string EpochResult::ToJson() const { return Text(JsonOf(*this), -1); }

absl::StatusOr<EpochResult> EpochResult::FromJson(absl::string_view line) {
  try {
    return EpochOf(Json::parse(line.begin(), line.end()));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("a line that is no epoch's: ", error.what()));
  }
}

std::string EvaluationToJson(int epoch, const Metrics& metrics) {
  const Json json = {
      {"evaluation", {{"epoch", epoch}, {"metrics", JsonOf(metrics)}}}};
  return Text(json, -1);
}

void AddSync(const ps::SyncResult& sync, ps::SyncResult* all) {
  const ps::SyncResult before = *all;
  *all = sync;
  all->num_refused += before.num_refused;
  all->num_lost += before.num_lost;
  all->repeated |= before.repeated;
  all->bytes += before.bytes;
  all->bytes_saved += before.bytes_saved;
  all->seconds_pull += before.seconds_pull;
  all->seconds_aggregate += before.seconds_aggregate;
  all->seconds_push += before.seconds_push;
}

std::string Result::ToJson() const {
  Json json = {{"path", path},
               {"checkpoint", checkpoint},
               {"best_checkpoint", best_checkpoint},
               {"best_checkpoints", Json::array()},
               {"stopped_by", stopped_by},
               {"error", JsonOf(error)},
               {"failures", Json::array()},
               {"epochs", history.size()},
               {"metrics", JsonOf(metrics())},
               {"seconds", seconds},
               {"timing", JsonOf(timing())},
               {"warnings", warnings},
               {"history", Json::array()}};
  for (const KeptCheckpoint& kept : best_checkpoints) {
    json["best_checkpoints"].push_back({{"path", kept.path},
                                        {"epochs", kept.epochs},
                                        {"metrics", JsonOf(kept.metrics)}});
  }
  for (const WorkerFailure& failure : failures) {
    json["failures"].push_back(JsonOf(failure));
  }
  for (const EpochResult& epoch : history) {
    json["history"].push_back(JsonOf(epoch));
  }
  return Text(json, 1);
}

}  // namespace miniray::train
