// The dashboard's side of TLS: the node's certificate, and what it asks of
// clients.

#ifndef MINIRAY_RUNTIME_HTTP_TLS_CONTEXT_H_
#define MINIRAY_RUNTIME_HTTP_TLS_CONTEXT_H_

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace miniray {

using TlsContext = std::shared_ptr<SSL_CTX>;

// Shows the certificate of a folder for --tls_dir (rpc/certificates.h) to
// clients. A client may show one too, which must then be valid and signed by
// the folder's authority; with `demand_certificate` it must show one: where
// there is no token, that is what proves who asks. An empty `tls_dir`: null,
// for plain text.
// Errors: those of ReadCertificateFolder. INTERNAL, OpenSSL takes it not.
absl::StatusOr<TlsContext> MakeTlsContext(const std::string& tls_dir,
                                          bool demand_certificate);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HTTP_TLS_CONTEXT_H_
