#include "tests/runtime/test_cluster.h"

#include <glog/logging.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "proto/head.pb.h"
#include "runtime/base/ids.h"
#include "runtime/base/net.h"

namespace miniray {

TestCluster::TestCluster(Options options) {
  const char* base = std::getenv("TEST_TMPDIR");
  folder_ =
      absl::StrCat(base == nullptr ? "/tmp" : base, "/", NewId("cluster"));
  options.head.host = "127.0.0.1";
  options.head.port = 0;
  options.head.state_dir = folder_ + "/head";
  auto head = HeadServer::Start(options.head);
  CHECK(head.ok()) << head.status();
  head_ = *std::move(head);
  address_ = JoinHostPort("127.0.0.1", head_->port());
  for (size_t i = 0; i < options.node_cpus.size(); ++i) {
    WorkerDaemon::Options daemon;
    daemon.head_address = address_;
    daemon.token = options.head.token;
    daemon.session_dir = NodeFolder(i);
    (*daemon.resources.mutable_quantity())["CPU"] = options.node_cpus[i];
    if (options.configure_node != nullptr) options.configure_node(&daemon);
    auto started = WorkerDaemon::Start(daemon);
    CHECK(started.ok()) << started.status();
    daemons_.push_back(*std::move(started));
  }
}

TestCluster::~TestCluster() {
  for (auto& daemon : daemons_) daemon->Shutdown();
  head_->Shutdown();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string TestCluster::NodeFolder(size_t i) const {
  return absl::StrCat(folder_, "/node", i);
}

Cluster TestCluster::Connect() {
  auto cluster = Cluster::Connect({.address = address_});
  CHECK(cluster.ok()) << cluster.status();
  return *std::move(cluster);
}

v1::ActorInfo TestCluster::Info(const AnyActorHandle& actor) {
  const v1::GetClusterStateResponse state = head_->GetState();
  for (const v1::ActorInfo& info : state.actors()) {
    if (info.actor_id() == actor.actor_id()) return info;
  }
  LOG(FATAL) << "no actor " << actor.ToString();
}

bool ProcessLives(int64_t pid) {
  std::ifstream stat(absl::StrCat("/proc/", pid, "/stat"));
  std::string text;
  if (!std::getline(stat, text)) return false;
  const size_t state = text.rfind(')');
  if (state == std::string::npos) return false;
  if (text.substr(state + 2, 1) != "Z") return true;
  // The first thread is one before the others have ended, and closed what they
  // share.
  int num_threads = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator thread(
           absl::StrCat("/proc/", pid, "/task"), error);
       !error && thread != std::filesystem::directory_iterator();
       thread.increment(error)) {
    ++num_threads;
  }
  return num_threads > 1;
}

bool Eventually(const std::function<bool()>& condition,
                absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    std::this_thread::yield();
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

}  // namespace miniray
