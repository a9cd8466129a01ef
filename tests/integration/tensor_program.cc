// A driver for tests: two actors and itself send each other tensors of 4 MB,
// and a node's store holds one, until somebody is killed. Prints "ready PID
// PID", then a line for each round.

#include <unistd.h>

#include <cstdio>
#include <string>

#include "ATen/ops/full.h"
#include "runtime/api/miniray.h"
#include "runtime/tensor/tensor_codec.h"

namespace {

constexpr int64_t kElements = 1 << 20;

class Mixer {
 public:
  int64_t Pid() const { return getpid(); }
  at::Tensor Add(const at::Tensor& tensor, double value) {
    return tensor.add(value);
  }
  double First(const miniray::ReadOnly<at::Tensor>& tensor) const {
    return tensor.value[0].item<double>();
  }
};
MINIRAY_ACTOR(Mixer, Constructor<>, &Mixer::Pid, &Mixer::Add, &Mixer::First);

int Fail(const absl::Status& status) {
  printf("ended: %s\n", status.ToString().c_str());
  fflush(stdout);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  auto cluster = miniray::Cluster::Connect();
  if (!cluster.ok()) return Fail(cluster.status());
  auto first = cluster->CreateActor<Mixer>({.resources = {.cpu = 0}});
  auto second = cluster->CreateActor<Mixer>({.resources = {.cpu = 0}});
  if (!first.ok() || !second.ok()) return 2;
  const auto a = first->Call<&Mixer::Pid>().Get();
  const auto b = second->Call<&Mixer::Pid>().Get();
  if (!a.ok()) return Fail(a.status());
  if (!b.ok()) return Fail(b.status());
  printf("ready %d %d\n", static_cast<int>(*a), static_cast<int>(*b));
  fflush(stdout);
  at::Tensor tensor = at::full({kElements}, 0, at::kFloat);
  const auto put = cluster->Put(tensor);
  for (int round = 0;; ++round) {
    auto passed = first->Call<&Mixer::Add>(tensor, 1.0);
    auto back = second->Call<&Mixer::Add>(passed, 1.0).Get();
    if (!back.ok()) return Fail(back.status());
    tensor = *std::move(back);
    const auto seen =
        second->Call<&Mixer::First>(miniray::ReadOnly<at::Tensor>{tensor})
            .Get();
    if (!seen.ok()) return Fail(seen.status());
    const auto kept = put.Get();
    if (!kept.ok()) return Fail(kept.status());
    if (*seen != 2 * (round + 1)) return 3;
    printf("%d\n", round);
    fflush(stdout);
  }
}
