#include "runtime/http/tls_context.h"

#include <openssl/err.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/rpc/certificates.h"

namespace miniray {

absl::StatusOr<TlsContext> MakeTlsContext(const std::string& tls_dir,
                                          bool demand_certificate) {
  if (tls_dir.empty()) return nullptr;
  MR_RETURN_IF_ERROR(ReadCertificateFolder(tls_dir).status());
  const std::string ca = absl::StrCat(tls_dir, "/", kCaCertificateFile);
  const std::string certificate =
      absl::StrCat(tls_dir, "/", kNodeCertificateFile);
  const std::string key = absl::StrCat(tls_dir, "/", kNodeKeyFile);
  TlsContext context(SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
  SSL_CTX* const tls = context.get();
  if (tls == nullptr ||
      SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION) != 1 ||
      SSL_CTX_use_certificate_chain_file(tls, certificate.c_str()) != 1 ||
      SSL_CTX_use_PrivateKey_file(tls, key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_load_verify_locations(tls, ca.c_str(), nullptr) != 1) {
    const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
    ERR_clear_error();
    return absl::InternalError(
        absl::StrCat("OpenSSL cannot serve with the certificates in ", tls_dir,
                     ": ", reason == nullptr ? "no reason given" : reason));
  }
  // A browser offers its user only certificates of this authority.
  SSL_CTX_set_client_CA_list(tls, SSL_load_client_CA_file(ca.c_str()));
  SSL_CTX_set_verify(
      tls,
      SSL_VERIFY_PEER |
          (demand_certificate ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
      nullptr);
  // Certificates are looked at for each connection: none is resumed.
  SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(tls, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_num_tickets(tls, 0);
  SSL_CTX_set_mode(
      tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  return context;
}

}  // namespace miniray
