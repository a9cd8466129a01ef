// proto/run.proto's service at a head: checks the token, and asks the table.

#ifndef MINIRAY_RUNTIME_RUNS_RUN_COLLECTOR_SERVICE_H_
#define MINIRAY_RUNTIME_RUNS_RUN_COLLECTOR_SERVICE_H_

#include <string>
#include <utility>

#include "proto/run.grpc.pb.h"
#include "runtime/rpc/admission.h"
#include "runtime/runs/run_table.h"

namespace miniray {

// Thread-safe. The table outlives it. Refuses every call (UNAVAILABLE) until it
// is opened.
class RunCollectorService : public v1::RunCollector::CallbackService {
 public:
  RunCollectorService(RunTable* table, std::string token)
      : table_(*table), admission_(std::move(token)) {}

  void Open() { admission_.Open(); }

  grpc::ServerUnaryReactor* ReportRun(grpc::CallbackServerContext* context,
                                      const v1::ReportRunRequest* request,
                                      v1::ReportRunResponse* response) override;
  grpc::ServerUnaryReactor* ListRuns(grpc::CallbackServerContext* context,
                                     const v1::ListRunsRequest* request,
                                     v1::ListRunsResponse* response) override;
  grpc::ServerUnaryReactor* GetRun(grpc::CallbackServerContext* context,
                                   const v1::GetRunRequest* request,
                                   v1::GetRunResponse* response) override;
  grpc::ServerUnaryReactor* GetRunImage(
      grpc::CallbackServerContext* context,
      const v1::GetRunImageRequest* request,
      v1::GetRunImageResponse* response) override;
  grpc::ServerUnaryReactor* StopRun(grpc::CallbackServerContext* context,
                                    const v1::StopRunRequest* request,
                                    v1::StopRunResponse* response) override;

 private:
  RunTable& table_;
  Admission admission_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_RUNS_RUN_COLLECTOR_SERVICE_H_
