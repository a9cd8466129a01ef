#include "ml/metrics/statistics_cache.h"

#include <openssl/evp.h>

#include <array>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "runtime/wire/codec.h"

namespace miniray::ml {
namespace {

// A file is this line, the SHA-256 of all that follows it as a line, and an
// Entry as it travels (runtime/wire/codec.h).
constexpr absl::string_view kFirstLine = "miniray feature statistics 1\n";
constexpr size_t kHashLetters = 64;

}  // namespace

struct StatisticsEntry {
  std::string key;
  FeatureStatistics statistics;
};
MINIRAY_STRUCT(StatisticsEntry, key, statistics);

namespace {

// Checks the bytes of a file, and returns what they hold.
absl::StatusOr<FeatureStatistics> Parse(absl::string_view bytes,
                                        const std::string& key) {
  if (!absl::ConsumePrefix(&bytes, kFirstLine)) {
    return absl::DataLossError("its first line is another one");
  }
  if (bytes.size() <= kHashLetters || bytes[kHashLetters] != '\n') {
    return absl::DataLossError("it ends early");
  }
  const absl::string_view hash = bytes.substr(0, kHashLetters);
  bytes.remove_prefix(kHashLetters + 1);
  if (Sha256(bytes) != hash) {
    return absl::DataLossError("its bytes do not have the hash in it");
  }
  StatisticsEntry entry;
  const absl::Status decoded = DecodeValue(absl::Cord(bytes), &entry);
  if (!decoded.ok()) return absl::DataLossError(decoded.message());
  if (entry.key != key) {
    return absl::DataLossError(
        absl::StrCat("it is of something else: ", entry.key));
  }
  const absl::Status valid = entry.statistics.Validate();
  if (!valid.ok()) return absl::DataLossError(valid.message());
  return std::move(entry.statistics);
}

}  // namespace

std::string Sha256(absl::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(),
             nullptr);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), size));
}

std::string StatisticsPath(const std::string& folder, const std::string& key) {
  // Half of the hash: the whole key is in the file.
  return absl::StrCat(folder, "/real-", Sha256(key).substr(0, 32), ".stats");
}

absl::Status StoreStatistics(const std::string& folder, const std::string& key,
                             const FeatureStatistics& statistics) {
  MR_RETURN_IF_ERROR(statistics.Validate());
  MR_ASSIGN_OR_RETURN(
      const absl::Cord entry,
      EncodeValue(StatisticsEntry{.key = key, .statistics = statistics}));
  const std::string bytes(entry);
  MR_RETURN_IF_ERROR(MakeDirectories(folder));
  return WriteFileAtomically(
      StatisticsPath(folder, key),
      absl::StrCat(kFirstLine, Sha256(bytes), "\n", bytes));
}

absl::StatusOr<FeatureStatistics> LoadStatistics(const std::string& folder,
                                                 const std::string& key) {
  const std::string path = StatisticsPath(folder, key);
  MR_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  absl::StatusOr<FeatureStatistics> statistics = Parse(bytes, key);
  if (!statistics.ok()) return Annotate(statistics.status(), path);
  return statistics;
}

}  // namespace miniray::ml
