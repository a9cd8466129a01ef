#include "tools/cli/make_certs.h"

#include <iostream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"
#include "runtime/rpc/certificates.h"
#include "tools/cli/flags.h"

namespace miniray::cli {
namespace {

constexpr int kMaxDays = 36500;

}  // namespace

absl::Status CheckMakeCertsFlags(const CommandLine& line) {
  if (absl::GetFlag(FLAGS_tls_dir).empty()) {
    return absl::InvalidArgumentError(
        "say where the certificates go: --tls_dir DIR");
  }
  const int days = absl::GetFlag(FLAGS_days);
  if (days < 1 || days > kMaxDays) {
    return absl::InvalidArgumentError(
        absl::StrCat("--days=", days, ": it must be in [1, ", kMaxDays, "]"));
  }
  return absl::OkStatus();
}

absl::Status RunMakeCerts(const CommandLine& line) {
  const std::string dir = absl::GetFlag(FLAGS_tls_dir);
  const absl::Time end =
      absl::Now() + absl::Hours(24) * absl::GetFlag(FLAGS_days);
  MR_ASSIGN_OR_RETURN(const bool made_ca,
                      MakeCertificates({.tls_dir = dir,
                                        .ca_dir = absl::GetFlag(FLAGS_ca_dir),
                                        .not_after = end}));
  std::cout << "Made " << (made_ca ? "an authority and a" : "a")
            << " node certificate in " << dir << ", valid until "
            << absl::FormatTime("%Y-%m-%d", end, absl::UTCTimeZone()) << ".\n";
  if (made_ca) {
    std::cout << "Copy ca.crt, node.crt and node.key to a folder on each "
                 "machine, and give it as --tls_dir.\nWhoever has ca.key can "
                 "make more certificates: keep it apart.\n";
  }
  return absl::OkStatus();
}

}  // namespace miniray::cli
