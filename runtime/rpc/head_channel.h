// The channel of a worker daemon to its head.

#ifndef MINIRAY_RUNTIME_RPC_HEAD_CHANNEL_H_
#define MINIRAY_RUNTIME_RPC_HEAD_CHANNEL_H_

#include <memory>
#include <string>

#include "grpcpp/channel.h"

namespace miniray {

// As MakeDialledChannel, without gRPC's probes of the bandwidth: one would
// follow each renewal of a lease, and cost the head as much as that. A message
// of more than 64 KiB takes one round trip longer.
std::shared_ptr<grpc::Channel> MakeHeadChannel(const std::string& address);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_RPC_HEAD_CHANNEL_H_
