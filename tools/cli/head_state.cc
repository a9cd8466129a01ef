#include "tools/cli/head_state.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/files.h"
#include "runtime/base/net.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/token.h"
#include "runtime/head/state_folder.h"
#include "runtime/rpc/certificates.h"
#include "tools/cli/killed_heads.h"

namespace miniray::cli {
namespace {

constexpr int kPortTries = 100;

std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path found =
      std::filesystem::weakly_canonical(path, error);
  return error ? path : found.string();
}

// What has the same authority serves the same cluster.
bool IsSameTls(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return a.empty() && b.empty();
  if (Absolute(a) == Absolute(b)) return true;
  const auto first = ReadFile(absl::StrCat(a, "/", kCaCertificateFile));
  const auto second = ReadFile(absl::StrCat(b, "/", kCaCertificateFile));
  return first.ok() && second.ok() && *first == *second;
}

// given, left: "--port=1", "listens on port 2".
absl::Status Differs(const HeadState& state,
                     const StateFolder::Remembered& left,
                     absl::string_view given, absl::string_view left_text) {
  const std::string address = AddressOf(left);
  return absl::FailedPreconditionError(absl::StrCat(
      given, " is not that of the cluster whose head was killed at ", address,
      ", which ", left_text, " (its state is in ", state.folder,
      "): leave it out to go on with that cluster, or end it first with: "
      "miniray stop --address ",
      address));
}

// Fills in what was left, unless it was given and is another.
absl::Status TakeOver(const StartOptions& options,
                      const StateFolder::Remembered& left, HeadState* state) {
  state->resumes = true;
  // Port 0 stands for any.
  if (options.port_given && options.port != 0 && left.port != 0 &&
      state->port != left.port) {
    return Differs(*state, left, absl::StrCat("--port=", options.port),
                   absl::StrCat("has port ", left.port));
  }
  if (left.port != 0) state->port = left.port;
  if (!state->token.empty() && !TokensMatch(state->token, left.token)) {
    return Differs(*state, left, "the token of --token_file or $MINIRAY_TOKEN",
                   left.token.empty() ? "has none" : "has another");
  }
  state->token = left.token;
  if (left.host.empty()) return absl::OkStatus();  // Not known.
  if (options.host_given && state->host != left.host) {
    return Differs(*state, left, absl::StrCat("--host=", options.host),
                   absl::StrCat("listened on ", left.host));
  }
  state->host = left.host;
  if (state->tls_dir.empty()) {
    state->tls_dir = left.tls_dir;
  } else if (!IsSameTls(state->tls_dir, left.tls_dir)) {
    return Differs(
        *state, left,
        absl::StrCat("the folder of --tls_dir or $MINIRAY_TLS_DIR, ",
                     state->tls_dir, ","),
        left.tls_dir.empty()
            ? "does not speak TLS"
            : absl::StrCat("has its certificates in ", left.tls_dir));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HeadState> ChooseHeadState(const StartOptions& options,
                                          const std::string& token,
                                          const std::string& tls_dir) {
  HeadState state{.host = options.host,
                  .port = options.port,
                  .token = token,
                  .tls_dir = tls_dir};
  if (!options.state_dir.empty()) {
    state.folder = options.state_dir;
  } else {
    MR_ASSIGN_OR_RETURN(const std::string runtime_folder, RuntimeDirectory());
    RemoveOldHeadStates();
    state.is_default = true;
    for (int i = 0; i < kPortTries; ++i) {
      if (options.port == 0) {
        MR_ASSIGN_OR_RETURN(state.port, FreePort(options.host));
      }
      state.folder =
          absl::StrCat(runtime_folder, "/", kHeadStatePrefix, state.port);
      std::error_code error;
      if (options.port != 0 || !std::filesystem::exists(state.folder, error)) {
        break;
      }
    }
  }
  // Whoever starts there is told that it is in use.
  if (StateFolder::InUse(state.folder)) return state;
  const absl::StatusOr<StateFolder::Remembered> left =
      StateFolder::Recall(state.folder);
  if (left.ok()) {
    MR_RETURN_IF_ERROR(TakeOver(options, *left, &state));
  } else if (!absl::IsNotFound(left.status())) {
    return left.status();
  }
  return state;
}

void RemoveHeadState(const HeadState& state) {
  if (!state.is_default) return UnlinkHeadState(state.folder);
  std::error_code error;
  std::filesystem::remove_all(state.folder, error);
}

}  // namespace miniray::cli
