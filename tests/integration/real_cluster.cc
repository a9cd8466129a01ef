#include "tests/integration/real_cluster.h"

#include <glog/logging.h>
#include <signal.h>

#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/head.pb.h"

namespace miniray {
namespace {

std::string Slurp(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

RealCluster::RealCluster(Options options) : options_(std::move(options)) {
  StartHead();
  for (int i = 0; i < options_.num_nodes; ++i) AddNode();
}

void RealCluster::StartHead() {
  std::vector<std::string> argv = {
      BuiltProgram("tools/miniray"),
      "start",
      "--head",
      "--block",
      absl::StrCat("--port=", port_),
      absl::StrCat("--dashboard_port=",
                   options_.dashboard ? dashboard_port_ : "-1")};
  argv.insert(argv.end(), options_.head_flags.begin(),
              options_.head_flags.end());
  head_ = tree_.Start(argv);
  // "The head listens at HOST:PORT (pid ..."
  address_ = ReadPast("listens at ");
  address_ = address_.substr(0, address_.find(' '));
  port_ = address_.substr(address_.rfind(':') + 1);
  if (!options_.dashboard) return;
  const std::string url = ReadPast("Dashboard: ");
  dashboard_port_ = url.substr(url.rfind(':') + 1);
}

std::string RealCluster::ReadPast(const std::string& words) {
  std::string line;
  do {
    line = head_->ReadLine();
    CHECK(!line.empty()) << "the head does not say '" << words
                         << "': " << Slurp(head_->error_file());
  } while (!absl::StrContains(line, words));
  return line.substr(line.find(words) + words.size());
}

std::string RealCluster::dashboard() const {
  CHECK(options_.dashboard);
  return absl::StrCat("http://127.0.0.1:", dashboard_port_);
}

void RealCluster::KillHead() {
  head_->Signal(SIGKILL);
  head_->Wait();
}

void RealCluster::AddNode(const std::vector<std::string>& flags) {
  std::vector<std::string> argv = {BuiltProgram("tools/miniray"),
                                   "start",
                                   "--block",
                                   "--address",
                                   address_,
                                   absl::StrCat("--num_cpus=", options_.cpus)};
  argv.insert(argv.end(), options_.node_flags.begin(),
              options_.node_flags.end());
  argv.insert(argv.end(), flags.begin(), flags.end());
  auto node = tree_.Start(argv);
  CHECK(absl::StrContains(node->ReadLine(), "joined"))
      << Slurp(node->error_file());
  nodes_.push_back(std::move(node));
}

Cluster RealCluster::Connect() {
  auto cluster = Cluster::Connect({.address = address_});
  CHECK(cluster.ok()) << cluster.status();
  return *std::move(cluster);
}

v1::ActorInfo RealCluster::Info(const Cluster& cluster,
                                const AnyActorHandle& actor) {
  const auto state = cluster.GetState();
  CHECK(state.ok()) << state.status();
  for (const v1::ActorInfo& info : state->actors()) {
    if (info.actor_id() == actor.actor_id()) return info;
  }
  LOG(FATAL) << "no actor " << actor.ToString();
}

}  // namespace miniray
