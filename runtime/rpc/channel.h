// gRPC channels, and what a caller shows with each call: the cluster's token
// and its own version. Channels speak TLS where the process does (see tls.h),
// and fail on purpose where faults are asked for (see fault_injector.h).

#ifndef MINIRAY_RUNTIME_RPC_CHANNEL_H_
#define MINIRAY_RUNTIME_RPC_CHANNEL_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/server_context.h"

namespace miniray {

// Largest message: what a protobuf message can hold.
inline constexpr int kMaxMessageBytes = 0x7fffffff;

// Metadata keys.
inline constexpr char kTokenKey[] = "miniray-token";
inline constexpr char kVersionKey[] = "miniray-version";
inline constexpr char kActorKey[] = "miniray-actor";
inline constexpr char kIncarnationKey[] = "miniray-incarnation";
inline constexpr char kCallerKey[] = "miniray-caller";
inline constexpr char kResumeKey[] = "miniray-resume";
inline constexpr char kSharedMemoryKey[] = "miniray-shared-memory";

// Returns a channel to "HOST:PORT" with its own connection, keep-alive pings (a
// peer that vanished is noticed within SilenceTimeout(), 20 s unless set, even
// when idle), quick reconnects and no HTTP proxy. Nothing is sent yet.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address);

// As MakeChannel, for a peer that a Redialler dials while it is away: by itself
// the channel dials again only kMaxRedialPause after a failure.
std::shared_ptr<grpc::Channel> MakeDialledChannel(const std::string& address);

// Sets what every server of the runtime needs (limits, keep-alive policy).
void ConfigureServer(grpc::ServerBuilder* builder);

// Adds this process's version, and the token (nothing if empty).
void AddToken(grpc::ClientContext* context, const std::string& token);

// Sets the deadline, and does as AddToken.
void PrepareContext(grpc::ClientContext* context, const std::string& token,
                    absl::Duration timeout);

// OK if the call carries `token` (compared in constant time), or the cluster
// has none, and its caller is of this version (CheckVersion). A refusal has its
// line in the log. method: of the service; the name of the calling function if
// left out. Errors, with what to do: UNAUTHENTICATED, UNIMPLEMENTED.
absl::Status CheckToken(const grpc::ServerContextBase& context,
                        const std::string& token,
                        const char* method = __builtin_FUNCTION());

// What a caller showed where that came by another way; null: nothing.
struct CallerShows {
  const std::string* token = nullptr;
  const std::string* version = nullptr;
};

// The same. peer: whom the log is to name.
absl::Status CheckToken(const CallerShows& caller, const std::string& token,
                        const std::string& peer, const char* method);

// OK if programs of version `theirs` and of this one understand each other:
// versions differ in the last number only. Error: UNIMPLEMENTED.
absl::Status CheckVersion(absl::string_view theirs);

// Whether the peer has refused this process, so that another attempt is of no
// use: CheckToken's errors.
bool IsRefusal(const absl::Status& status);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_RPC_CHANNEL_H_
