#include "train/data/stream_state.h"

#include <climits>
#include <exception>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "train/data/epoch_order.h"

namespace miniray::train {
namespace {

using Json = nlohmann::json;

constexpr char kKind[] = "records";

absl::Status NoState(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("not the state of a data set's shard (", why,
                   "): ", text.substr(0, 200)));
}

// These throw where there is none, or one that cannot be.
int64_t Count(const Json& json, const char* name, int64_t least,
              int64_t most = INT64_MAX) {
  const Json& value = json.at(name);
  if (!value.is_number_integer() || value.get<int64_t>() < least ||
      value.get<int64_t>() > most) {
    throw std::invalid_argument(
        absl::StrCat(name, " is no number from ", least, " to ", most));
  }
  return value.get<int64_t>();
}

Tail TailOf(const Json& json) {
  const auto name = json.at("tail").get<std::string>();
  for (const Tail tail : {Tail::kPad, Tail::kDrop, Tail::kUneven}) {
    if (name == TailName(tail)) return tail;
  }
  throw std::invalid_argument(absl::StrCat("no such tail: ", name));
}

DealState DealOf(const Json& json) {
  DealState state;
  state.deal.world_size =
      static_cast<int>(Count(json, "world_size", 1, INT_MAX));
  state.deal.tail = TailOf(json);
  state.deal.shuffle_buffer = Count(json, "shuffle_buffer", 0);
  if (!json.at("seed").is_number_unsigned()) {
    throw std::invalid_argument("seed is no number from 0");
  }
  state.deal.seed = json.at("seed").get<uint64_t>();
  state.taken = Count(json, "taken", 0);
  return state;
}

}  // namespace

std::string EncodeStreamState(const StreamState& state) {
  Json deals = Json::array();
  for (const auto& [deal, taken] : state.deals) {
    deals.push_back({{"world_size", deal.world_size},
                     {"tail", std::string(TailName(deal.tail))},
                     {"shuffle_buffer", deal.shuffle_buffer},
                     {"seed", deal.seed},
                     {"taken", taken}});
  }
  return Json{{"kind", kKind},
              {"epoch", state.epoch},
              {"num_records", state.num_records},
              {"num_blocks", state.num_blocks},
              {"deals", std::move(deals)}}
      .dump();
}

absl::StatusOr<StreamState> DecodeStreamState(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), /*callback=*/nullptr,
                                /*allow_exceptions=*/false);
  if (!json.is_object()) return NoState(text, "no JSON object");
  StreamState state;
  try {
    if (json.at("kind").get<std::string>() != kKind) {
      return NoState(text, "of another kind");
    }
    state.epoch = Count(json, "epoch", 0);
    state.num_records = Count(json, "num_records", 1);
    state.num_blocks = Count(json, "num_blocks", 1);
    for (const Json& deal : json.at("deals")) {
      state.deals.push_back(DealOf(deal));
    }
  } catch (const std::exception& e) {
    return NoState(text, e.what());
  }
  return state;
}

EpochPlan PlanEpoch(const StreamState& state) {
  EpochPlan plan;
  const Deal& first = state.deals[0].deal;
  if (first.shuffle_buffer > 0) {
    plan.block_order =
        DrawOrder(state.num_blocks, EpochSeed(first.seed, state.epoch));
  } else {
    plan.block_order.resize(static_cast<size_t>(state.num_blocks));
    std::iota(plan.block_order.begin(), plan.block_order.end(), 0);
  }
  plan.places = Places(state.num_records);
  for (size_t i = 0; i < state.deals.size(); ++i) {
    if (i > 0) plan.places = Untaken(plan.places, plan.deal, plan.taken);
    plan.deal = state.deals[i].deal;
    plan.deal.seed =
        EpochSeed(plan.deal.seed, state.epoch, 1 + static_cast<int64_t>(i));
    plan.taken = state.deals[i].taken;
  }
  return plan;
}

}  // namespace miniray::train
