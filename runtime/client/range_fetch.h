// Fetches a large object in ranges, over several connections side by side, into
// one piece of memory whose pages are warm.

#ifndef MINIRAY_RUNTIME_CLIENT_RANGE_FETCH_H_
#define MINIRAY_RUNTIME_CLIENT_RANGE_FETCH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/time/time.h"
#include "proto/object.pb.h"
#include "runtime/client/channel_pool.h"

namespace miniray {
namespace internal {

// From this size on an object is fetched in ranges; below it, what a second
// connection spares is less than what it takes to begin with it.
inline constexpr int64_t kMinRangedBytes = int64_t{4} << 20;

// One object on its way. Not thread-safe.
class RangeFetch {
 public:
  struct Source {
    std::string address;  // HOST:PORT
    const char* method;   // "/miniray.v1.SERVICE/FetchObject"
    std::string token;
    ChannelPool* channels;
  };

  // request: which object, of whom. size: its bytes; REQUIRES: not negative.
  // Errors: RESOURCE_EXHAUSTED, no memory.
  static absl::StatusOr<std::unique_ptr<RangeFetch>> Begin(
      v1::FetchObjectRequest request, int64_t size);

  // Fetches what has not come yet; blocks. May be tried again, from another
  // address too: what has come stays. Errors: the source's, DATA_LOSS, it has
  // another size there.
  absl::Status Run(const Source& source, absl::Time deadline);

  int64_t filled() const;

  // The object; the memory is the caller's alone. REQUIRES: Run was OK.
  absl::Cord Take() &&;

 private:
  struct Range {
    int64_t filled = 0;  // Offset up to which it has come.
    int64_t end = 0;
  };

  RangeFetch(v1::FetchObjectRequest request, std::shared_ptr<char> memory,
             int64_t size);

  absl::Status RunRange(const Source& source, int connection,
                        absl::Time deadline, Range* range) const;

  const v1::FetchObjectRequest request_;
  const std::shared_ptr<char> memory_;
  const int64_t size_;
  std::vector<Range> ranges_;  // Each is one thread's while Run runs.
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_CLIENT_RANGE_FETCH_H_
