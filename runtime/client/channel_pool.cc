#include "runtime/client/channel_pool.h"

#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "runtime/base/background.h"

namespace miniray {
namespace internal {
namespace {

// Entries beyond which those that nobody uses are looked for.
constexpr size_t kManyChannels = 64;

// For the next handle of the same actor; internal.
constexpr absl::Duration kKeepIdle = absl::Seconds(30);

}  // namespace

ChannelPool::~ChannelPool() {
  // Perhaps inside a callback: see ActorStream.
  RunInBackground([kept = std::move(kept_)] {});
}

std::shared_ptr<grpc::Channel> ChannelPool::Get(const std::string& address,
                                                int connection) {
  absl::MutexLock lock(&mu_);
  const Key key(address, connection);
  std::weak_ptr<grpc::Channel>& entry = channels_[key];
  std::shared_ptr<grpc::Channel> channel = entry.lock();
  if (channel == nullptr) {
    channel = make_(address);
    entry = channel;
  }
  if (connection > 0) {
    if (kept_.empty()) TrimLater();
    kept_[key] = {channel, absl::Now()};
  }
  if (channels_.size() >= kManyChannels) {
    std::erase_if(channels_,
                  [](const auto& item) { return item.second.expired(); });
  }
  return channel;
}

void ChannelPool::TrimLater() {
  // It may be the last to hold a channel: see ActorStream.
  RunInBackground(
      [weak = weak_from_this()] {
        if (auto self = weak.lock()) self->Trim();
      },
      kKeepIdle);
}

void ChannelPool::Trim() {
  std::vector<std::shared_ptr<grpc::Channel>> dropped;  // Die unlocked.
  absl::MutexLock lock(&mu_);
  const absl::Time limit = absl::Now() - kKeepIdle;
  for (auto it = kept_.begin(); it != kept_.end();) {
    if (it->second.last_use > limit) {
      ++it;
      continue;
    }
    dropped.push_back(std::move(it->second.channel));
    it = kept_.erase(it);
  }
  if (!kept_.empty()) TrimLater();
}

}  // namespace internal
}  // namespace miniray
