// Questions to a head.

#ifndef MINIRAY_TOOLS_CLI_HEAD_CLIENT_H_
#define MINIRAY_TOOLS_CLI_HEAD_CLIENT_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "proto/head.grpc.pb.h"
#include "proto/run.grpc.pb.h"
#include "runtime/rpc/channel.h"
#include "tools/cli/cancellation.h"
#include "tools/cli/command_line.h"
#include "tools/cli/time_limit.h"

namespace miniray::cli {

// Errors: INVALID_ARGUMENT, --address or --timeout is wrong.
absl::Status CheckHeadFlags(const CommandLine& line);

// Errors: INVALID_ARGUMENT, --format is neither table nor json.
absl::Status CheckFormatFlag();

// How the head begins what it says where the node with a log is not there.
inline constexpr char kLogGone[] = "the log of ";

// Of every single question.
inline constexpr absl::Duration kQuestionTimeout = absl::Seconds(10);

// Thread-safe.
class HeadClient {
 public:
  // The head that --address, else $MINIRAY_ADDRESS names, else the one that was
  // started last on this machine. Nothing is sent yet. Errors:
  // FAILED_PRECONDITION, none is known.
  static absl::StatusOr<std::unique_ptr<HeadClient>> FromFlags();

  const std::string& address() const { return address_; }
  const std::string& token() const { return token_; }
  v1::Head::Stub* stub() { return stub_.get(); }

  // One call. Errors: UNAVAILABLE, nobody answers there. DEADLINE_EXCEEDED, nor
  // does anything refuse us within `timeout`. UNAUTHENTICATED, the token is
  // wrong or missing. All say what to do. cancellation: null, or ends the call
  // from another thread.
  template <class Request, class Response>
  absl::Status Call(grpc::Status (v1::Head::Stub::*method)(grpc::ClientContext*,
                                                           const Request&,
                                                           Response*),
                    const Request& request, Response* response,
                    absl::Duration timeout,
                    Cancellation* cancellation = nullptr) {
    return Explain(
        Ask(stub_.get(), method, request, response, timeout, cancellation));
  }

  // The same of the head's collector of runs. Errors: also UNIMPLEMENTED, the
  // head has none.
  template <class Request, class Response>
  absl::Status Call(grpc::Status (v1::RunCollector::Stub::*method)(
                        grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response,
                    absl::Duration timeout,
                    Cancellation* cancellation = nullptr) {
    return ExplainOfRuns(
        Ask(runs_.get(), method, request, response, timeout, cancellation));
  }

  // What a call came to, in words for a user.
  absl::Status Explain(const grpc::Status& status) const;

 private:
  HeadClient(std::string address, std::string token);

  template <class Stub, class Method, class Request, class Response>
  grpc::Status Ask(Stub* stub, Method method, const Request& request,
                   Response* response, absl::Duration timeout,
                   Cancellation* cancellation) {
    grpc::ClientContext context;
    PrepareContext(&context, token_, timeout);
    std::optional<Cancellation::Scope> scope;
    if (cancellation != nullptr) scope.emplace(cancellation, &context);
    return (stub->*method)(&context, request, response);
  }

  absl::Status ExplainOfRuns(const grpc::Status& status) const;

  const std::string address_;
  const std::string token_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Head::Stub> stub_;
  const std::unique_ptr<v1::RunCollector::Stub> runs_;
};

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_HEAD_CLIENT_H_
