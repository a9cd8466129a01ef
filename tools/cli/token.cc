#include "tools/cli/token.h"

#include <cstdlib>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/files.h"
#include "runtime/base/process_records.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/token.h"
#include "runtime/rpc/fault_injector.h"
#include "runtime/rpc/tls.h"
#include "tools/cli/flags.h"

namespace miniray::cli {

absl::StatusOr<std::string> GivenToken() {
  std::string token, source;
  if (const std::string file = absl::GetFlag(FLAGS_token_file); !file.empty()) {
    source = absl::StrCat("--token_file=", file);
    absl::StatusOr<std::string> text = ReadFile(file);
    if (!text.ok()) return Annotate(text.status(), "--token_file");
    token = *std::move(text);
    absl::StripAsciiWhitespace(&token);
    if (token.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(source, " is empty"));
    }
  } else if (const char* value = std::getenv("MINIRAY_TOKEN")) {
    source = "$MINIRAY_TOKEN";
    token = value;
  }
  MR_RETURN_IF_ERROR(CheckTokenText(token, source));
  return token;
}

std::string GivenTlsDir() {
  std::string dir = absl::GetFlag(FLAGS_tls_dir);
  if (dir.empty()) {
    if (const char* value = std::getenv(kTlsDirVariable)) dir = value;
  }
  return dir;
}

absl::StatusOr<std::string> PrepareForHead(const std::string& address) {
  std::string dir = GivenTlsDir();
  if (dir.empty()) dir = TlsDirFor(address).value_or("");
  MR_RETURN_IF_ERROR(Annotate(UseTls(dir), "TLS"));
  // A flag goes before the variable.
  if (absl::GetFlag(FLAGS_inject_faults).empty()) {
    MR_RETURN_IF_ERROR(UseFaultsFromEnvironment());
  } else {
    MR_RETURN_IF_ERROR(UseFaults(absl::GetFlag(FLAGS_inject_faults)));
  }
  MR_ASSIGN_OR_RETURN(std::string token, GivenToken());
  if (token.empty()) token = TokenFor(address).value_or("");
  return token;
}

}  // namespace miniray::cli
