// Whether this process speaks TLS, and with which certificates. A process
// belongs to one cluster at a time, so this is one setting for all of it: set
// it before the first channel or server is made.
//
// Mutual: client and server both show a certificate that the cluster's
// authority has signed (see certificates.h). Host names play no part.

#ifndef MINIRAY_RUNTIME_RPC_TLS_H_
#define MINIRAY_RUNTIME_RPC_TLS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/support/channel_arguments.h"

namespace miniray {

// The variable that names the folder where no flag does.
inline constexpr char kTlsDirVariable[] = "MINIRAY_TLS_DIR";

// Channels and servers made from now on use the certificates in `dir`; an empty
// `dir`: plain text. Those that exist stay as they are. Thread-safe.
// Errors: see ReadCertificateFolder; the setting is then as before.
absl::Status UseTls(const std::string& dir);

// The absolute path of the folder in use; empty: plain text.
std::string TlsDir();

// What AddListeningPort takes.
std::shared_ptr<grpc::ServerCredentials> ServerCredentials();

// For MakeChannel. Adds to `args` what the credentials need.
std::shared_ptr<grpc::ChannelCredentials> ClientCredentials(
    grpc::ChannelArguments* args);

// What a user may do about a connection that failed with `message`, gRPC's
// text, where TLS is a likely reason: "; <advice>", else empty.
std::string TlsAdvice(absl::string_view message);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_RPC_TLS_H_
