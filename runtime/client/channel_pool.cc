#include "runtime/client/channel_pool.h"

namespace miniray {
namespace internal {
namespace {

// Entries beyond which those that nobody uses are looked for.
constexpr size_t kManyChannels = 64;

}  // namespace

std::shared_ptr<grpc::Channel> ChannelPool::Get(const std::string& address) {
  absl::MutexLock lock(&mu_);
  std::weak_ptr<grpc::Channel>& entry = channels_[address];
  std::shared_ptr<grpc::Channel> channel = entry.lock();
  if (channel != nullptr) return channel;
  channel = make_(address);
  entry = channel;
  if (channels_.size() >= kManyChannels) {
    std::erase_if(channels_,
                  [](const auto& item) { return item.second.expired(); });
  }
  return channel;
}

}  // namespace internal
}  // namespace miniray
