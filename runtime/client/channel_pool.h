// The channels of this process to actor processes: one for each address, as
// long as anybody uses it. Actors that share a process share a connection.

#ifndef MINIRAY_RUNTIME_CLIENT_CHANNEL_POOL_H_
#define MINIRAY_RUNTIME_CLIENT_CHANNEL_POOL_H_

#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/channel.h"

namespace miniray {
namespace internal {

// Thread-safe.
class ChannelPool {
 public:
  std::shared_ptr<grpc::Channel> Get(const std::string& address);

 private:
  absl::Mutex mu_;
  std::map<std::string, std::weak_ptr<grpc::Channel>> channels_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_CLIENT_CHANNEL_POOL_H_
