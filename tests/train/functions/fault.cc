#include "tests/train/functions/fault.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
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

}  // namespace

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

std::thread MaybeDieInBarrier(Context& ctx, int epoch) {
  const std::string file = ctx.config<std::string>("fault_file", "");
  const std::string dying = file + ".dying";
  const Fault fault = ReadFault(file);
  if (fault.epoch != epoch || fault.where != "barrier") return std::thread();
  if (fault.rank != ctx.rank()) {
    int pid = 0;
    while (!absl::SimpleAtoi(ReadFile(dying).value_or(""), &pid)) {
      // Another rank has seen it die.
      if (!ReadFile(file).ok()) return std::thread();
      absl::SleepFor(kTurn);
    }
    while (kill(pid, 0) == 0) absl::SleepFor(kTurn);
    std::remove(file.c_str());
    std::remove(dying.c_str());
    return std::thread();
  }
  // The file stays until the others have read it: a rank that comes late must
  // not complete the barrier before this one has been seen to wait in it.
  return std::thread([&ctx, epoch, dying] {
    while (ctx.Stage() != absl::StrCat("waits in report ", epoch)) {
      absl::SleepFor(kTurn);
    }
    if (!WriteFileAtomically(dying, absl::StrCat(getpid())).ok()) abort();
    kill(getpid(), SIGKILL);
  });
}

}  // namespace miniray::train
