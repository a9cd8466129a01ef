#include "tests/ml/data/data_testutil.h"

#include <stdlib.h>
#include <zlib.h>

#include <fstream>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::ml {

std::string MakeTestFolder() {
  // mkdtemp replaces the six letters.
  std::string folder = ::testing::TempDir() + "/data_" + std::string(6, 'X');
  EXPECT_NE(mkdtemp(folder.data()), nullptr) << folder;
  return folder;
}

std::string WriteTestFile(const std::string& folder, const std::string& name,
                          const std::string& bytes) {
  const std::string path = folder + "/" + name;
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  out.close();
  EXPECT_TRUE(out.good()) << path;
  return path;
}

std::string Gzip(const std::string& bytes) {
  z_stream stream = {};
  // 15 + 16: the largest window, with gzip's header and trailer.
  EXPECT_EQ(
      deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY),
      Z_OK);
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string WithTarChecksum(std::string header) {
  EXPECT_EQ(header.size(), 512u);
  header.replace(148, 8, 8, ' ');
  int sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  // Six digits, a zero byte and a blank.
  header.replace(148, 7, absl::StrFormat("%06o", sum) + '\0');
  return header;
}

std::string TarMemberBytes(const std::string& name, const std::string& data,
                           char type, bool posix) {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(100, 7, "0000644");
  header.replace(108, 7, "0001750");
  header.replace(116, 7, "0001750");
  header.replace(124, 11, absl::StrFormat("%011o", data.size()));
  header.replace(136, 11, "11136042333");
  header[156] = type;
  header.replace(257, 8,
                 posix ? std::string("ustar\0"
                                     "00",
                                     8)
                       : std::string("ustar  \0", 8));
  const std::string padding((512 - data.size() % 512) % 512, '\0');
  return WithTarChecksum(header) + data + padding;
}

std::string TarEnd() { return std::string(1024, '\0'); }

std::string IdxHeader(const std::vector<uint32_t>& sizes, uint8_t type) {
  std::string header = {0, 0, static_cast<char>(type),
                        static_cast<char>(sizes.size())};
  for (uint32_t size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      header.push_back(static_cast<char>((size >> shift) & 0xff));
    }
  }
  return header;
}

std::string CountingBytes(int64_t size) {
  std::string bytes(size, '\0');
  for (int64_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i % 251);
  return bytes;
}

std::string BytesOf(const at::Tensor& tensor) {
  EXPECT_TRUE(tensor.is_contiguous());
  return std::string(reinterpret_cast<const char*>(tensor.data_ptr<uint8_t>()),
                     tensor.numel());
}

std::vector<int64_t> ValuesOf(const at::Tensor& tensor) {
  const at::Tensor values = tensor.contiguous();
  const int64_t* first = values.data_ptr<int64_t>();
  return std::vector<int64_t>(first, first + values.numel());
}

void ExpectError(const absl::Status& status, absl::StatusCode code,
                 const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), code) << status;
  for (const std::string& part : parts) {
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(part));
  }
}

}  // namespace miniray::ml
