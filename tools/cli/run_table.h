// Runs (proto/run.proto) as text for people, and as JSON.

#ifndef MINIRAY_TOOLS_CLI_RUN_TABLE_H_
#define MINIRAY_TOOLS_CLI_RUN_TABLE_H_

#include <string>

#include "google/protobuf/repeated_ptr_field.h"
#include "proto/run.pb.h"

namespace miniray::cli {

using RunInfos = google::protobuf::RepeatedPtrField<v1::RunInfo>;

// Puts those first that began first; by id where that is the same.
void SortByAge(RunInfos* runs);

// "running"; "stopping" where it was asked to stop and has not yet.
std::string RunStateWord(const v1::RunInfo& run);

// "3/10": of a run that goes on the epoch that it is in, from 1, of one that
// has ended how many it had. Without the second number where it is not known.
std::string EpochText(const v1::RunInfo& run);

// Its last loss: "0.1234", or "d_loss 0.51, g_loss 0.93" where it has several;
// empty where it has none.
std::string LossText(const v1::RunInfo& run);

// The table as columns with a heading.
std::string FormatRuns(const RunInfos& runs);

// All that is known of one, line by line: its workers, parameter servers and
// the last values of its metrics included.
std::string FormatRun(const v1::GetRunResponse& run);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_RUN_TABLE_H_
