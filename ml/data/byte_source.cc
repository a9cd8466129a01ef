#include "ml/data/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

constexpr int64_t kGzipInputBytes = 256 * 1024;
constexpr int64_t kSkipBytes = 64 * 1024;
// Deflate spends at least one bit on a match of at most 258 bytes and, with the
// block overhead, never exceeds 1032:1 (zlib's technical notes).
constexpr int64_t kMaxDeflateRatio = 1032;
constexpr unsigned char kGzipMagic[2] = {0x1f, 0x8b};

absl::StatusOr<int64_t> ReadFd(int fd, void* out, int64_t size,
                               const std::string& path) {
  ssize_t n;
  do {
    n = read(fd, out, static_cast<size_t>(size));
  } while (n < 0 && errno == EINTR);
  if (n < 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
  return n;
}

class PlainSource : public ByteSource {
 public:
  PlainSource(std::string path, ScopedFd fd, int64_t file_bytes)
      : ByteSource(std::move(path)),
        fd_(std::move(fd)),
        file_bytes_(file_bytes) {}

  int64_t max_remaining() const override {
    return std::max<int64_t>(0, file_bytes_ - offset());
  }
  bool compressed() const override { return false; }

  absl::Status Skip(int64_t size, absl::string_view what) override {
    // Beyond the end lseek would succeed; let the reader find and report it.
    if (size > max_remaining()) return ByteSource::Skip(size, what);
    if (lseek(fd_.get(), size, SEEK_CUR) < 0) {
      return ErrnoStatus(errno, absl::StrCat("seek ", path()));
    }
    Advance(size);
    return absl::OkStatus();
  }

 protected:
  absl::StatusOr<int64_t> ReadSome(void* out, int64_t size) override {
    return ReadFd(fd_.get(), out, size, path());
  }

 private:
  const ScopedFd fd_;
  const int64_t file_bytes_;
};

class GzipSource : public ByteSource {
 public:
  static absl::StatusOr<std::unique_ptr<ByteSource>> Create(
      std::string path, ScopedFd fd, int64_t file_bytes) {
    std::unique_ptr<GzipSource> source(
        new GzipSource(std::move(path), std::move(fd), file_bytes));
    // 15: the largest window; 16: expect a gzip header and trailer.
    if (inflateInit2(&source->stream_, 15 + 16) != Z_OK) {
      return absl::ResourceExhaustedError(
          absl::StrCat(source->path(), ": no memory for the gzip decoder"));
    }
    return source;
  }

  ~GzipSource() override { inflateEnd(&stream_); }

  int64_t max_remaining() const override {
    if (file_bytes_ > std::numeric_limits<int64_t>::max() / kMaxDeflateRatio) {
      return std::numeric_limits<int64_t>::max() - offset();
    }
    return std::max<int64_t>(0, file_bytes_ * kMaxDeflateRatio - offset());
  }
  bool compressed() const override { return true; }

 protected:
  absl::StatusOr<int64_t> ReadSome(void* out, int64_t size) override {
    const uInt wanted = static_cast<uInt>(std::min<int64_t>(size, 1 << 30));
    stream_.next_out = static_cast<Bytef*>(out);
    stream_.avail_out = wanted;
    while (stream_.avail_out == wanted) {
      if (stream_.avail_in == 0) MR_RETURN_IF_ERROR(Refill());
      if (member_ended_) {
        if (stream_.avail_in == 0) return 0;
        MR_RETURN_IF_ERROR(StartNextMember());
      }
      if (stream_.avail_in == 0) {
        return ErrorAt(offset(),
                       absl::StrCat("truncated: the gzip data break off at "
                                    "byte ",
                                    consumed(), ", the end of the file"));
      }
      const int rc = inflate(&stream_, Z_NO_FLUSH);
      if (rc == Z_STREAM_END) {
        member_ended_ = true;
      } else if (rc != Z_OK && rc != Z_BUF_ERROR) {
        return ErrorAt(
            offset() + (wanted - stream_.avail_out),
            absl::StrCat("damaged gzip data near byte ", consumed(),
                         " of the file: ",
                         stream_.msg != nullptr ? stream_.msg : zError(rc)));
      }
    }
    return wanted - stream_.avail_out;
  }

 private:
  GzipSource(std::string path, ScopedFd fd, int64_t file_bytes)
      : ByteSource(std::move(path)),
        fd_(std::move(fd)),
        file_bytes_(file_bytes),
        input_(kGzipInputBytes) {}

  // Compressed bytes used up so far.
  int64_t consumed() const { return file_read_ - stream_.avail_in; }

  absl::Status Refill() {
    MR_ASSIGN_OR_RETURN(const int64_t n, ReadFd(fd_.get(), input_.data(),
                                                kGzipInputBytes, path()));
    file_read_ += n;
    stream_.next_in = input_.data();
    stream_.avail_in = static_cast<uInt>(n);
    return absl::OkStatus();
  }

  // RFC 1952 lets members follow each other; anything else is a stray tail.
  absl::Status StartNextMember() {
    if (*stream_.next_in != kGzipMagic[0]) {
      return ErrorAt(offset(), absl::StrCat("trailing bytes after the gzip "
                                            "data, from byte ",
                                            consumed(), " of the file"));
    }
    inflateReset(&stream_);
    member_ended_ = false;
    return absl::OkStatus();
  }

  const ScopedFd fd_;
  const int64_t file_bytes_;
  std::vector<Bytef> input_;
  int64_t file_read_ = 0;
  z_stream stream_ = {};
  bool member_ended_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ByteSource>> ByteSource::Open(std::string path) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer.
  ScopedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    return ErrnoStatus(errno, absl::StrCat("open ", path));
  }
  struct stat info;
  if (fstat(fd.get(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("stat ", path));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": expected a regular file, found ",
        S_ISDIR(info.st_mode) ? "a folder" : "a device, pipe or socket"));
  }
  unsigned char magic[sizeof(kGzipMagic)] = {};
  const ssize_t n = pread(fd.get(), magic, sizeof(magic), 0);
  if (n < 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
  if (n == sizeof(magic) && memcmp(magic, kGzipMagic, sizeof(magic)) == 0) {
    return GzipSource::Create(std::move(path), std::move(fd), info.st_size);
  }
  return std::make_unique<PlainSource>(std::move(path), std::move(fd),
                                       info.st_size);
}

