#include "runtime/rpc/certificates.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

// Longer than anybody keeps a cluster without making new certificates.
constexpr absl::Duration kCaLifetime = absl::Hours(24 * 3650);

struct Free {
  void operator()(BIO* object) const { BIO_free(object); }
  void operator()(EVP_PKEY* object) const { EVP_PKEY_free(object); }
  void operator()(X509* object) const { X509_free(object); }
  void operator()(X509_EXTENSION* object) const { X509_EXTENSION_free(object); }
  void operator()(X509_STORE* object) const { X509_STORE_free(object); }
  void operator()(X509_STORE_CTX* object) const { X509_STORE_CTX_free(object); }
};
using Bio = std::unique_ptr<BIO, Free>;
using Key = std::unique_ptr<EVP_PKEY, Free>;
using Certificate = std::unique_ptr<X509, Free>;

std::string InFolder(const std::string& dir, const char* file) {
  return absl::StrCat(dir, "/", file);
}

bool Exists(const std::string& path) {
  struct stat st;
  return lstat(path.c_str(), &st) == 0;
}

// OpenSSL's own words for what just failed.
std::string OpensslError() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "no reason given" : reason;
}

absl::Status OpensslFailure(absl::string_view what) {
  return absl::InternalError(
      absl::StrCat("OpenSSL cannot ", what, ": ", OpensslError()));
}

Bio MemoryBio(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

absl::StatusOr<std::string> TextOf(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  if (size <= 0) return OpensslFailure("write PEM");
  return std::string(data, static_cast<size_t>(size));
}

absl::StatusOr<std::string> ToPem(X509* certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(bio.get(), certificate) != 1) {
    return OpensslFailure("write a certificate");
  }
  return TextOf(bio.get());
}

absl::StatusOr<std::string> ToPem(EVP_PKEY* key) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0,
                                    nullptr, nullptr) != 1) {
    return OpensslFailure("write a key");
  }
  return TextOf(bio.get());
}

absl::StatusOr<Certificate> ParseCertificate(const std::string& pem,
                                             const std::string& path) {
  const Bio bio = MemoryBio(pem);
  Certificate certificate(
      PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " is not a certificate in PEM (", OpensslError(), ")"));
  }
  return certificate;
}

absl::StatusOr<Key> ParseKey(const std::string& pem, const std::string& path) {
  const Bio bio = MemoryBio(pem);
  // No password is asked for at the terminal.
  Key key(PEM_read_bio_PrivateKey(
      bio.get(), nullptr, [](char*, int, int, void*) { return 0; }, nullptr));
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a private key in PEM without password (",
                     OpensslError(), ")"));
  }
  return key;
}

absl::StatusOr<Key> NewKey() {
  Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return OpensslFailure("make a key");
  return key;
}

absl::Status AddExtension(X509* certificate, X509* issuer, int nid,
                          const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, Free> extension(
      X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  if (extension == nullptr ||
      X509_add_ext(certificate, extension.get(), -1) != 1) {
    return OpensslFailure("make a certificate");
  }
  return absl::OkStatus();
}

// issuer: null where it signs itself. dns_name: of a node's.
absl::StatusOr<Certificate> NewCertificate(const char* name, EVP_PKEY* key,
                                           X509* issuer, EVP_PKEY* issuer_key,
                                           absl::Time not_before,
                                           absl::Time not_after,
                                           const std::string& dns_name) {
  Certificate certificate(X509_new());
  X509* const x = certificate.get();
  // Random, as the profile for the Internet asks for; positive.
  uint8_t serial[16];
  if (RAND_bytes(serial, sizeof(serial)) != 1) {
    return OpensslFailure("make a random number");
  }
  serial[0] &= 0x7f;
  serial[0] |= 0x40;
  BIGNUM* const number = BN_bin2bn(serial, sizeof(serial), nullptr);
  BN_to_ASN1_INTEGER(number, X509_get_serialNumber(x));
  BN_free(number);
  X509_set_version(x, X509_VERSION_3);
  ASN1_TIME_set(X509_getm_notBefore(x), absl::ToTimeT(not_before));
  ASN1_TIME_set(X509_getm_notAfter(x), absl::ToTimeT(not_after));
  X509_set_pubkey(x, key);
  X509_NAME* const subject = X509_get_subject_name(x);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                             reinterpret_cast<const uint8_t*>(name), -1, -1, 0);
  const bool is_ca = issuer == nullptr;
  X509_set_issuer_name(x, is_ca ? subject : X509_get_subject_name(issuer));
  X509* const signer = is_ca ? x : issuer;
  if (is_ca) {
    MR_RETURN_IF_ERROR(AddExtension(x, signer, NID_basic_constraints,
                                    "critical,CA:TRUE,pathlen:0"));
    MR_RETURN_IF_ERROR(
        AddExtension(x, signer, NID_key_usage, "critical,keyCertSign,cRLSign"));
  } else {
    MR_RETURN_IF_ERROR(
        AddExtension(x, signer, NID_basic_constraints, "critical,CA:FALSE"));
    MR_RETURN_IF_ERROR(
        AddExtension(x, signer, NID_key_usage, "critical,digitalSignature"));
    MR_RETURN_IF_ERROR(
        AddExtension(x, signer, NID_ext_key_usage, "serverAuth,clientAuth"));
    // The others are for browsers, which open the dashboard on loopback.
    MR_RETURN_IF_ERROR(AddExtension(
        x, signer, NID_subject_alt_name,
        absl::StrCat("DNS:", dns_name,
                     ",DNS:localhost,IP:127.0.0.1,IP:0:0:0:0:0:0:0:1")));
  }
  MR_RETURN_IF_ERROR(
      AddExtension(x, signer, NID_subject_key_identifier, "hash"));
  if (!is_ca) {
    MR_RETURN_IF_ERROR(
        AddExtension(x, signer, NID_authority_key_identifier, "keyid:always"));
  }
  if (X509_sign(x, issuer_key, EVP_sha256()) == 0) {
    return OpensslFailure("sign a certificate");
  }
  return certificate;
}

