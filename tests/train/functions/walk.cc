#include "tests/train/functions/walk.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/files.h"

namespace miniray::train {
namespace {

constexpr absl::Duration kTurn = absl::Milliseconds(1);

struct Fault {
  int rank = -1;
  int epoch = -1;
  std::string where;
  std::string how;
  bool always = false;
};

Fault ReadFault(const std::string& file) {
  const absl::StatusOr<std::string> text = ReadFile(file);
  if (!text.ok()) return {};
  const std::vector<std::string> words = absl::StrSplit(*text, ' ');
  Fault fault = {.where = words.at(2),
                 .how = words.at(3),
                 .always = words.size() > 4 && words[4] == "always"};
  if (!absl::SimpleAtoi(words[0], &fault.rank) ||
      !absl::SimpleAtoi(words[1], &fault.epoch)) {
    return {};
  }
  return fault;
}

// Returns whether the function shall leave.
bool Fail(const Context& ctx, const std::string& how) {
  if (how == "kill") kill(getpid(), SIGKILL);
  if (how == "stop") kill(getpid(), SIGSTOP);
  if (how == "leave") return true;
  while (how == "spin" || how == "stop") absl::SleepFor(kTurn);
  while (how == "wait") {
    absl::SleepFor(kTurn);
    if (ctx.aborted()) throw PeerFailure("told to stop");
  }
  throw std::runtime_error("loss went up");
}

bool MaybeFail(Context& ctx, int epoch, const std::string& where) {
  const std::string file = ctx.config<std::string>("fault_file", "");
  const Fault fault = ReadFault(file);
  if (fault.rank != ctx.rank() || fault.epoch != epoch ||
      fault.where != where) {
    return false;
  }
  if (!fault.always) std::remove(file.c_str());
  ctx.SetStage("fails");
  return Fail(ctx, fault.how);
}

// The rank that the file names is killed once it waits in the barrier; the
// others come to it only then.
std::thread MaybeDieInBarrier(Context& ctx, int epoch) {
  const std::string file = ctx.config<std::string>("fault_file", "");
  const std::string dying = file + ".dying";
  const Fault fault = ReadFault(file);
  if (fault.epoch != epoch || fault.where != "barrier") return std::thread();
  if (fault.rank != ctx.rank()) {
    int pid = 0;
    while (!absl::SimpleAtoi(ReadFile(dying).value_or(""), &pid)) {
      absl::SleepFor(kTurn);
    }
    while (kill(pid, 0) == 0) absl::SleepFor(kTurn);
    std::remove(dying.c_str());
    return std::thread();
  }
  std::remove(file.c_str());
  return std::thread([&ctx, epoch, dying] {
    while (ctx.Stage() != absl::StrCat("waits in report ", epoch)) {
      absl::SleepFor(kTurn);
    }
    if (!WriteFileAtomically(dying, absl::StrCat(getpid())).ok()) abort();
    kill(getpid(), SIGKILL);
  });
}

}  // namespace

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