absl::Status ByteSource::Read(void* out, int64_t size, absl::string_view what) {
  const int64_t begin = offset_;
  char* to = static_cast<char*>(out);
  while (size > 0) {
    MR_ASSIGN_OR_RETURN(const int64_t n, ReadSome(to, size));
    if (n == 0) {
      return ErrorAt(offset_, absl::StrCat("truncated: the data end here; "
                                           "expected ",
                                           what, " from byte ", begin, " to ",
                                           offset_ + size));
    }
    offset_ += n;
    to += n;
    size -= n;
  }
  return absl::OkStatus();
}

absl::Status ByteSource::Skip(int64_t size, absl::string_view what) {
  std::vector<char> scratch(std::min(size, kSkipBytes));
  while (size > 0) {
    const int64_t n = std::min(size, kSkipBytes);
    MR_RETURN_IF_ERROR(Read(scratch.data(), n, what));
    size -= n;
  }
  return absl::OkStatus();
}

absl::Status ByteSource::SkipToEnd() {
  std::vector<char> scratch(kSkipBytes);
  while (true) {
    MR_ASSIGN_OR_RETURN(const int64_t n, ReadSome(scratch.data(), kSkipBytes));
    if (n == 0) return absl::OkStatus();
    offset_ += n;
  }
}

absl::Status ByteSource::ExpectEnd(absl::string_view what) {
  char extra;
  MR_ASSIGN_OR_RETURN(const int64_t n, ReadSome(&extra, 1));
  if (n != 0) {
    return ErrorAt(offset_, absl::StrCat("trailing bytes; expected the end of "
                                         "the data after ",
                                         what));
  }
  return absl::OkStatus();
}

absl::Status ByteSource::ErrorAt(int64_t at, absl::string_view problem) const {
  return absl::DataLossError(absl::StrCat(
      path_, ": at byte ", at,
      compressed() ? " of the decompressed data: " : ": ", problem));
}

}  // namespace miniray::ml
