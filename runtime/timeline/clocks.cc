#include "runtime/timeline/clocks.h"

#include <limits>

namespace miniray {
namespace {

int64_t ShiftOf(const v1::ClockReading& reading) {
  const int64_t ahead = reading.ahead_us();
  // Not the least of all, which has no opposite.
  if (ahead == std::numeric_limits<int64_t>::min()) return 0;
  return (ahead < 0 ? -ahead : ahead) <= reading.error_us() ? 0 : ahead;
}

int64_t Find(const std::map<std::string, int64_t>& shifts,
             const std::string& key) {
  const auto found = shifts.find(key);
  return found == shifts.end() ? 0 : found->second;
}

}  // namespace

Clocks::Clocks(
    const google::protobuf::RepeatedPtrField<v1::NodeClock>& clocks) {
  std::map<std::string, int64_t> errors;
  for (const v1::NodeClock& clock : clocks) {
    const int64_t shift = ShiftOf(clock.reading());
    by_node_[clock.node_id()] = shift;
    const int64_t error = clock.reading().error_us();
    const auto [it, is_new] = errors.try_emplace(clock.hostname(), error);
    if (!is_new && error >= it->second) continue;
    it->second = error;
    by_host_[clock.hostname()] = shift;
  }
}

int64_t Clocks::OfNode(const std::string& node_id) const {
  return Find(by_node_, node_id);
}

int64_t Clocks::OfHost(const std::string& hostname) const {
  return Find(by_host_, hostname);
}

int64_t Minus(int64_t a, int64_t b) {
  int64_t difference;
  if (!__builtin_sub_overflow(a, b, &difference)) return difference;
  return b > 0 ? std::numeric_limits<int64_t>::min()
               : std::numeric_limits<int64_t>::max();
}

}  // namespace miniray
