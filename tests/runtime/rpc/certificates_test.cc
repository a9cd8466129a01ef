#include "runtime/rpc/certificates.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

mode_t ModeOf(const std::string& path) {
  struct stat st = {};
  EXPECT_EQ(stat(path.c_str(), &st), 0) << path;
  return st.st_mode & 0777;
}

class CertificatesTest : public ::testing::Test {
 protected:
  // A folder with an authority and a node certificate.
  std::string Make(const std::string& name) {
    const std::string dir = folder_ / name;
    EXPECT_THAT(MakeCertificates({.tls_dir = dir}), IsOk());
    return dir;
  }
  void Copy(const std::string& from, const std::string& to) {
    std::filesystem::copy_file(
        from, to, std::filesystem::copy_options::overwrite_existing);
  }

  TempFolder folder_;
};

TEST_F(CertificatesTest, MakesWhatItReads) {
  const std::string dir = Make("a");
  EXPECT_EQ(ModeOf(dir), 0700);
  EXPECT_EQ(ModeOf(dir + "/ca.key"), 0600);
  EXPECT_EQ(ModeOf(dir + "/node.key"), 0600);
  const auto read = ReadCertificateFolder(dir);
  ASSERT_THAT(read, IsOk());
  EXPECT_GT(read->not_after, absl::Now() + absl::Hours(24 * 364));
  EXPECT_LT(read->not_after, absl::Now() + absl::Hours(24 * 366));
}

TEST_F(CertificatesTest, OverwritesNothing) {
  const std::string dir = Make("a");
  const std::string key = ReadFile(dir + "/node.key").value();
  const std::string ca = ReadFile(dir + "/ca.crt").value();
  EXPECT_THAT(MakeCertificates({.tls_dir = dir}),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(dir)));
  EXPECT_EQ(ReadFile(dir + "/node.key").value(), key);
  EXPECT_EQ(ReadFile(dir + "/ca.crt").value(), ca);
}

TEST_F(CertificatesTest, RenewsWithTheSameAuthority) {
  const std::string dir = Make("a");
  const std::string ca = ReadFile(dir + "/ca.crt").value();
  std::filesystem::remove(dir + "/node.crt");
  std::filesystem::remove(dir + "/node.key");
  const auto made_ca = MakeCertificates({.tls_dir = dir});
  ASSERT_THAT(made_ca, IsOk());
  EXPECT_FALSE(*made_ca);
  EXPECT_EQ(ReadFile(dir + "/ca.crt").value(), ca);
  EXPECT_THAT(ReadCertificateFolder(dir), IsOk());
}

TEST_F(CertificatesTest, AnotherFolderGetsNoAuthorityKey) {
  const std::string ca = Make("ca");
  const std::string node = folder_ / "node";
  ASSERT_THAT(MakeCertificates({.tls_dir = node, .ca_dir = ca}), IsOk());
  EXPECT_THAT(ReadCertificateFolder(node), IsOk());
  EXPECT_FALSE(std::filesystem::exists(node + "/ca.key"));
  EXPECT_EQ(ReadFile(node + "/ca.crt").value(),
            ReadFile(ca + "/ca.crt").value());
}

TEST_F(CertificatesTest, AnAuthorityNeedsItsOwnKey) {
  const std::string a = Make("a"), b = Make("b");
  EXPECT_THAT(
      MakeCertificates({.tls_dir = folder_ / "c", .ca_dir = folder_ / "none"}),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  Copy(b + "/ca.key", a + "/ca.key");
  EXPECT_THAT(MakeCertificates({.tls_dir = folder_ / "c", .ca_dir = a}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("is not the key of")));
  std::filesystem::remove(a + "/ca.key");
  EXPECT_THAT(MakeCertificates({.tls_dir = folder_ / "c", .ca_dir = a}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("ca.key")));
}

TEST_F(CertificatesTest, EachMistakeNamesFileAndReason) {
  const std::string good = Make("good"), other = Make("other");
  struct Mistake {
    std::string file;
    std::string from;  // Copied over it; empty: removed.
    absl::StatusCode code;
    std::string reason;
  };
  const std::string text = folder_ / "text";
  ASSERT_THAT(WriteFileAtomically(text, "no PEM", 0600), IsOk());
  for (const Mistake& mistake : std::vector<Mistake>{
           {"ca.crt", "", absl::StatusCode::kNotFound, "No such file"},
           {"node.crt", "", absl::StatusCode::kNotFound, "make-certs"},
           {"node.key", "", absl::StatusCode::kNotFound, "No such file"},
           {"ca.crt", text, absl::StatusCode::kInvalidArgument,
            "is not a certificate in PEM"},
           {"node.crt", text, absl::StatusCode::kInvalidArgument,
            "is not a certificate in PEM"},
           {"node.key", text, absl::StatusCode::kInvalidArgument,
            "is not a private key in PEM"},
           {"node.crt", good + "/node.key", absl::StatusCode::kInvalidArgument,
            "is not a certificate"},
           {"ca.crt", other + "/ca.crt", absl::StatusCode::kFailedPrecondition,
            "is not signed by"},
           {"node.crt", good + "/ca.crt", absl::StatusCode::kFailedPrecondition,
            "DNS:miniray"},
           {"node.key", other + "/node.key",
            absl::StatusCode::kFailedPrecondition, "is not the key of"},
       }) {
    const TempFolder bad;
    for (const char* file : {"ca.crt", "node.crt", "node.key"}) {
      Copy(good + "/" + file, bad / file);
    }
    if (mistake.from.empty()) {
      std::filesystem::remove(bad / mistake.file);
    } else {
      Copy(mistake.from, bad / mistake.file);
    }
    EXPECT_THAT(ReadCertificateFolder(bad.path()),
                StatusIs(mistake.code, AllOf(HasSubstr(bad / mistake.file),
                                             HasSubstr(mistake.reason))))
        << mistake.file << " from " << mistake.from;
  }
}

TEST_F(CertificatesTest, AKeyThatOthersMayReadIsRefused) {
  const std::string dir = Make("a");
  for (mode_t mode : {0640, 0604, 0660}) {
    ASSERT_EQ(chmod((dir + "/node.key").c_str(), mode), 0);
    EXPECT_THAT(ReadCertificateFolder(dir),
                StatusIs(absl::StatusCode::kPermissionDenied,
                         HasSubstr("chmod 600 " + dir + "/node.key")));
  }
}

TEST_F(CertificatesTest, DatesAreChecked) {
  const std::string ca = Make("ca");
  const std::string old = folder_ / "old", early = folder_ / "early";
  ASSERT_THAT(MakeCertificates({.tls_dir = old,
                                .ca_dir = ca,
                                .not_before = absl::Now() - absl::Hours(48),
                                .not_after = absl::Now() - absl::Hours(24)}),
              IsOk());
  ASSERT_THAT(MakeCertificates({.tls_dir = early,
                                .ca_dir = ca,
                                .not_before = absl::Now() + absl::Hours(24),
                                .not_after = absl::Now() + absl::Hours(48)}),
              IsOk());
  EXPECT_THAT(ReadCertificateFolder(old),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("old/node.crt expired on ")));
  EXPECT_THAT(ReadCertificateFolder(early),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("early/node.crt is not valid before ")));
}

}  // namespace
}  // namespace miniray
