// What `miniray top` shows.

#ifndef MINIRAY_TOOLS_CLI_TOP_TABLE_H_
#define MINIRAY_TOOLS_CLI_TOP_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/cluster.pb.h"
#include "proto/head.pb.h"
#include "tools/cli/frame.h"

namespace miniray::cli {

enum class TopOrder { kCpu, kMemory, kName };

// Of --sort. Errors: INVALID_ARGUMENT, names those that there are.
absl::StatusOr<TopOrder> ParseTopOrder(absl::string_view name);

// The one that the key `s` leads to.
TopOrder NextOrder(TopOrder order);

// What an actor's own process told.
struct ActorCalls {
  double per_second = -1;  // That ended; -1: not known yet.
  int64_t queued = 0;
};

// A cluster at one time.
struct TopSample {
  std::string head_address;
  std::string time;  // For people.
  v1::GetClusterStateResponse state;
  v1::GetUsageResponse usage;
  std::map<std::string, ActorCalls> calls;  // By actor id.
};

// The actors that are not dead, in order; where `order` leaves it open, those
// with the most memory, then by id.
std::vector<const v1::ActorInfo*> SortedActors(const TopSample& sample,
                                               TopOrder order);

// The nodes, then as many actors as there are rows for. 0 rows: all of them.
Frame FormatTop(const TopSample& sample, TopOrder order, int rows);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_TOP_TABLE_H_
