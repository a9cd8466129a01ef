#include "tools/havoc/network.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "tools/havoc/process.h"

namespace miniray::havoc {
namespace {

constexpr char kPrefix[] = "mrchaos-";
constexpr char kNamespaceFolder[] = "/run/netns";

absl::Status Ip(const std::string& arguments) {
  std::vector<std::string> argv = {"ip"};
  for (absl::string_view word : absl::StrSplit(arguments, ' ')) {
    argv.emplace_back(word);
  }
  return RunCommand(argv);
}

class Loopback : public Network {
 public:
  std::string Describe() const override {
    return "loopback, no links that could be cut";
  }
  bool can_cut() const override { return false; }
  std::string Ip(int) const override { return "127.0.0.1"; }
  bool Enter(int) const override { return true; }
  absl::Status Cut(int, int) override {
    return absl::UnimplementedError("loopback has no links");
  }
  absl::Status Heal(int, int) override { return absl::OkStatus(); }
  absl::Status LimitRate(int64_t) override {
    return absl::UnimplementedError("loopback has no links");
  }
  absl::Status Remove() override { return absl::OkStatus(); }
};

// Machine i is the namespace mrchaos-PID-i with the address 10.209.i.2; the
// router, mrchaos-PID-router, has 10.209.i.1 beside each. A link is cut by a
// rule of the router that swallows its packets.
class Namespaces : public Network {
 public:
  explicit Namespaces(int machines)
      : prefix_(absl::StrCat(kPrefix, getpid(), "-")), machines_(machines) {}
  ~Namespaces() override { (void)Remove(); }

  absl::Status Build() {
    const std::string router = prefix_ + "router";
    MR_RETURN_IF_ERROR(havoc::Ip("netns add " + router));
    MR_RETURN_IF_ERROR(RunCommand({"ip", "netns", "exec", router, "sh", "-c",
                                   "echo 1 > /proc/sys/net/ipv4/ip_forward"}));
    for (int i = 0; i < machines_; ++i) {
      const std::string name = absl::StrCat(prefix_, i);
      const std::string subnet = absl::StrCat("10.209.", i);
      for (const std::string& arguments : {
               absl::StrCat("netns add ", name),
               absl::StrCat("-n ", router, " link add m", i,
                            " type veth peer name net netns ", name),
               absl::StrCat("-n ", router, " addr add ", subnet, ".1/24 dev m",
                            i),
               absl::StrCat("-n ", router, " link set m", i, " up"),
               absl::StrCat("-n ", name, " addr add ", subnet, ".2/24 dev net"),
               absl::StrCat("-n ", name, " link set net up"),
               absl::StrCat("-n ", name, " link set lo up"),
               absl::StrCat("-n ", name, " route add default via ", subnet,
                            ".1"),
           }) {
        MR_RETURN_IF_ERROR(havoc::Ip(arguments));
      }
      fds_.emplace_back(open(absl::StrCat(kNamespaceFolder, "/", name).c_str(),
                             O_RDONLY | O_CLOEXEC));
      if (!fds_.back().valid()) return ErrnoStatus(errno, name);
    }
    return absl::OkStatus();
  }

  std::string Describe() const override {
    return absl::StrCat(machines_, " network namespaces (", prefix_, "*)");
  }
  bool can_cut() const override { return true; }
  std::string Ip(int machine) const override {
    return absl::StrCat("10.209.", machine, ".2");
  }
  bool Enter(int machine) const override {
    return setns(fds_[static_cast<size_t>(machine)].get(), CLONE_NEWNET) == 0;
  }
  absl::Status Cut(int a, int b) override { return Rule("add", a, b); }
  absl::Status Heal(int a, int b) override { return Rule("del", a, b); }

  absl::Status LimitRate(int64_t bits_per_second) override {
    const std::string rate = absl::StrCat(bits_per_second, "bit");
    // Not in everybody's PATH.
    const std::string tc =
        access("/usr/sbin/tc", X_OK) == 0 ? "/usr/sbin/tc" : "tc";
    for (int i = 0; i < machines_; ++i) {
      for (const auto& [name, device] :
           {std::pair(absl::StrCat(prefix_, i), std::string("net")),
            std::pair(prefix_ + "router", absl::StrCat("m", i))}) {
        MR_RETURN_IF_ERROR(RunCommand(
            {tc, "-n", name, "qdisc", "replace", "dev", device, "root", "tbf",
             "rate", rate, "burst", "256kb", "latency", "50ms"}));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Remove() override {
    fds_.clear();
    std::string left;
    for (const std::string& name : Named(prefix_)) {
      if (!havoc::Ip("netns del " + name).ok()) {
        absl::StrAppend(&left, " ", name);
      }
    }
    if (left.empty() && Named(prefix_).empty()) return absl::OkStatus();
    return absl::InternalError("namespaces are left:" + left);
  }

  // Those whose run is no more.
  static void RemoveStale() {
    for (const std::string& name : Named(kPrefix)) {
      absl::string_view rest = name;
      absl::ConsumePrefix(&rest, kPrefix);
      int pid = 0;
      if (absl::SimpleAtoi(rest.substr(0, rest.find('-')), &pid) &&
          kill(pid, 0) != 0 && errno == ESRCH) {
        (void)havoc::Ip("netns del " + name);
      }
    }
  }

 private:
  static std::vector<std::string> Named(const std::string& prefix) {
    std::vector<std::string> names;
    std::error_code error;
    for (std::filesystem::directory_iterator entry(kNamespaceFolder, error),
         end;
         !error && entry != end; entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (absl::StartsWith(name, prefix)) names.push_back(name);
    }
    return names;
  }

  absl::Status Rule(const char* verb, int a, int b) {
    for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
      MR_RETURN_IF_ERROR(
          havoc::Ip(absl::StrCat("-n ", prefix_, "router rule ", verb, " from ",
                                 Ip(from), " to ", Ip(to), " blackhole")));
    }
    return absl::OkStatus();
  }

  const std::string prefix_;
  const int machines_;
  std::vector<ScopedFd> fds_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> Network::Create(Kind kind,
                                                         int machines) {
  if (kind != Kind::kLoopback) {
    Namespaces::RemoveStale();
    auto network = std::make_unique<Namespaces>(machines);
    const absl::Status built = network->Build();
    if (built.ok()) return network;
    if (kind == Kind::kNamespaces) {
      return absl::PermissionDeniedError(absl::StrCat(
          "cannot make network namespaces (", built.message(), ")"));
    }
  }
  return std::make_unique<Loopback>();
}

}  // namespace miniray::havoc
