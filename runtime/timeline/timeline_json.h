// What happened in a cluster as a trace that ui.perfetto.dev and
// chrome://tracing show: finished calls and the spans of runs, by one clock.
//
// Chrome's trace format, JSON object form:
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
//   - a process for each run, in it a thread for each track of its spans
//     ("trainer", "worker 2", "checkpoints"). Viewers show only what lies
//     within or beside what is there: spans of a track that overlap otherwise
//     are in further threads of its name;
//   - a process for each process of an actor, in it a thread for each of its
//     lanes, and a slice for each call, which also tells how long it waited.
//
// Times are microseconds of Unix time by the head's clock, as far as the head
// knows how the nodes' clocks stand to it (v1.NodeClock): a call's by the clock
// of its node, a run's by that of the host that reports it. A clock that is
// ahead by no more than may be an error counts as right, so that processes of
// one machine stay as they were. `otherData` tells the clocks, and the calls
// that were dropped.

#ifndef MINIRAY_RUNTIME_TIMELINE_TIMELINE_JSON_H_
#define MINIRAY_RUNTIME_TIMELINE_TIMELINE_JSON_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "proto/head.pb.h"
#include "proto/run.pb.h"

namespace miniray {

// Hands the trace to `write` in order, in pieces of some 64 KiB. Whatever the
// messages hold, the trace is valid JSON: what is not UTF-8 is replaced.
//
// runs: as GetRun tells them with spans.
void WriteTimeline(const v1::GetCallRecordsResponse& calls,
                   const std::vector<v1::GetRunResponse>& runs,
                   absl::FunctionRef<void(absl::string_view)> write);

// The same as one string: some 300 bytes a call.
std::string TimelineJson(const v1::GetCallRecordsResponse& calls,
                         const std::vector<v1::GetRunResponse>& runs);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_TIMELINE_TIMELINE_JSON_H_
