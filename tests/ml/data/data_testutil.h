// Files and checks for the tests of data readers and pictures.

#ifndef MINIRAY_TESTS_ML_DATA_DATA_TESTUTIL_H_
#define MINIRAY_TESTS_ML_DATA_DATA_TESTUTIL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace miniray::ml {

// Returns a new, empty folder for the running test.
std::string MakeTestFolder();

// Writes `bytes` to `folder`/`name` and returns the path.
std::string WriteTestFile(const std::string& folder, const std::string& name,
                          const std::string& bytes);

// Returns `bytes` as a gzip file.
std::string Gzip(const std::string& bytes);

// Returns a member of a tar archive, as GNU tar writes it (posix: as POSIX has
// it): its header and, padded to blocks of 512, its data. type: '0' for a file.
std::string TarMemberBytes(const std::string& name, const std::string& data,
                           char type = '0', bool posix = false);

// Returns a tar header of 512 bytes with its right checksum after bytes were
// changed.
std::string WithTarChecksum(std::string header);

// What a tar archive ends with.
std::string TarEnd();

// Returns an IDX header: 0x0000, `type`, the number of sizes, the sizes.
std::string IdxHeader(const std::vector<uint32_t>& sizes, uint8_t type = 0x08);

// Returns 0, 1, 2, ... modulo 251: no pattern of a power of two.
std::string CountingBytes(int64_t size);

// Returns a contiguous uint8 tensor's bytes.
std::string BytesOf(const at::Tensor& tensor);

// Returns an int64 tensor's values.
std::vector<int64_t> ValuesOf(const at::Tensor& tensor);

// Fails the test unless `status` has `code` and a message with all `parts`.
void ExpectError(const absl::Status& status, absl::StatusCode code,
                 const std::vector<std::string>& parts);

}  // namespace miniray::ml

// Unwraps an absl::StatusOr or ends the test with its error.
#define ASSERT_OK_AND_ASSIGN(lhs, expr) \
  ASSERT_OK_AND_ASSIGN_IMPL_(MR_TEST_CONCAT_(result_, __LINE__), lhs, expr)
#define ASSERT_OK_AND_ASSIGN_IMPL_(name, lhs, expr) \
  auto name = (expr);                               \
  ASSERT_TRUE(name.ok()) << name.status();          \
  lhs = *std::move(name)
#define MR_TEST_CONCAT_(a, b) MR_TEST_CONCAT_IMPL_(a, b)
#define MR_TEST_CONCAT_IMPL_(a, b) a##b

#endif  // MINIRAY_TESTS_ML_DATA_DATA_TESTUTIL_H_
