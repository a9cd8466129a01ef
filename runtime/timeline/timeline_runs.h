// Which runs go with which calls in a timeline.

#ifndef MINIRAY_RUNTIME_TIMELINE_TIMELINE_RUNS_H_
#define MINIRAY_RUNTIME_TIMELINE_TIMELINE_RUNS_H_

#include <string>
#include <vector>

#include "proto/head.pb.h"
#include "proto/run.pb.h"

namespace miniray {

// Returns the ids of the runs of `job`, or, where it is empty, of those that
// went on while the calls ran, by the head's clock as in WriteTimeline; where
// there are no calls, of the newest. No more than 20, the newest first. list:
// the newest first, as the head has them.
std::vector<std::string> RunsOfTimeline(const v1::ListRunsResponse& list,
                                        const v1::GetCallRecordsResponse& calls,
                                        const std::string& job);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_TIMELINE_TIMELINE_RUNS_H_
