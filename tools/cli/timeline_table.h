// What took the time: a timeline in sums, for people.

#ifndef MINIRAY_TOOLS_CLI_TIMELINE_TABLE_H_
#define MINIRAY_TOOLS_CLI_TIMELINE_TABLE_H_

#include <string>
#include <vector>

#include "proto/head.pb.h"
#include "proto/run.pb.h"

namespace miniray::cli {

// A line for each method of each class, and for each kind of span of each run
// ("epoch" of "epoch 3"), those that took longest together first.
std::string FormatTimelineTable(const v1::GetCallRecordsResponse& calls,
                                const std::vector<v1::GetRunResponse>& runs);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_TIMELINE_TABLE_H_
