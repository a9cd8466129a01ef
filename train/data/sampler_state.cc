#include "train/data/sampler_state.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace miniray::train {
namespace {

constexpr absl::string_view kKind = "samples";

absl::Status NoState(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("not the state of a sampler or data loader (", why,
                   "): ", text.substr(0, 200)));
}

}  // namespace

std::string EncodeSamplerState(const SamplerState& state) {
  return nlohmann::json{
      {"kind", std::string(kKind)}, {"epoch", state.epoch},
      {"offset", state.offset},     {"num_samples", state.num_samples},
      {"seed", state.seed},         {"shuffle", state.shuffle}}
      .dump();
}

absl::StatusOr<SamplerState> DecodeSamplerState(absl::string_view text) {
  const auto json = nlohmann::json::parse(text.begin(), text.end(),
                                          /*callback=*/nullptr,
                                          /*allow_exceptions=*/false);
  if (!json.is_object()) return NoState(text, "no JSON object");
  SamplerState state;
  try {
    if (json.at("kind").get<std::string>() != kKind) {
      return NoState(text, "of another kind");
    }
    // A number with a fraction, or too large, would be cut to fit.
    for (const char* name : {"epoch", "offset", "num_samples"}) {
      const auto& value = json.at(name);
      if (!value.is_number_integer() || value.get<int64_t>() < 0) {
        return NoState(text, absl::StrCat(name, " is no number from 0"));
      }
    }
    if (!json.at("seed").is_number_unsigned()) {
      return NoState(text, "seed is no number from 0");
    }
    state.epoch = json.at("epoch").get<int64_t>();
    state.offset = json.at("offset").get<int64_t>();
    state.num_samples = json.at("num_samples").get<int64_t>();
    state.seed = json.at("seed").get<uint64_t>();
    state.shuffle = json.at("shuffle").get<bool>();
  } catch (const nlohmann::json::exception& e) {
    return NoState(text, e.what());
  }
  return state;
}

}  // namespace miniray::train
