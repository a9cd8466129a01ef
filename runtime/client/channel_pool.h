// The channels of this process to actor processes: one for each address, as
// long as anybody uses it. Actors that share a process share a connection. What
// is large has more connections beside it.

#ifndef MINIRAY_RUNTIME_CLIENT_CHANNEL_POOL_H_
#define MINIRAY_RUNTIME_CLIENT_CHANNEL_POOL_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "runtime/rpc/channel.h"

namespace miniray {
namespace internal {

// Thread-safe. Held by shared_ptr.
class ChannelPool : public std::enable_shared_from_this<ChannelPool> {
 public:
  using Make =
      std::function<std::shared_ptr<grpc::Channel>(const std::string& address)>;

  explicit ChannelPool(Make make = &MakeChannel) : make_(std::move(make)) {}
  ~ChannelPool();

  // connection: 0, the one for all that is small; further ones stay for a while
  // when nobody uses them, so that who comes often need not connect anew.
  std::shared_ptr<grpc::Channel> Get(const std::string& address,
                                     int connection = 0)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Held though nobody may use it.
  struct Kept {
    std::shared_ptr<grpc::Channel> channel;
    absl::Time last_use;
  };
  using Key = std::pair<std::string, int>;

  void Trim() ABSL_LOCKS_EXCLUDED(mu_);
  void TrimLater() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Make make_;
  absl::Mutex mu_;
  std::map<Key, std::weak_ptr<grpc::Channel>> channels_ ABSL_GUARDED_BY(mu_);
  std::map<Key, Kept> kept_ ABSL_GUARDED_BY(mu_);
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_CLIENT_CHANNEL_POOL_H_
