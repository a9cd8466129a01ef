#include "tools/cli/verb_help.h"

#include "absl/strings/str_cat.h"

namespace miniray::cli {
namespace {

constexpr char kHeadFlagsHelp[] =
    R"(  --address HOST:PORT of the head (default: $MINIRAY_ADDRESS, else the head that
                      was started last on this machine)
  --token_file FILE   has the cluster's token (default: $MINIRAY_TOKEN, else
                      what is known from processes on this machine)
  --tls_dir DIR       has the certificates, where the cluster speaks TLS
                      (default: $MINIRAY_TLS_DIR, else as for the token)
)";

}  // namespace

std::string HeadVerbHelp(const std::string& text, const std::string& examples) {
  return absl::StrCat(text, kHeadFlagsHelp, examples);
}

std::set<std::string> WithHeadFlags(std::set<std::string> flags) {
  flags.insert({"address", "token_file", "tls_dir", "timeout"});
  return flags;
}

}  // namespace miniray::cli
