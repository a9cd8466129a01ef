// A worker that pushes its gradients: the example of ps/README.md.

#ifndef MINIRAY_TESTS_TRAIN_GRADIENT_WORKER_H_
#define MINIRAY_TESTS_TRAIN_GRADIENT_WORKER_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/gradient_client.h"
#include "ps/parameter_server.h"
#include "runtime/base/status_macros.h"
#include "torch/torch.h"
#include "train/gradients.h"
#include "train/state_dict.h"

namespace miniray::train {

// README begins.
// Trains with an optimizer on the server, in step with the other workers only
// as far as the server says.
inline absl::Status TrainWith(
    const ActorHandle<ps::ParameterServer>& server, int worker_id,
    torch::nn::Sequential& model, int steps,
    const std::function<torch::Tensor(int step)>& loss) {
  ps::GradientClient client(server, worker_id);
  MR_ASSIGN_OR_RETURN(ReadOnly<NamedTensors> weights,
                      client.Join(StateDict(*model), UntrainedNames(*model)));
  for (int step = 0; step < steps; ++step) {
    MR_RETURN_IF_ERROR(LoadStateDict(*model, weights.value));
    model->zero_grad();
    loss(step).backward();
    MR_ASSIGN_OR_RETURN(ps::PushReply reply, client.Push(Gradients(*model)));
    weights = reply.model.weights;
  }
  MR_RETURN_IF_ERROR(LoadStateDict(*model, weights.value));
  return client.Leave();
}
// README ends.

}  // namespace miniray::train

#endif  // MINIRAY_TESTS_TRAIN_GRADIENT_WORKER_H_
