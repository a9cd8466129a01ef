#include "tests/train/functions/walk.h"

#include <unistd.h>

#include <stdexcept>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/files.h"
#include "tests/train/functions/fault.h"

namespace miniray::train {

double WalkedTo(int rank, int epochs) {
  double x = 0;
  for (int i = 0; i < epochs; ++i) x += (4 + 4 * rank - x) / 2;
  return x;
}

void Walk(Context& ctx) {
  double x = 0;
  int start = 0;
  if (const CheckpointFiles* files = ctx.GetCheckpoint()) {
    if (!absl::SimpleAtod(files->at("x"), &x) ||
        !absl::SimpleAtoi(files->at("epochs"), &start)) {
      throw std::runtime_error("no good checkpoint");
    }
  }
  const std::string folder = ctx.config<std::string>("folder", "");
  if (!folder.empty() && !WriteFileAtomically(folder + "/begun", "").ok()) {
    throw std::runtime_error("no folder");
  }
  const int save_every = ctx.config<int>("save_every", 1);
  for (int epoch = start; epoch < ctx.config<int>("epochs"); ++epoch) {
    ctx.SetStage("walks");
    absl::SleepFor(absl::Seconds(ctx.config<double>("epoch_seconds", 0)));
    if (MaybeFail(ctx, epoch, "step")) return;
    x += (4 + 4 * ctx.rank() - x) / 2;
    CheckpointFiles files;
    if ((epoch + 1) % save_every == 0 && ctx.checkpoint_is_due()) {
      files = {{"x", absl::StrFormat("%.17g", x)},
               {"epochs", absl::StrCat(epoch + 1)}};
      const auto padding = ctx.config<size_t>("padding", 0);
      if (padding > 0) files["padding"] = std::string(padding, 'p');
    }
    if (MaybeFail(ctx, epoch, "save")) return;
    std::thread dying = MaybeDieInBarrier(ctx, epoch);
    ctx.Report({{"x", x},
                {"epoch", epoch},
                {"rank", ctx.rank()},
                {"pid", getpid()},
                {"generation", ctx.generation()}},
               std::move(files));
    if (dying.joinable()) dying.join();
  }
}
MINIRAY_TRAIN_FUNC(Walk);

}  // namespace miniray::train