absl::StatusOr<absl::Time> ToTime(const ASN1_TIME* time) {
  tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) {
    return OpensslFailure("read a certificate's dates");
  }
  return absl::FromTM(parts, absl::UTCTimeZone());
}

// Returns when it ends.
absl::StatusOr<absl::Time> CheckDates(X509* certificate,
                                      const std::string& path) {
  MR_ASSIGN_OR_RETURN(const absl::Time from,
                      ToTime(X509_get0_notBefore(certificate)));
  MR_ASSIGN_OR_RETURN(const absl::Time until,
                      ToTime(X509_get0_notAfter(certificate)));
  const absl::Time now = absl::Now();
  if (now > until) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " expired on ", absl::FormatTime(until),
                     "; remove it and its key, and make new ones with: miniray "
                     "make-certs"));
  }
  if (now < from) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is not valid before ", absl::FormatTime(from),
                     "; is this machine's clock right?"));
  }
  return until;
}

absl::Status CheckSignature(X509* ca, X509* node, const std::string& ca_path,
                            const std::string& node_path) {
  const std::unique_ptr<X509_STORE, Free> store(X509_STORE_new());
  const std::unique_ptr<X509_STORE_CTX, Free> context(X509_STORE_CTX_new());
  if (X509_STORE_add_cert(store.get(), ca) != 1 ||
      X509_STORE_CTX_init(context.get(), store.get(), node, nullptr) != 1) {
    return OpensslFailure("check a certificate");
  }
  if (X509_verify_cert(context.get()) != 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        node_path, " is not signed by ", ca_path, " (",
        X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get())),
        "); are they of two clusters?"));
  }
  if (X509_check_host(node, kTlsName, 0, 0, nullptr) != 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        node_path, " lacks the subject alternative name DNS:", kTlsName,
        ", which peers ask for"));
  }
  return absl::OkStatus();
}

// A missing file's error says how to make it.
absl::StatusOr<std::string> ReadPem(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path);
  if (text.status().code() == absl::StatusCode::kNotFound) {
    return absl::NotFoundError(absl::StrCat(
        text.status().message(),
        "; --tls_dir names a folder with ca.crt, node.crt and node.key, which "
        "`miniray make-certs` makes"));
  }
  return text;
}

absl::Status CheckKeyMode(const std::string& path) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0) return ErrnoStatus(errno, path);
  if ((st.st_mode & 077) == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      path, " may be read by others than its owner; run: chmod 600 ", path));
}

// The authority that signs: a certificate and its key.
struct Authority {
  Certificate certificate;
  Key key;
};

absl::StatusOr<Authority> ReadAuthority(const std::string& dir) {
  const std::string certificate_path = InFolder(dir, kCaCertificateFile);
  const std::string key_path = InFolder(dir, kCaKeyFile);
  MR_ASSIGN_OR_RETURN(const std::string certificate,
                      ReadFile(certificate_path));
  absl::StatusOr<std::string> key = ReadFile(key_path);
  if (!key.ok()) {
    return Annotate(key.status(),
                    "the authority's key signs the node's certificate");
  }
  Authority authority;
  MR_ASSIGN_OR_RETURN(authority.certificate,
                      ParseCertificate(certificate, certificate_path));
  MR_ASSIGN_OR_RETURN(authority.key, ParseKey(*key, key_path));
  MR_RETURN_IF_ERROR(
      CheckDates(authority.certificate.get(), certificate_path).status());
  if (X509_check_private_key(authority.certificate.get(),
                             authority.key.get()) != 1) {
    ERR_clear_error();
    return absl::FailedPreconditionError(
        absl::StrCat(key_path, " is not the key of ", certificate_path));
  }
  return authority;
}

