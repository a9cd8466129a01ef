#include "runtime/rpc/tls.h"

#include <glog/logging.h>
#include <grpc/support/log.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "runtime/base/refusal_log.h"
#include "runtime/base/status_macros.h"
#include "runtime/rpc/certificates.h"

namespace miniray {
namespace {

// Certificates that end sooner are worth a line in the log.
constexpr absl::Duration kSoon = absl::Hours(24 * 7);

absl::Mutex setting_mu(absl::kConstInit);

struct Setting {
  std::string dir;
  CertificateFolder folder;
};

std::optional<Setting>& setting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(setting_mu) {
  static auto* const setting = new std::optional<Setting>;
  return *setting;
}

// True once a server of this process speaks TLS.
std::atomic<bool> serves_tls = false;

// OpenSSL's words for what users meet.
constexpr absl::string_view kNoTls = "wrong version number";
constexpr absl::string_view kHttp = "http request";
constexpr absl::string_view kBadCertificate = "certificate verify failed";
constexpr absl::string_view kNoCertificate =
    "peer did not return a certificate";
// gRPC's own.
constexpr absl::string_view kWrongName = "is not in peer certificate";

absl::string_view WhyRefused(absl::string_view message) {
  if (absl::StrContains(message, kNoTls) || absl::StrContains(message, kHttp)) {
    return "it does not speak TLS";
  }
  if (absl::StrContains(message, kBadCertificate)) {
    return "its certificate is expired, or not signed by this cluster's "
           "authority";
  }
  if (absl::StrContains(message, kNoCertificate)) {
    return "it shows no certificate";
  }
  return message;
}

// gRPC tells of a failed handshake only in its log, and there not of whom.
// Where this process is the client, the call's status says the same.
void OnGrpcLog(gpr_log_func_args* args) {
  constexpr absl::string_view kHandshake = "Handshake failed with fatal error ";
  const absl::string_view message = args->message;
  if (const size_t at = message.find(kHandshake);
      at != absl::string_view::npos) {
    if (serves_tls) {
      LogRefusal("a peer", "a connection",
                 WhyRefused(message.substr(at + kHandshake.size())));
    }
    return;
  }
  if (args->severity == GPR_LOG_SEVERITY_ERROR) {
    LOG(WARNING) << "gRPC: " << message;
  }
}

void ListenToGrpcLog() {
  // Whoever asks for all of it gets it.
  if (std::getenv("GRPC_VERBOSITY") != nullptr) return;
  static const bool done = [] {
    gpr_set_log_function(&OnGrpcLog);
    gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
    return true;
  }();
  (void)done;
}

}  // namespace

absl::Status UseTls(const std::string& dir) {
  std::optional<Setting> chosen;
  if (!dir.empty()) {
    std::error_code error;
    std::string path = std::filesystem::absolute(dir, error).string();
    if (error) path = dir;
    MR_ASSIGN_OR_RETURN(CertificateFolder folder, ReadCertificateFolder(path));
    if (folder.not_after - absl::Now() < kSoon) {
      LOG(WARNING) << "the certificates in " << path << " expire on "
                   << absl::FormatTime(folder.not_after);
    }
    ListenToGrpcLog();
    chosen = {std::move(path), std::move(folder)};
  }
  absl::MutexLock lock(&setting_mu);
  setting() = std::move(chosen);
  return absl::OkStatus();
}

std::string TlsDir() {
  absl::MutexLock lock(&setting_mu);
  return setting().has_value() ? setting()->dir : "";
}

std::shared_ptr<grpc::ServerCredentials> ServerCredentials() {
  absl::MutexLock lock(&setting_mu);
  if (!setting().has_value()) return grpc::InsecureServerCredentials();
  serves_tls = true;
  const CertificateFolder& folder = setting()->folder;
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = folder.ca_certificate;
  options.pem_key_cert_pairs.push_back(
      {folder.node_key, folder.node_certificate});
  return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> ClientCredentials(
    grpc::ChannelArguments* args) {
  absl::MutexLock lock(&setting_mu);
  if (!setting().has_value()) return grpc::InsecureChannelCredentials();
  const CertificateFolder& folder = setting()->folder;
  args->SetSslTargetNameOverride(kTlsName);
  return grpc::SslCredentials({.pem_root_certs = folder.ca_certificate,
                               .pem_private_key = folder.node_key,
                               .pem_cert_chain = folder.node_certificate});
}

std::string TlsAdvice(absl::string_view message) {
  if (!absl::StrContains(message, "failed to connect")) return "";
  const std::string dir = TlsDir();
  if (absl::StrContains(message, kNoTls)) {
    return "; the other side does not speak TLS, so either it lacks --tls_dir, "
           "or --tls_dir is too much here";
  }
  if (absl::StrContains(message, kBadCertificate)) {
    return absl::StrCat(
        "; the other side's certificate is expired, or was not signed by ", dir,
        "/", kCaCertificateFile, "; is it of the same cluster?");
  }
  if (absl::StrContains(message, kWrongName)) {
    return absl::StrCat(
        "; the other side's certificate was not made for a "
        "node of Mini-Ray: make it there with `miniray "
        "make-certs`, which gives it the name ",
        kTlsName);
  }
  // What a client sees of a server that refuses it during the handshake, or
  // that waits for one.
  if (absl::StrContains(message, "Socket closed") ||
      absl::StrContains(message, "Connection reset") ||
      absl::StrContains(message, "SETTINGS frame") ||
      absl::StrContains(message, "andshake")) {
    return dir.empty()
               ? "; where the cluster uses TLS, give --tls_dir or set "
                 "MINIRAY_TLS_DIR"
               : absl::StrCat("; if it is up, the certificates in ", dir,
                              " are expired or of another cluster");
  }
  return "";
}

}  // namespace miniray
