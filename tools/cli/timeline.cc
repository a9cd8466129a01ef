#include "tools/cli/timeline.h"

#include <iostream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/time/time.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "tools/cli/flags.h"
#include "tools/cli/head_client.h"
#include "tools/cli/timeline_json.h"

namespace miniray::cli {

absl::Status RunTimeline(const CommandLine& line) {
  MR_ASSIGN_OR_RETURN(const auto head, HeadClient::FromFlags());
  v1::GetCallRecordsRequest request;
  request.set_job_id(absl::GetFlag(FLAGS_job));
  v1::GetCallRecordsResponse records;
  MR_RETURN_IF_ERROR(head->Call(&v1::Head::Stub::GetCallRecords, request,
                                &records, TimeLimit(line, absl::Seconds(30))));
  const std::string json = TimelineToJson(records);
  const std::string file = absl::GetFlag(FLAGS_output);
  if (file.empty()) {
    std::cout << json;
    return absl::OkStatus();
  }
  MR_RETURN_IF_ERROR(WriteOutput(file, json));
  std::cout << records.records_size() << " calls are in " << file
            << "; open it in ui.perfetto.dev or chrome://tracing\n";
  return absl::OkStatus();
}

}  // namespace miniray::cli
