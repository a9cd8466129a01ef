// A value that was put on one node and is read on others, over links of a
// limited rate: see kHelp.

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "runtime/client/object_client.h"
#include "runtime/objects/object_store.h"
#include "tools/bench/bench.h"
#include "tools/bench/child.h"
#include "tools/havoc/network.h"

ABSL_FLAG(int, mb, 100, "Megabytes (10^6 bytes) of the value.");
ABSL_FLAG(int, nodes, 4, "Nodes that read it.");
ABSL_FLAG(double, gbit, 1, "Rate of each node's link, 10^9 bits a second.");
ABSL_FLAG(std::string, ip, "", "For the program itself: of a node.");
ABSL_FLAG(int, children, 1, "For the program itself: of a store.");

namespace miniray::bench {
namespace {

constexpr char kHelp[] =
    R"(Measures a value that several nodes read at the same time.

  broadcast [FLAGS]

Each node is a network namespace with a link of its own, whose rate is limited
in both directions (tbf), and runs an object store; making them needs root. The
value is put on one node; it is timed from the moment at which the others ask
for it until the last one has mapped it. "One by one" is the same with a store
that sends the value to each of them itself.

  --mb=N       megabytes (10^6 bytes) of the value (default 100)
  --nodes=N    that read it (default 4)
  --gbit=X     rate of each link, in 10^9 bits a second (default 1))";

constexpr char kNodeRole[] = "node";
constexpr double kMaxRatio = 1.5;

double Bytes() { return absl::GetFlag(FLAGS_mb) * 1e6; }

// --- A node: a store, and a process that uses it.

class Node {
 public:
  absl::Status Begin() {
    MR_ASSIGN_OR_RETURN(
        store_,
        ObjectStore::Start({.host = absl::GetFlag(FLAGS_ip),
                            .max_children = absl::GetFlag(FLAGS_children)}));
    internal::ObjectClient::Options options;
    options.local_store = store_->address();
    options.channels = std::make_shared<internal::ChannelPool>();
    client_ = std::make_shared<internal::ObjectClient>(std::move(options));
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Answer(const std::string& command) {
    const std::vector<std::string> words = absl::StrSplit(command, ' ');
    if (words[0] == "put") {
      value_ = std::string(static_cast<size_t>(Bytes()), 'b');
      for (size_t i = 0; i < value_.size(); i += 4096) {
        value_[i] = static_cast<char>(i >> 12);
      }
      MR_ASSIGN_OR_RETURN(const absl::Cord reference,
                          client_->Put(absl::Cord(value_), &hold_));
      return absl::BytesToHexString(std::string(reference));
    }
    if (words[0] == "free") {
      hold_.reset();
      return "0";
    }
    if (words[0] == "empty") {
      while (store_->stats().objects > 0) absl::SleepFor(absl::Milliseconds(1));
      return "0";
    }
    const absl::Time start = absl::Now();
    MR_ASSIGN_OR_RETURN(
        const internal::FetchedValue value,
        client_->Fetch(absl::Cord(absl::HexStringToBytes(words[1])),
                       absl::InfiniteDuration(), /*alone=*/false));
    const double seconds = SecondsSince(start);
    // The time at which the last one has it counts; nobody checks before.
    const absl::string_view bytes = *value.bytes.TryFlat();
    for (size_t i = 0; i < bytes.size(); i += 4096) {
      if (bytes[i] != static_cast<char>(i >> 12)) {
        return absl::DataLossError("other bytes came than were put");
      }
    }
    return absl::StrCat(seconds);
  }

 private:
  std::unique_ptr<ObjectStore> store_;
  std::shared_ptr<internal::ObjectClient> client_;
  std::string value_;
  std::shared_ptr<void> hold_;
};

int RunNode() {
  Node node;
  if (const absl::Status status = node.Begin(); !status.ok()) {
    std::cerr << "node: " << status << "\n";
    return 2;
  }
  return ServeCommands(
      [&node](const std::string& command) { return node.Answer(command); });
}

// --- The program.

class Nodes {
 public:
  Nodes(havoc::Network* network, int own_namespace)
      : network_(network), own_namespace_(own_namespace) {}

