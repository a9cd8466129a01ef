#include "runtime/rpc/channel.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "runtime/base/refusal_log.h"
#include "runtime/base/silence.h"
#include "runtime/base/token.h"
#include "runtime/base/version.h"
#include "runtime/rpc/fault_injector.h"
#include "runtime/rpc/head_channel.h"
#include "runtime/rpc/redialler.h"
#include "runtime/rpc/tls.h"

namespace miniray {
namespace {

// "1.2" of "1.2.3": what programs that understand each other have in common.
absl::string_view WithoutPatch(absl::string_view version) {
  return version.substr(0, version.rfind('.'));
}

// Within it a dialled connection is there; longer on a network that is so slow.
constexpr absl::Duration kMinDialTime = absl::Seconds(5);

int Milliseconds(absl::Duration time) {
  return static_cast<int>(absl::ToInt64Milliseconds(time));
}

// Its own pauses are as long as the longest of a Redialler, so that the two do
// not dial in turn. They are for calls that wait without one.
grpc::ChannelArguments DialledByOthers() {
  const int pause_ms = Milliseconds(kMaxRedialPause);
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, pause_ms);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, pause_ms);
  return args;
}

grpc::ChannelArguments DialledByItself() {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  return args;
}

std::shared_ptr<grpc::Channel> MakeChannelWith(grpc::ChannelArguments args,
                                               const std::string& address) {
  args.SetMaxReceiveMessageSize(kMaxMessageBytes);
  args.SetMaxSendMessageSize(kMaxMessageBytes);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A ping after the one half, whose answer may take the other.
  const int half_ms = Milliseconds(SilenceTimeout() / 2);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, half_ms);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, half_ms);
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
              Milliseconds(std::max(kMinDialTime, SilenceTimeout() / 4)));
  const std::shared_ptr<grpc::ChannelCredentials> credentials =
      ClientCredentials(&args);
  if (auto faults = FaultInterceptors(); !faults.empty()) {
    return grpc::experimental::CreateCustomChannelWithInterceptors(
        address, credentials, args, std::move(faults));
  }
  return grpc::CreateCustomChannel(address, credentials, args);
}

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  return MakeChannelWith(DialledByItself(), address);
}

std::shared_ptr<grpc::Channel> MakeDialledChannel(const std::string& address) {
  return MakeChannelWith(DialledByOthers(), address);
}

std::shared_ptr<grpc::Channel> MakeHeadChannel(const std::string& address) {
  grpc::ChannelArguments args = DialledByOthers();
  args.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  return MakeChannelWith(std::move(args), address);
}

void ConfigureServer(grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder->SetMaxSendMessageSize(kMaxMessageBytes);
  // Without it a second server could share the port instead of failing.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Half of what the least patient peer takes.
  builder->AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      Milliseconds(kMinSilenceTimeout / 4));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Who connects and says nothing, or half of a TLS handshake, is not kept.
  builder->AddChannelArgument(
      GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
      Milliseconds(std::max(SilenceTimeout(), kDefaultSilenceTimeout)));
  // A peer whose machine vanished is noticed within two minutes, six times the
  // timeout; one that is paused for less (a debugger, Ctrl-Z) is not taken for
  // it.
  const int patience_ms = Milliseconds(3 * SilenceTimeout());
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, patience_ms);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, patience_ms);
}

void AddToken(grpc::ClientContext* context, const std::string& token) {
  context->AddMetadata(kVersionKey, kVersion);
  if (!token.empty()) context->AddMetadata(kTokenKey, token);
}

void PrepareContext(grpc::ClientContext* context, const std::string& token,
                    absl::Duration timeout) {
  context->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  AddToken(context, token);
}

absl::Status CheckToken(const grpc::ServerContextBase& context,
                        const std::string& token, const char* method) {
  const auto find = [&](const char* key) -> std::optional<std::string> {
    const auto it = context.client_metadata().find(key);
    if (it == context.client_metadata().end()) return std::nullopt;
    return std::string(it->second.data(), it->second.size());
  };
  const std::optional<std::string> given = find(kTokenKey);
  const std::optional<std::string> version = find(kVersionKey);
  return CheckToken({.token = given.has_value() ? &*given : nullptr,
                     .version = version.has_value() ? &*version : nullptr},
                    token, context.peer(), method);
}

absl::Status CheckToken(const CallerShows& caller, const std::string& token,
                        const std::string& peer, const char* method) {
  // First: who may not come in learns nothing.
  const std::string* const given = caller.token;
  if (!token.empty() && (given == nullptr || !TokensMatch(*given, token))) {
    LogRefusal(peer, method,
               given == nullptr ? "it carries no token" : "its token is wrong");
    return absl::UnauthenticatedError(
        given == nullptr
            ? "this cluster needs a token: set MINIRAY_TOKEN to what "
              "'miniray start --head' printed"
            : "the token (MINIRAY_TOKEN) is not the one of this cluster");
  }
  absl::Status status =
      CheckVersion(caller.version == nullptr ? "" : *caller.version);
  if (!status.ok()) LogRefusal(peer, method, "it is of another version");
  return status;
}

absl::Status CheckVersion(absl::string_view theirs) {
  if (WithoutPatch(theirs) == WithoutPatch(kVersion)) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "the caller is ",
      theirs.empty()
          ? "a Mini-Ray too old to tell its version"
          : absl::StrCat("Mini-Ray ", absl::CHexEscape(theirs.substr(0, 40))),
      ", and what it calls is Mini-Ray ", kVersion,
      "; build the programs, the head and the nodes of a cluster from the same "
      "release"));
}

bool IsRefusal(const absl::Status& status) {
  return absl::IsUnauthenticated(status) || absl::IsUnimplemented(status);
}

}  // namespace miniray
