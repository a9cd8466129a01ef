// Questions to a head.

#ifndef MINIRAY_TOOLS_CLI_HEAD_CLIENT_H_
#define MINIRAY_TOOLS_CLI_HEAD_CLIENT_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"
#include "proto/head.grpc.pb.h"
#include "runtime/rpc/channel.h"
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
  // wrong or missing. All say what to do.
  template <class Request, class Response>
  absl::Status Call(grpc::Status (v1::Head::Stub::*method)(grpc::ClientContext*,
                                                           const Request&,
                                                           Response*),
                    const Request& request, Response* response,
                    absl::Duration timeout) {
    grpc::ClientContext context;
    PrepareContext(&context, token_, timeout);
    return Explain((stub_.get()->*method)(&context, request, response));
  }

  // What a call came to, in words for a user.
  absl::Status Explain(const grpc::Status& status) const;

 private:
  HeadClient(std::string address, std::string token);

  const std::string address_;
  const std::string token_;
  const std::unique_ptr<v1::Head::Stub> stub_;
};

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_HEAD_CLIENT_H_