  // Machine 0 has the value; 1 is the same, but sends it itself.
  absl::Status Begin(int readers) {
    for (int i = 0; i < readers + 2; ++i) {
      if (!network_->Enter(i)) return ErrnoStatus(errno, "enter a namespace");
      auto child = Child::Start(
          kNodeRole, {absl::StrCat("--ip=", network_->Ip(i)),
                      absl::StrCat("--mb=", absl::GetFlag(FLAGS_mb)),
                      absl::StrCat("--children=", i == 1 ? readers : 1)});
      if (setns(own_namespace_, CLONE_NEWNET) != 0) {
        return ErrnoStatus(errno, "leave a namespace");
      }
      MR_RETURN_IF_ERROR(child.status());
      (i < 2 ? sources_ : readers_).push_back(*std::move(child));
    }
    return absl::OkStatus();
  }

  // Seconds until the first `count` of the readers have the value.
  absl::StatusOr<double> Read(size_t source, size_t count) {
    MR_ASSIGN_OR_RETURN(const std::string reference,
                        sources_[source]->Ask("put"));
    const absl::Time start = absl::Now();
    for (size_t i = 0; i < count; ++i) {
      MR_RETURN_IF_ERROR(readers_[i]->Send(absl::StrCat("read ", reference)));
    }
    for (size_t i = 0; i < count; ++i) {
      MR_RETURN_IF_ERROR(readers_[i]->Receive().status());
    }
    const double seconds = SecondsSince(start);
    MR_RETURN_IF_ERROR(sources_[source]->Ask("free").status());
    MR_RETURN_IF_ERROR(AskAll(readers_, "empty").status());
    return seconds;
  }

 private:
  havoc::Network* const network_;
  const int own_namespace_;
  std::vector<std::unique_ptr<Child>> sources_, readers_;
};

absl::Status Measure(Table* table) {
  const int count = absl::GetFlag(FLAGS_nodes);
  const double bits = absl::GetFlag(FLAGS_gbit) * 1e9;
  if (count < 1 || count > 100 || absl::GetFlag(FLAGS_mb) < 1 || bits < 1e6) {
    return absl::InvalidArgumentError("see --help for what the flags mean");
  }
  const ScopedFd own_namespace(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!own_namespace.valid()) return ErrnoStatus(errno, "/proc/self/ns/net");
  MR_ASSIGN_OR_RETURN(
      const std::unique_ptr<havoc::Network> network,
      havoc::Network::Create(havoc::Network::Kind::kNamespaces, count + 2));
  MR_RETURN_IF_ERROR(network->LimitRate(static_cast<int64_t>(bits)));
  {
    Nodes nodes(network.get(), own_namespace.get());
    MR_RETURN_IF_ERROR(nodes.Begin(count));
    const auto all = static_cast<size_t>(count);
    MR_ASSIGN_OR_RETURN(
        const std::vector<double> medians,
        MeasureInTurn({{"one node", [&] { return nodes.Read(0, 1); }},
                       {"all nodes", [&] { return nodes.Read(0, all); }},
                       {"one by one", [&] { return nodes.Read(1, all); }}},
                      table));
    const std::string what = absl::StrCat(absl::GetFlag(FLAGS_mb), " MB to ");
    const std::string several = absl::StrCat(what, count, " nodes");
    table->Add({.what = what + "1 node",
                .unit = "s",
                .ours = medians[0],
                .peer_name = absl::StrFormat("the link's %g Gbit/s",
                                             absl::GetFlag(FLAGS_gbit)),
                .peer = Bytes() * 8 / bits});
    table->Add({.what = several,
                .unit = "s",
                .ours = medians[1],
                .peer_name = "1 node",
                .peer = medians[0],
                .at_most = kMaxRatio});
    table->Add({.what = several,
                .unit = "s",
                .ours = medians[1],
                .peer_name = "one by one",
                .peer = medians[2]});
  }
  return network->Remove();
}

}  // namespace
}  // namespace miniray::bench

int main(int argc, char** argv) {
  // As every program of the runtime does; see miniray::Init.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  namespace bench = miniray::bench;
  return bench::Main(argc, argv,
                     {.name = "broadcast",
                      .help = bench::kHelp,
                      .measure = bench::Measure,
                      .roles = {{bench::kNodeRole, bench::RunNode}}});
}
