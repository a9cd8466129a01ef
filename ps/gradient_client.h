// GradientClient: a worker's side of a parameter server that takes gradients.
//
//   GradientClient client(server, worker_id);
//   MR_ASSIGN_OR_RETURN(ReadOnly<NamedTensors> weights,
//                       client.Join(StateDict(model), BufferNames(model)));
//   for (...) {
//     load weights.value into the model; compute gradients;
//     MR_ASSIGN_OR_RETURN(PushReply reply, client.Push(gradients));
//     weights = reply.model.weights;
//   }
//   MR_RETURN_IF_ERROR(client.Leave());
//
// It numbers the gradients, so that one that is sent again, because the server
// was killed, is not used twice, and knows which version of the weights the
// worker has.

#ifndef MINIRAY_PS_GRADIENT_CLIENT_H_
#define MINIRAY_PS_GRADIENT_CLIENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/gradient_messages.h"
#include "ps/parameter_server.h"
#include "runtime/api/miniray.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ps {

// Not thread-safe. All calls block; while the server restarts they wait for it.
class GradientClient {
 public:
  // worker_id: this worker's number, from 0; no other worker of the server has
  // it.
  GradientClient(ActorHandle<ParameterServer> server, int worker_id);

  // The worker takes part from now on. Returns the weights to begin with: those
  // offered if the server has none, else the server's. Also after this process
  // has restarted.
  //
  // buffers: names of tensors that are no parameters (train/gradients.h).
  // Errors: of ParameterServer::JoinGradients.
  absl::StatusOr<ReadOnly<NamedTensors>> Join(
      const NamedTensors& weights, const std::vector<std::string>& buffers);

  // Sends gradients that were computed with the weights that this returned
  // last, and returns what to go on with. They must not change meanwhile.
  //
  // If the server has lost the versions since its last save, the gradient is
  // left out (`accepted` is false), and the reply has the weights that the
  // server has gone back to.
  //
  // Errors: FAILED_PRECONDITION, Join was not called. Of
  // ParameterServer::PushGradients; after DEADLINE_EXCEEDED call again with the
  // same gradients to go on waiting.
  absl::StatusOr<PushReply> Push(const ReadOnly<NamedTensors>& gradients);

  // Returns the server's newest weights; the next gradients are of these.
  absl::StatusOr<ReadOnly<NamedTensors>> Pull();

  // Others wait for this worker no more; it may join again.
  absl::Status Leave();

  int64_t version() const { return version_; }  // Of the worker's weights.

 private:
  CallOptions Retries() const { return {.max_retries = -1}; }

  const ActorHandle<ParameterServer> server_;
  const int worker_id_;
  int64_t version_ = 0;        // 0: it has not joined.
  int64_t last_sequence_ = 0;  // Of its gradients that the server answered.
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_GRADIENT_CLIENT_H_
