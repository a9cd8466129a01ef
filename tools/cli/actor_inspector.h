// How actors fare, as their own processes tell: many asked at once.

#ifndef MINIRAY_TOOLS_CLI_ACTOR_INSPECTOR_H_
#define MINIRAY_TOOLS_CLI_ACTOR_INSPECTOR_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "proto/actor.pb.h"
#include "proto/cluster.pb.h"

namespace miniray::cli {

// Not thread-safe.
class ActorInspector {
 public:
  explicit ActorInspector(std::string token) : token_(std::move(token)) {}

  // Asks those of `actors` that are alive, and returns what came in time, by
  // actor id. Who cannot be reached from here, as actors that listen on the
  // loopback of another machine, is left out.
  std::map<std::string, v1::InspectResponse> Ask(
      const std::vector<v1::ActorInfo>& actors, absl::Duration timeout);

 private:
  const std::string token_;
  // Of the last time, by address.
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_;
};

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_ACTOR_INSPECTOR_H_
