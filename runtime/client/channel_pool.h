// The channels of this process to actor processes: one for each address, as
// long as anybody uses it. Actors that share a process share a connection.

#ifndef MINIRAY_RUNTIME_CLIENT_CHANNEL_POOL_H_
#define MINIRAY_RUNTIME_CLIENT_CHANNEL_POOL_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/channel.h"
#include "runtime/rpc/channel.h"

namespace miniray {
namespace internal {

// Thread-safe.
class ChannelPool {
 public:
  using Make =
      std::function<std::shared_ptr<grpc::Channel>(const std::string& address)>;

  explicit ChannelPool(Make make = &MakeChannel) : make_(std::move(make)) {}

  std::shared_ptr<grpc::Channel> Get(const std::string& address);

 private:
  const Make make_;
  absl::Mutex mu_;
  std::map<std::string, std::weak_ptr<grpc::Channel>> channels_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_CLIENT_CHANNEL_POOL_H_
