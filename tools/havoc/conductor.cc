#include "tools/havoc/conductor.h"

#include <signal.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "tools/havoc/process.h"

namespace miniray::havoc {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(5);
constexpr char kTemplateName[] = "miniray-tmpl";

std::string LinkKey(int a, int b) { return absl::StrCat("link ", a, "-", b); }

}  // namespace

Conductor::Conductor(Options options, HavocCluster* cluster, Network* network,
                     const Workload* workload)
    : options_(std::move(options)),
      cluster_(cluster),
      network_(network),
      workload_(workload) {}

absl::Status Conductor::Run(const std::vector<Fault>& plan,
                            absl::Duration length) {
  start_ = absl::Now();
  size_t next = 0;
  absl::Status status;
  while (status.ok() && absl::Now() < start_ + length) {
    if (options_.interrupted()) {
      status = absl::CancelledError("interrupted");
      break;
    }
    status = UndoDue(absl::Now());
    if (status.ok()) status = CheckProcesses();
    while (status.ok() && next < plan.size() &&
           absl::Now() >= start_ + plan[next].at) {
      status = Begin(plan[next++]);
    }
    absl::SleepFor(kTick);
  }
  const absl::Status healed = UndoAll();
  return status.ok() ? healed : status;
}

absl::Status Conductor::Begin(const Fault& fault) {
  const int node = fault.target;
  const std::string node_key = absl::StrCat("node ", node);
  auto skip = [&](const char* why) {
    ++skipped_;
    Log(absl::StrCat(Describe(fault), ": left out, ", why));
    return absl::OkStatus();
  };
  bool happened = true;
  switch (fault.kind) {
    case FaultKind::kKillActor:
    case FaultKind::kPauseActor: {
      const pid_t pid = workload_->ActorPid(fault.target);
      if (pid <= 0 || !HasMark(pid, options_.mark)) {
        return skip("its process is not known");
      }
      if (fault.kind == FaultKind::kKillActor) {
        happened = kill(pid, SIGKILL) == 0;
      } else {
        happened = Pause(absl::StrCat("actor ", fault.target), pid, fault);
      }
      break;
    }
    case FaultKind::kKillDaemon:
      if (undos_.count(node_key) > 0) return skip("it is not up");
      cluster_->KillNode(node);
      Later(node_key, fault, absl::StrCat("daemon ", node, " starts again"),
            [this, node] { return cluster_->StartNode(node); });
      break;
    case FaultKind::kPauseDaemon:
      happened = Pause(node_key, cluster_->node_pid(node), fault);
      break;
    case FaultKind::kKillTemplate: {
      happened = false;
      for (const pid_t pid : MarkedProcesses(options_.mark)) {
        if (ParentOf(pid) == cluster_->node_pid(node) &&
            ShortName(pid) == kTemplateName) {
          happened = kill(pid, SIGKILL) == 0;
        }
      }
      if (!happened) return skip("there is none");
      break;
    }
    case FaultKind::kKillHead:
      if (undos_.count("head") > 0) return skip("it is not up");
      cluster_->KillHead();
      Later("head", fault, "head starts again",
            [this] { return cluster_->StartHead(); });
      break;
    case FaultKind::kPauseHead:
      happened = Pause("head", cluster_->head_pid(), fault);
      break;
    case FaultKind::kCutHeadNode:
    case FaultKind::kCutDriverNode: {
      const int a =
          fault.kind == FaultKind::kCutHeadNode ? kHeadMachine : kDriverMachine;
      const int b = kFirstNodeMachine + node;
      if (undos_.count(LinkKey(a, b)) > 0) return skip("it is cut already");
      MR_RETURN_IF_ERROR(network_->Cut(a, b));
      Later(LinkKey(a, b), fault,
            absl::StrCat("the link of ", a == kHeadMachine ? "head" : "driver",
                         " and node ", node, " is healed"),
            [this, a, b] { return network_->Heal(a, b); });
      break;
    }
  }
  if (!happened) return skip("it is not up");
  ++done_[Name(fault.kind)];
  Log(Describe(fault));
  return absl::OkStatus();
}

bool Conductor::Pause(const std::string& what, pid_t pid, const Fault& fault) {
  if (undos_.count(what) > 0 || pid <= 0 || kill(pid, SIGSTOP) != 0) {
    return false;
  }
  Later(what, fault, what + " goes on", [this, pid] {
    // By now the number may be another process's.
    if (HasMark(pid, options_.mark)) kill(pid, SIGCONT);
    return absl::OkStatus();
  });
  return true;
}

void Conductor::Later(const std::string& key, const Fault& fault,
                      std::string what, std::function<absl::Status()> run) {
  undos_[key] = {absl::Now() + fault.duration, std::move(run), std::move(what)};
}

absl::Status Conductor::UndoDue(absl::Time now) {
  for (auto it = undos_.begin(); it != undos_.end();) {
    if (now < it->second.at) {
      ++it;
      continue;
    }
    Log("  " + it->second.what);
    MR_RETURN_IF_ERROR(it->second.run());
    it = undos_.erase(it);
  }
  return absl::OkStatus();
}

absl::Status Conductor::UndoAll() {
  absl::Status first;
  Log("everything is healed");
  while (!undos_.empty()) {
    auto undo = undos_.begin();
    const absl::Status status = undo->second.run();
    if (first.ok()) first = status;
    undos_.erase(undo);
  }
  return first;
}

absl::Status Conductor::CheckProcesses() {
  if (undos_.count("head") == 0 && !cluster_->HeadRuns()) {
    return absl::InternalError(
        absl::StrCat("the head ended by itself; see ", cluster_->HeadLog()));
  }
  for (int node = 0; node < cluster_->num_nodes(); ++node) {
    if (undos_.count(absl::StrCat("node ", node)) > 0 ||
        cluster_->NodeRuns(node)) {
      continue;
    }
    // A new daemon gives up when it does not reach its head in time.
    const std::string log = cluster_->NodeLog(node);
    if (!absl::StrContains(ReadFileTail(log, 1000).value_or(""),
                           "no head answers at ")) {
      return absl::InternalError(absl::StrCat("the daemon of node ", node,
                                              " ended by itself; see ", log));
    }
    Log(absl::StrCat("  daemon ", node, " found no head, and starts again"));
    MR_RETURN_IF_ERROR(cluster_->StartNode(node));
  }
  return absl::OkStatus();
}

std::string Conductor::Summary() const {
  std::vector<std::string> parts;
  for (const auto& [name, count] : done_) {
    parts.push_back(absl::StrCat(count, " x ", name));
  }
  if (skipped_ > 0) parts.push_back(absl::StrCat(skipped_, " left out"));
  return absl::StrJoin(parts, ", ");
}

void Conductor::Log(const std::string& text) const {
  options_.log(absl::StrFormat(
      "[%7.3f] %s", absl::ToDoubleSeconds(absl::Now() - start_), text));
}

}  // namespace miniray::havoc
