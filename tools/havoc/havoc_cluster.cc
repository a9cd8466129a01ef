#include "tools/havoc/havoc_cluster.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "tools/havoc/process.h"

namespace miniray::havoc {
namespace {

// A killed head leaves connections; a busy machine starts slowly.
constexpr absl::Duration kStartTimeout = absl::Seconds(30);
constexpr absl::Duration kStopTimeout = absl::Seconds(30);

// What was appended to a log since it had `size` bytes.
std::string Since(const std::string& log, size_t size) {
  const std::string text = ReadFile(log).value_or("");
  return text.size() > size ? text.substr(size) : "";
}

size_t SizeOf(const std::string& path) {
  struct stat st = {};
  return stat(path.c_str(), &st) == 0 ? static_cast<size_t>(st.st_size) : 0;
}

bool HasEnded(pid_t* pid) {
  if (*pid > 0 && waitpid(*pid, nullptr, WNOHANG) == *pid) *pid = 0;
  return *pid == 0;
}

// Waits for `text` in what a process that was just started logs.
absl::Status AwaitText(pid_t* pid, const std::string& what,
                       const std::string& log, size_t size,
                       const std::string& text) {
  bool ended = false;
  const bool found = WaitUntil(kStartTimeout, [&] {
    if (absl::StrContains(Since(log, size), text)) return true;
    ended = HasEnded(pid);
    return ended;
  });
  if (found && !ended) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(what, ended ? " ended: " : " is not ready: ",
                   ReadFileTail(log, 1000).value_or("")));
}

void Kill(pid_t* pid) {
  if (*pid <= 0) return;
  kill(*pid, SIGKILL);
  waitpid(*pid, nullptr, 0);
  *pid = 0;
}

}  // namespace

HavocCluster::HavocCluster(Options options, Network* network)
    : options_(std::move(options)),
      network_(network),
      nodes_(static_cast<size_t>(options_.nodes), 0) {}

HavocCluster::~HavocCluster() {
  for (pid_t& pid : nodes_) Kill(&pid);
  Kill(&head_);
}

std::string HavocCluster::NodeLog(int node) const {
  return absl::StrCat(options_.folder, "/node-", node, ".log");
}

std::map<std::string, std::string> HavocCluster::Environment(
    const std::string& machine) const {
  return {{kMarkVariable, options_.mark},
          {"MINIRAY_TOKEN", options_.token},
          {"MINIRAY_RUNTIME_DIR", absl::StrCat(options_.folder, "/", machine)}};
}

absl::Status HavocCluster::StartHead() {
  const std::string log = HeadLog();
  const size_t size = SizeOf(log);
  const std::string ip = network_->Ip(kHeadMachine);
  const std::string port =
      address_.empty() ? "0" : address_.substr(address_.rfind(':') + 1);
  MR_ASSIGN_OR_RETURN(
      head_,
      Spawn({options_.miniray, "start", "--head", "--block",
             absl::StrCat("--host=", ip), absl::StrCat("--port=", port),
             "--dashboard_port=-1",
             absl::StrCat("--state_dir=", options_.folder, "/state"),
             absl::StrCat("--lease=", absl::FormatDuration(options_.lease)),
             // The driver may be cut off for as long as a node.
             absl::StrCat("--driver_grace=",
                          absl::FormatDuration(10 * options_.lease))},
            Environment("head"), log,
            [this] { return network_->Enter(kHeadMachine); }));
  constexpr char kReady[] = "is ready, head address ";
  MR_RETURN_IF_ERROR(AwaitText(&head_, "the head", log, size, kReady));
  if (address_.empty()) {
    std::string text = Since(log, size);
    text = text.substr(text.find(kReady) + sizeof(kReady) - 1);
    address_ = text.substr(0, text.find_first_of("\n "));
  }
  return absl::OkStatus();
}

absl::Status HavocCluster::StartNode(int node) {
  const std::string log = NodeLog(node);
  const int machine = kFirstNodeMachine + node;
  const std::string ip = network_->Ip(machine);
  MR_ASSIGN_OR_RETURN(
      nodes_[static_cast<size_t>(node)],
      Spawn({options_.miniray, "start", "--block",
             absl::StrCat("--address=", address_),
             absl::StrCat("--num_cpus=", options_.cpus),
             absl::StrCat("--node_ip=", ip)},
            Environment(absl::StrCat("node-", node)), log,
            [this, machine] { return network_->Enter(machine); }));
  return absl::OkStatus();
}

void HavocCluster::KillHead() { Kill(&head_); }
void HavocCluster::KillNode(int node) {
  Kill(&nodes_[static_cast<size_t>(node)]);
}

bool HavocCluster::HeadRuns() { return !HasEnded(&head_); }
bool HavocCluster::NodeRuns(int node) {
  return !HasEnded(&nodes_[static_cast<size_t>(node)]);
}

absl::Status HavocCluster::Stop() {
  std::string wrong;
  auto stop = [&wrong](pid_t* pid, const std::string& what) {
    if (*pid <= 0) return;
    kill(*pid, SIGTERM);
    const int code = WaitForChild(*pid, kStopTimeout);
    if (code == -1) {
      absl::StrAppend(&wrong, what, " does not end; ");
      return;
    }
    *pid = 0;
    if (code != 0) absl::StrAppend(&wrong, what, " ended with ", code, "; ");
  };
  for (size_t i = 0; i < nodes_.size(); ++i) {
    stop(&nodes_[i], absl::StrCat("the daemon of node ", i));
  }
  stop(&head_, "the head");
  return wrong.empty() ? absl::OkStatus() : absl::InternalError(wrong);
}

}  // namespace miniray::havoc
