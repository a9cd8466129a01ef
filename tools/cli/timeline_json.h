// Finished calls as a trace that chrome://tracing and ui.perfetto.dev show.

#ifndef MINIRAY_TOOLS_CLI_TIMELINE_JSON_H_
#define MINIRAY_TOOLS_CLI_TIMELINE_JSON_H_

#include <string>

#include "proto/head.pb.h"

namespace miniray::cli {

// Returns Chrome's trace format (JSON object form): a process row for each
// process of an actor, in it a lane for each of its threads, and a slice for
// each call, which also tells how long the call waited. Times are in
// microseconds of Unix time.
std::string TimelineToJson(const v1::GetCallRecordsResponse& records);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_TIMELINE_JSON_H_