absl::StatusOr<Authority> NewAuthority(absl::Time not_before,
                                       absl::Time not_after) {
  Authority authority;
  MR_ASSIGN_OR_RETURN(authority.key, NewKey());
  MR_ASSIGN_OR_RETURN(
      authority.certificate,
      NewCertificate("Mini-Ray cluster CA", authority.key.get(), nullptr,
                     authority.key.get(), not_before, not_after, ""));
  return authority;
}

}  // namespace

absl::StatusOr<bool> MakeCertificates(const CertificateOptions& options) {
  const std::string& dir = options.tls_dir;
  const std::string ca_dir = options.ca_dir.empty() ? dir : options.ca_dir;
  const bool own_ca = ca_dir == dir;
  MR_RETURN_IF_ERROR(MakeDirectories(dir, 0700));
  for (const char* file : {kNodeCertificateFile, kNodeKeyFile}) {
    if (Exists(InFolder(dir, file))) {
      return absl::AlreadyExistsError(
          absl::StrCat(InFolder(dir, file), " exists, and is not overwritten"));
    }
  }
  const bool has_ca = Exists(InFolder(ca_dir, kCaCertificateFile)) ||
                      Exists(InFolder(ca_dir, kCaKeyFile));
  if (!own_ca && !has_ca) {
    return absl::NotFoundError(absl::StrCat(
        ca_dir, " has no ", kCaCertificateFile, " and ", kCaKeyFile));
  }
  if (!own_ca && Exists(InFolder(dir, kCaCertificateFile))) {
    return absl::AlreadyExistsError(absl::StrCat(
        InFolder(dir, kCaCertificateFile), " exists, and is not overwritten"));
  }
  Authority authority;
  if (has_ca) {
    MR_ASSIGN_OR_RETURN(authority, ReadAuthority(ca_dir));
  } else {
    MR_ASSIGN_OR_RETURN(
        authority,
        NewAuthority(std::min(options.not_before, absl::Now()),
                     std::max(options.not_after, absl::Now() + kCaLifetime)));
  }
  MR_ASSIGN_OR_RETURN(const Key key, NewKey());
  MR_ASSIGN_OR_RETURN(
      const Certificate certificate,
      NewCertificate("Mini-Ray node", key.get(), authority.certificate.get(),
                     authority.key.get(), options.not_before, options.not_after,
                     options.name));
  MR_ASSIGN_OR_RETURN(const std::string ca_pem,
                      ToPem(authority.certificate.get()));
  if (!has_ca) {
    MR_ASSIGN_OR_RETURN(const std::string ca_key, ToPem(authority.key.get()));
    MR_RETURN_IF_ERROR(
        WriteFileAtomically(InFolder(dir, kCaKeyFile), ca_key, 0600));
  }
  if (!has_ca || !own_ca) {
    MR_RETURN_IF_ERROR(
        WriteFileAtomically(InFolder(dir, kCaCertificateFile), ca_pem, 0644));
  }
  MR_ASSIGN_OR_RETURN(const std::string key_pem, ToPem(key.get()));
  MR_RETURN_IF_ERROR(
      WriteFileAtomically(InFolder(dir, kNodeKeyFile), key_pem, 0600));
  MR_ASSIGN_OR_RETURN(const std::string pem, ToPem(certificate.get()));
  MR_RETURN_IF_ERROR(
      WriteFileAtomically(InFolder(dir, kNodeCertificateFile), pem, 0644));
  return !has_ca;
}

absl::StatusOr<CertificateFolder> ReadCertificateFolder(
    const std::string& dir) {
  const std::string ca_path = InFolder(dir, kCaCertificateFile);
  const std::string node_path = InFolder(dir, kNodeCertificateFile);
  const std::string key_path = InFolder(dir, kNodeKeyFile);
  CertificateFolder folder;
  MR_ASSIGN_OR_RETURN(folder.ca_certificate, ReadPem(ca_path));
  MR_ASSIGN_OR_RETURN(folder.node_certificate, ReadPem(node_path));
  MR_ASSIGN_OR_RETURN(folder.node_key, ReadPem(key_path));
  MR_RETURN_IF_ERROR(CheckKeyMode(key_path));
  MR_ASSIGN_OR_RETURN(const Certificate ca,
                      ParseCertificate(folder.ca_certificate, ca_path));
  MR_ASSIGN_OR_RETURN(const Certificate node,
                      ParseCertificate(folder.node_certificate, node_path));
  MR_ASSIGN_OR_RETURN(const Key key, ParseKey(folder.node_key, key_path));
  MR_ASSIGN_OR_RETURN(const absl::Time ca_end, CheckDates(ca.get(), ca_path));
  MR_ASSIGN_OR_RETURN(const absl::Time node_end,
                      CheckDates(node.get(), node_path));
  folder.not_after = std::min(ca_end, node_end);
  MR_RETURN_IF_ERROR(CheckSignature(ca.get(), node.get(), ca_path, node_path));
  if (X509_check_private_key(node.get(), key.get()) != 1) {
    ERR_clear_error();
    return absl::FailedPreconditionError(
        absl::StrCat(key_path, " is not the key of ", node_path));
  }
  return folder;
}

}  // namespace miniray
