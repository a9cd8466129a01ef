// GradientClient: a worker's side of a parameter server that takes gradients.
//
//   GradientClient client(server, worker_id);
//   MR_ASSIGN_OR_RETURN(ReadOnly<NamedTensors> weights,
//                       client.Join(StateDict(model), UntrainedNames(model)));
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
//
// Where the server wants them compressed (ServerOptions::from_workers), what is
// lost of one gradient goes with the next (gradient_encoder.h).
//
// With several shards it cuts gradients into parts, sends each to its shard at
// once, and puts the replies together. Shards agree on nothing between them: if
// they are at different versions, for a worker died in the middle of a push, or
// one was dropped by one shard and not by another, then in rounds a push goes
// to those that are furthest behind alone, until all are level.

#ifndef MINIRAY_PS_GRADIENT_CLIENT_H_
#define MINIRAY_PS_GRADIENT_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/gradient_encoder.h"
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
  // Errors: of ParameterServer::JoinGradients. INVALID_ARGUMENT, the model has
  // fewer parts than the server has shards. UNAVAILABLE and others, beginning
  // with "shard 1 of 3": it is dead for good.
  absl::StatusOr<ReadOnly<NamedTensors>> Join(
      const NamedTensors& weights, const std::vector<std::string>& buffers);

  // Sends gradients that were computed with the weights that this returned
  // last, and returns what to go on with. They must not change meanwhile.
  //
  // If the server has lost the versions since its last save, the gradient is
  // left out (`accepted` is false), and the reply has the weights that the
  // server has gone back to. Of several shards: `accepted` if all parts went
  // into a step, `repeated` if one had been taken before; the largest staleness
  // and the smallest scale.
  //
  // Errors: FAILED_PRECONDITION, Join was not called. Of
  // ParameterServer::PushGradients; after DEADLINE_EXCEEDED call again with the
  // same gradients to go on waiting: shards that have taken their part are not
  // sent it again, and where gradients are compressed, the same bytes are.
  absl::StatusOr<PushReply> Push(const ReadOnly<NamedTensors>& gradients);

  // Returns the server's newest weights; the next gradients are of these.
  absl::StatusOr<ReadOnly<NamedTensors>> Pull();

  // Others wait for this worker no more; it may join again.
  absl::Status Leave();

  // Of the worker's weights; the oldest of several shards.
  int64_t version() const;

 private:
  // One of several, or the server itself.
  struct Shard {
    AnyActorHandle actor;
    VersionedWeights held;  // Its part of the worker's weights; 0: none.
    std::vector<TensorPart> places;
    int64_t answered = 0;  // The gradient that it has answered last.
  };

  bool IsSharded() const { return shards_.size() > 1; }
  absl::Status FindShards();
  // Joins all shards with their parts of the weights.
  absl::StatusOr<std::vector<JoinReply>> JoinAll(
      const NamedTensors& weights, const std::vector<std::string>& buffers);
  // What all shards say belongs together.
  void Adopt(size_t shard, VersionedWeights model, const PushTerms& terms);
  absl::Status AdoptForm(const std::vector<PushTerms>& terms);
  // A gradient that has reached some shards before this process's time will not
  // reach the others.
  absl::Status GiveUpTornGradient(const std::vector<JoinReply>& replies);
  // This gradient counts as one that is left out, for these shards' clocks.
  absl::Status LeaveOut(int64_t sequence, const std::vector<size_t>& shards);
  // What was sent and not answered by all is not sent again: the next gradient
  // has a number of its own.
  absl::Status GiveUpOpenPush();
  // The parts of what is held, put together; those of the model's tensors that
  // are not cut are not copied.
  absl::StatusOr<ReadOnly<NamedTensors>> Whole() const;
  // Those that wait for this gradient.
  std::vector<size_t> TargetsOf(int64_t sequence) const;
  absl::Status PullShard(size_t shard);
  absl::Status Named(size_t shard, const absl::Status& error) const;

  const ActorHandle<ParameterServer> server_;
  const int worker_id_;
  std::vector<Shard> shards_;  // Empty: not asked for yet.
  int64_t last_sequence_ = 0;  // Of its gradients that were answered by all.
  bool push_is_open_ = false;  // The next one's number has been sent.
  bool in_rounds_ = false;
  GradientEncoder encoder_;
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_GRADIENT_CLIENT_H_
