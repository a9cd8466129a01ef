// The X.509 certificates of a cluster: one authority (CA), and for each node
// (or for all of them together) a certificate that the authority has signed.
// Who holds such a certificate and its key belongs to the cluster, whatever its
// host name or address.
//
// A folder for --tls_dir has ca.crt, node.crt and node.key, in PEM. The
// authority's own key (ca.key) is needed only to make more of them.

#ifndef MINIRAY_RUNTIME_RPC_CERTIFICATES_H_
#define MINIRAY_RUNTIME_RPC_CERTIFICATES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace miniray {

inline constexpr char kCaCertificateFile[] = "ca.crt";
inline constexpr char kCaKeyFile[] = "ca.key";
inline constexpr char kNodeCertificateFile[] = "node.crt";
inline constexpr char kNodeKeyFile[] = "node.key";

// The name (subject alternative name) in every node's certificate, which peers
// check instead of a host name.
inline constexpr char kTlsName[] = "miniray";

struct CertificateOptions {
  // Where ca.crt, node.crt and node.key go; created if missing (mode 0700).
  std::string tls_dir;
  // Has ca.crt and ca.key of the authority that signs. Empty: tls_dir; an
  // authority is made there if there is none.
  std::string ca_dir;
  // Of the node's certificate. Peers refuse any other name (tests show it).
  std::string name = kTlsName;
  absl::Time not_before = absl::Now() - absl::Hours(1);
  absl::Time not_after = absl::Now() + absl::Hours(24 * 365);
};

// Returns true if it made an authority too. Keys get mode 0600. Nothing is ever
// overwritten.
//
// Errors: ALREADY_EXISTS, tls_dir has a node certificate. NOT_FOUND, ca_dir has
// no authority, or only a half of one. Those of reading and writing.
absl::StatusOr<bool> MakeCertificates(const CertificateOptions& options);

// What is in a folder for --tls_dir, in PEM.
struct CertificateFolder {
  std::string ca_certificate;
  std::string node_certificate;
  std::string node_key;
  absl::Time not_after;  // When the first of the two certificates ends.
};

// Reads and checks a folder. Each error names the file and what is wrong with
// it: NOT_FOUND, missing; PERMISSION_DENIED, others may read the key;
// INVALID_ARGUMENT, not PEM; FAILED_PRECONDITION, expired or not valid yet, not
// signed by the authority, not made for this cluster (kTlsName), or the key of
// another certificate.
absl::StatusOr<CertificateFolder> ReadCertificateFolder(const std::string& dir);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_RPC_CERTIFICATES_H_
