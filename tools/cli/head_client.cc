#include "tools/cli/head_client.h"

#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/net.h"
#include "runtime/base/process_records.h"
#include "runtime/base/status_macros.h"
#include "runtime/rpc/grpc_status.h"
#include "runtime/rpc/tls.h"
#include "tools/cli/flags.h"
#include "tools/cli/killed_heads.h"
#include "tools/cli/shell_word.h"
#include "tools/cli/token.h"

namespace miniray::cli {
namespace {

// gRPC puts the cause behind all that it tried: "...: ...: Connection refused".
absl::string_view Cause(absl::string_view message) {
  const size_t colon = message.rfind(": ");
  return colon == absl::string_view::npos ? message : message.substr(colon + 2);
}

// Where no head answers.
std::string WhatToDo(const std::string& address) {
  if (const std::optional<KilledHead> killed = FindKilledHead(address)) {
    return Advice(*killed);
  }
  // What a head that was killed there was told it takes from its state.
  std::string command = "miniray start --head";
  if (const absl::StatusOr<HostPort> head = ParseHostPort(address); head.ok()) {
    absl::StrAppend(&command, " --port ", head->port);
  }
  if (const std::string dir = TlsDir(); !dir.empty()) {
    absl::StrAppend(&command, " --tls_dir ", ShellWord(dir));
  }
  return absl::StrCat(
      "check the address and the network, or start a head there, which goes on "
      "with the cluster of one that was killed, with: ",
      command);
}

absl::StatusOr<std::string> FindAddress() {
  if (std::string address = absl::GetFlag(FLAGS_address); !address.empty()) {
    return address;
  }
  if (const char* address = std::getenv("MINIRAY_ADDRESS");
      address != nullptr && *address != '\0') {
    MR_RETURN_IF_ERROR(
        Annotate(ParseHostPort(address).status(), "$MINIRAY_ADDRESS"));
    return std::string(address);
  }
  if (std::optional<std::string> address = MostRecentHeadAddress()) {
    return *std::move(address);
  }
  if (const std::vector<KilledHead> killed = ListKilledHeads();
      !killed.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no head or worker daemon runs on this machine; ", Advice(killed[0])));
  }
  return absl::FailedPreconditionError(
      "no cluster is known on this machine; start one with: miniray start "
      "--head, or pass --address HOST:PORT of another machine's head");
}

}  // namespace

absl::Status CheckHeadFlags(const CommandLine& line) {
  if (line.Has("address")) {
    MR_RETURN_IF_ERROR(Annotate(
        ParseHostPort(absl::GetFlag(FLAGS_address)).status(), "--address"));
  }
  return CheckTimeoutFlag(line);
}

absl::Status CheckFormatFlag() {
  const std::string format = absl::GetFlag(FLAGS_format);
  if (format == "table" || format == "json") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--format=", format, ": expected table or json"));
}

absl::StatusOr<std::unique_ptr<HeadClient>> HeadClient::FromFlags() {
  MR_ASSIGN_OR_RETURN(std::string address, FindAddress());
  MR_ASSIGN_OR_RETURN(std::string token, PrepareForHead(address));
  return absl::WrapUnique(new HeadClient(std::move(address), std::move(token)));
}

HeadClient::HeadClient(std::string address, std::string token)
    : address_(std::move(address)),
      token_(std::move(token)),
      channel_(MakeChannel(address_)),
      stub_(v1::Head::NewStub(channel_)),
      runs_(v1::RunCollector::NewStub(channel_)) {}

absl::Status HeadClient::Explain(const grpc::Status& result) const {
  const absl::Status status = FromGrpcStatus(result);
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return status;
    case absl::StatusCode::kDeadlineExceeded:
      return absl::DeadlineExceededError(absl::StrCat(
          "the head at ", address_, " does not answer within the time limit ",
          "(--timeout); ", WhatToDo(address_)));
    case absl::StatusCode::kUnavailable:
      // The head does answer, but the node that has the log does not.
      if (absl::StartsWith(status.message(), kLogGone)) return status;
      return absl::UnavailableError(
          absl::StrCat("no head answers at ", address_, " (",
                       Cause(status.message()), "); ", WhatToDo(address_)));
    case absl::StatusCode::kUnimplemented:
      return absl::UnimplementedError(absl::StrCat(
          "what answers at ", address_, " is not a head of this version (",
          Cause(status.message()), ")"));
    default:
      return Annotate(status, absl::StrCat("the head at ", address_));
  }
}

absl::Status HeadClient::ExplainOfRuns(const grpc::Status& result) const {
  // A service that is not there says nothing; one that refuses us says why.
  if (result.error_code() == grpc::StatusCode::UNIMPLEMENTED &&
      result.error_message().empty()) {
    return absl::UnimplementedError(absl::StrCat(
        "the head at ", address_,
        " collects no runs: it is of an earlier version; stop it and start one "
        "of this version there, which goes on with the cluster"));
  }
  return Explain(result);
}

}  // namespace miniray::cli
