#include "runtime/rpc/redialler.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>

#include "absl/time/clock.h"
#include "runtime/base/steady_time.h"
#include "runtime/rpc/channel.h"

namespace miniray {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
// Between two looks at what became of a try; internal.
constexpr absl::Duration kLook = absl::Milliseconds(50);

}  // namespace

Redialler::Redialler(grpc::Channel* channel)
    : channel_(channel), backoff_(kFirstPause, kMaxRedialPause) {}

bool Redialler::AwaitConnected(absl::Time deadline) {
  while (true) {
    const absl::Time look_at = std::min(deadline, absl::Now() + Try());
    if (channel_->WaitForConnected(absl::ToChronoTime(look_at))) {
      absl::MutexLock lock(&mu_);
      backoff_.Reset();
      next_ = absl::InfinitePast();
      return true;
    }
    if (absl::Now() >= deadline) return false;
  }
}

absl::Duration Redialler::Try() {
  const bool failed = channel_->GetState(/*try_to_connect=*/false) ==
                      GRPC_CHANNEL_TRANSIENT_FAILURE;
  absl::MutexLock lock(&mu_);
  const absl::Time now = SteadyNow();
  if (!failed || now < next_) return std::max(next_ - now, kLook);
  // The pause begins once it has failed, which is mostly at once.
  const bool pausing = next_ != absl::InfinitePast();
  next_ = now + backoff_.Next();
  if (pausing) grpc::experimental::ChannelResetConnectionBackoff(channel_);
  return next_ - now;
}

void Redialler::SetMaxPause(absl::Duration pause) {
  absl::MutexLock lock(&mu_);
  backoff_.SetMax(std::min(pause, kMaxRedialPause));
}

}  // namespace miniray
