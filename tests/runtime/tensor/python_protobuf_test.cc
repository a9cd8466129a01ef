// What we write is protobuf to others, too: Python's stock library reads it and
// is read.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray {
namespace {

// Runs a command of the shell; returns what it printed.
std::string Output(const std::string& command, int* exit_code) {
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  std::string out;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
    out.append(buffer, n);
  }
  *exit_code = pclose(pipe);
  return out;
}

std::string Hex(const at::Tensor& tensor) {
  return absl::BytesToHexString(absl::string_view(
      static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()));
}

class PythonProtobufTest : public testing::Test {
 protected:
  void Write(const absl::StatusOr<absl::Cord>& value) {
    ASSERT_TRUE(value.ok()) << value.status();
    std::ofstream file(absl::StrCat(folder_, "/", count_++, ".value"));
    file << std::string(*value);
  }

  std::string RunPython() {
    std::string command = absl::StrCat(
        "protoc --python_out=", folder_,
        " proto/tensor.proto proto/value.proto 2>&1 && /usr/bin/python3 ",
        "tests/runtime/tensor/read_values.py ", folder_, " ", folder_, " 2>&1");
    int exit_code = -1;
    std::string out = Output(command, &exit_code);
    EXPECT_EQ(exit_code, 0) << out;
    return out;
  }

  const std::string folder_ = absl::StrCat(testing::TempDir(), "/python");
  const bool made_ = std::filesystem::create_directories(folder_);
  int count_ = 0;
};

TEST_F(PythonProtobufTest, ReadsEveryElementTypeAndIsRead) {
  ASSERT_TRUE(made_);
  const std::vector<std::pair<at::ScalarType, std::string>> types = {
      {at::kBool, "BOOL"},
      {at::kByte, "UINT8"},
      {at::kChar, "INT8"},
      {at::kShort, "INT16"},
      {at::kInt, "INT32"},
      {at::kLong, "INT64"},
      {at::kHalf, "FLOAT16"},
      {at::kBFloat16, "BFLOAT16"},
      {at::kFloat, "FLOAT32"},
      {at::kDouble, "FLOAT64"},
      {at::kComplexFloat, "COMPLEX64"},
      {at::kComplexDouble, "COMPLEX128"}};
  std::string want;
  for (const auto& [type, name] : types) {
    const at::Tensor tensor = at::arange(6).sub(2).to(type).reshape({2, 3});
    Write(EncodeValue(tensor));
    absl::StrAppend(&want, "DTYPE_", name, " 2x3 ", Hex(tensor), "\n");
    // Not contiguous: it arrives row by row.
    Write(EncodeValue(tensor.t()));
    absl::StrAppend(&want, "DTYPE_", name, " 3x2 ",
                    Hex(tensor.t().contiguous()), "\n");
  }
  Write(EncodeValue(at::zeros({0, 5})));
  absl::StrAppend(&want, "DTYPE_FLOAT32 0x5 \n");
  const at::Tensor scalar = at::scalar_tensor(2.5);
  Write(EncodeValue(scalar));
  absl::StrAppend(&want, "DTYPE_FLOAT32  ", Hex(scalar), "\n");
  // More than a small buffer, as it is when memory is shared.
  const at::Tensor large = at::arange(100'000, at::kInt);
  Write(EncodeValue(large));
  absl::StrAppend(&want, "DTYPE_INT32 100000 ", Hex(large), "\n");
  // Containers around.
  Write(EncodeValue(std::vector<int64_t>{-3, 4}));
  absl::StrAppend(&want,
                  R"({"list": {"items": [{"intValue": "-3"}, )"
                  R"({"intValue": "4"}]}})",
                  "\n");

  EXPECT_EQ(RunPython(), want);

  std::ifstream file(folder_ + "/python.value");
  std::stringstream bytes;
  bytes << file.rdbuf();
  at::Tensor back;
  const absl::Status status = DecodeValue(absl::Cord(bytes.str()), &back);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(
      back.equal(at::tensor({1.5, -2.0, 1e300}, at::kDouble).reshape({3, 1})));
}

}  // namespace
}  // namespace miniray
