#include "tools/bench/peers/torch_start.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "ATen/Parallel.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/sum.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

namespace miniray::bench {

double TorchOperation() {
  const at::Tensor ones = at::ones({16, 16});
  return at::mm(ones, ones).sum().item<double>();
}

int ServeTorchProgram() {
  return ServeCommands([](const std::string&) -> absl::StatusOr<std::string> {
    return absl::StrCat(TorchOperation());
  });
}

int ServeTorchTemplate() {
  // A fork of a process that ever computed with several threads hangs.
  at::set_num_threads(1);
  TorchOperation();
  return ServeCommands([](const std::string&) -> absl::StatusOr<std::string> {
    int done[2];
    if (pipe(done) != 0) return ErrnoStatus(errno, "pipe");
    const ScopedFd from(done[0]);
    ScopedFd to(done[1]);
    const absl::Time start = absl::Now();
    const pid_t child = fork();
    if (child < 0) return ErrnoStatus(errno, "fork");
    if (child == 0) {
      const double sum = TorchOperation();
      _exit(write(to.get(), &sum, sizeof(sum)) == sizeof(sum) ? 0 : 1);
    }
    to.reset();
    double sum = 0;
    const bool good = read(from.get(), &sum, sizeof(sum)) == sizeof(sum);
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    waitpid(child, nullptr, 0);
    if (!good) return absl::InternalError("the fork has ended");
    return absl::StrCat(seconds);
  });
}

absl::StatusOr<double> StartTorchProgram() {
  const absl::Time start = absl::Now();
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Child> child,
                      Child::Start(kTorchProgramRole, {}));
  MR_RETURN_IF_ERROR(child->Ask("work").status());
  return absl::ToDoubleSeconds(absl::Now() - start);
}

absl::StatusOr<std::unique_ptr<TorchTemplate>> TorchTemplate::Start() {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Child> child,
                      Child::Start(kTorchTemplateRole, {}));
  return std::unique_ptr<TorchTemplate>(new TorchTemplate(std::move(child)));
}

}  // namespace miniray::bench
