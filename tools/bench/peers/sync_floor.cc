#include "tools/bench/peers/sync_floor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/peers/memory.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace miniray::bench {
namespace {

constexpr int64_t kBlock = 1 << 16;  // Floats.

// out[i] = mean of inputs[.][i]; past the caches where the machine can, since
// nobody reads it from there. The addresses are those of pages.
void Average(const std::vector<float*>& inputs, int64_t begin, int64_t end,
             float* out) {
  const float scale = 1.0F / static_cast<float>(inputs.size());
  int64_t i = begin;
#ifdef __SSE2__
  const __m128 factor = _mm_set1_ps(scale);
  for (; i + 16 <= end; i += 16) {
    __m128 sum[4] = {};
    for (const float* input : inputs) {
      for (int j = 0; j < 4; ++j) {
        sum[j] = _mm_add_ps(sum[j], _mm_load_ps(input + i + 4 * j));
      }
    }
    for (int j = 0; j < 4; ++j) {
      _mm_stream_ps(out + i + 4 * j, _mm_mul_ps(sum[j], factor));
    }
  }
  _mm_sfence();
#endif
  for (; i < end; ++i) {
    float sum = 0;
    for (const float* input : inputs) sum += input[i];
    out[i] = sum * scale;
  }
}

absl::StatusOr<float*> MapShared(int64_t bytes) {
  void* const memory =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return ErrnoStatus(errno, "map shared memory");
  return static_cast<float*>(memory);
}

// Lives as long as its process; so do the workers.
class Averager {
 public:
  absl::Status Start(int workers, int64_t bytes) {
    count_ = bytes / static_cast<int64_t>(sizeof(float));
    MR_ASSIGN_OR_RETURN(result_, MapShared(bytes));
    for (int w = 0; w < workers; ++w) {
      MR_ASSIGN_OR_RETURN(float* const input, MapShared(bytes));
      for (int64_t i = 0; i < count_; ++i) {
        input[i] = PatternAt(i) + static_cast<float>(w);
      }
      inputs_.push_back(input);
    }
    int done[2];
    if (pipe2(done, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
    done_ = ScopedFd(done[0]);
    const ScopedFd tell(done[1]);
    for (int w = 0; w < workers; ++w) {
      int go[2];
      if (pipe2(go, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
      const ScopedFd their_go(go[0]);
      go_.emplace_back(go[1]);
      const pid_t pid = fork();
      if (pid < 0) return ErrnoStatus(errno, "fork");
      if (pid == 0) Work(their_go.get(), tell.get());
    }
    return absl::OkStatus();
  }

  absl::StatusOr<double> Run() {
    const absl::Time start = absl::Now();
    // In blocks, each half by one thread.
    const int64_t half = count_ / 2 / kBlock * kBlock;
    std::thread other([&] { AverageBlocks(half, count_); });
    AverageBlocks(0, half);
    other.join();
    for (const ScopedFd& go : go_) {
      if (write(go.get(), "g", 1) != 1) return ErrnoStatus(errno, "a worker");
    }
    bool good = true;
    for (size_t w = 0; w < go_.size(); ++w) {
      char answer = 0;
      if (read(done_.get(), &answer, 1) != 1) {
        return absl::UnavailableError("a worker has ended");
      }
      good = good && answer == 'y';
    }
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    const float offset = static_cast<float>(inputs_.size() - 1) / 2;
    for (int64_t i = 0; i < count_; ++i) {
      good = good && result_[i] == PatternAt(i) + offset;
    }
    if (!good) return absl::InternalError("a wrong average");
    return seconds;
  }

 private:
  void AverageBlocks(int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kBlock) {
      Average(inputs_, i, std::min(end, i + kBlock), result_);
    }
  }

  // A worker; ends with the process that forked it.
  [[noreturn]] void Work(int go, int done) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    go_.clear();
    // Touched: a module's memory is warm.
    std::vector<float> own(static_cast<size_t>(count_), -1.0F);
    char unused;
    while (read(go, &unused, 1) == 1) {
      std::memcpy(own.data(), result_, own.size() * sizeof(float));
      const char answer = own.back() == result_[count_ - 1] ? 'y' : 'n';
      if (write(done, &answer, 1) != 1) break;
    }
    _exit(0);
  }

  int64_t count_ = 0;
  float* result_ = nullptr;
  std::vector<float*> inputs_;
  std::vector<ScopedFd> go_;
  ScopedFd done_;
};

}  // namespace

int ServeSyncFloor() {
  Averager averager;
  const int code = ServeCommands(
      [&](const std::string& command) -> absl::StatusOr<std::string> {
        std::istringstream words(command);
        std::string name;
        int workers = 0;
        int64_t bytes = 0;
        words >> name >> workers >> bytes;
        if (name == "start") {
          MR_RETURN_IF_ERROR(averager.Start(workers, bytes));
          return "0";
        }
        MR_ASSIGN_OR_RETURN(const double seconds, averager.Run());
        return absl::StrCat(seconds);
      });
  return code;
}

absl::StatusOr<std::unique_ptr<SyncFloor>> SyncFloor::Start(int workers,
                                                            int64_t bytes) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Child> child,
                      Child::Start(kSyncFloorRole, {}));
  MR_RETURN_IF_ERROR(
      child->Ask(absl::StrCat("start ", workers, " ", bytes)).status());
  return std::unique_ptr<SyncFloor>(new SyncFloor(std::move(child)));
}

}  // namespace miniray::bench
