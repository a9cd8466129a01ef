// What a node does with the processes of actors: templates, shared processes,
// runaways, output, memory.

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "runtime/actor/plugins.h"
#include "runtime/base/files.h"
#include "runtime/worker/log_file.h"
#include "runtime/worker/process_scan.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"
#include "tests/runtime/worker/tight_group.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

// Before main: a forked actor has the template's.
const pid_t pid_at_load = getpid();

std::atomic<int> hanging = 0;

class Probe {
 public:
  int64_t Pid() { return getpid(); }
  int64_t Parent() { return getppid(); }
  int64_t PidAtLoad() { return pid_at_load; }
  std::string Mark() { return MarkOfProcess(getpid()); }

  // Starts a process that leaves the actor's group; returns its pid.
  int64_t StartRunaway(bool program) {
    int pids[2];
    if (pipe(pids) != 0) return 0;
    if (fork() == 0) {
      if (fork() != 0) _exit(0);
      setsid();
      const int64_t own = getpid();
      if (write(pids[1], &own, sizeof(own)) != sizeof(own)) _exit(1);
      if (program) execlp("sleep", "sleep", "1000", nullptr);
      while (true) pause();
    }
    int64_t pid = 0;
    if (read(pids[0], &pid, sizeof(pid)) != sizeof(pid)) pid = 0;
    close(pids[0]);
    close(pids[1]);
    return pid;
  }

  void Print(const std::string& text) {
    printf("%s", text.c_str());
    fflush(stdout);
  }
  void PrintAndDie(const std::string& text) {
    Print(text);
    raise(SIGKILL);
  }
  void Exit(int code) { _exit(code); }
  // Methods of actors in this process that hang.
  int64_t Hanging() { return hanging; }
  void Hang() {
    ++hanging;
    while (!ActorContext::Current()->cancelled()) usleep(1000);
  }
  void HangForEver() {
    ++hanging;
    while (true) pause();
  }
  // Takes memory, and keeps it.
  void Take(int64_t bytes) { TakeMemory(static_cast<size_t>(bytes)); }
  // Takes more than that control group has.
  void TakeTooMuchIn(const std::string& group) {
    if (TightGroup::Enter(group)) TakeMemory(TightGroup::kTooMuch);
  }
};
MINIRAY_ACTOR(Probe, Constructor<>, &Probe::Pid, &Probe::Parent,
              &Probe::PidAtLoad, &Probe::Mark, &Probe::StartRunaway,
              &Probe::Print, &Probe::PrintAndDie, &Probe::Exit, &Probe::Hang,
              &Probe::HangForEver, &Probe::Hanging, &Probe::Take,
              &Probe::TakeTooMuchIn);

constexpr absl::Duration kLong = absl::Seconds(30);

// The templates of the daemons in this process.
std::set<pid_t> Templates() {
  std::set<pid_t> pids;
  for (const pid_t pid : OwnChildren()) {
    if (ReadFile(absl::StrCat("/proc/", pid, "/comm")).value_or("") ==
        "miniray-tmpl\n") {
      pids.insert(pid);
    }
  }
  return pids;
}

TEST(TemplateTest, ActorsAreForkedFromOneTemplate) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto a = driver.CreateActor<Probe>({});
  auto b = driver.CreateActor<Probe>({});
  const int64_t pid_a = *a->Call<&Probe::Pid>().Get(kLong);
  const int64_t pid_b = *b->Call<&Probe::Pid>().Get(kLong);
  EXPECT_NE(pid_a, pid_b);
  const std::set<pid_t> templates = Templates();
  ASSERT_EQ(templates.size(), 1);
  EXPECT_EQ(*a->Call<&Probe::PidAtLoad>().Get(kLong), *templates.begin());
  EXPECT_EQ(*b->Call<&Probe::PidAtLoad>().Get(kLong), *templates.begin());
  // The daemon is in this process.
  EXPECT_EQ(*a->Call<&Probe::Parent>().Get(kLong), getpid());
  // What the kernel shows as its environment is its own.
  EXPECT_THAT(*a->Call<&Probe::Mark>().Get(kLong),
              EndsWith(absl::StrCat("/", a->actor_id(), ".0")));
  // An end is seen though it was not this process that forked it.
  ASSERT_TRUE(a->Kill().ok());
  EXPECT_TRUE(Eventually([&] { return !ProcessLives(pid_a); }));
}

TEST(TemplateTest, ADeadTemplateIsReplaced) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto a = driver.CreateActor<Probe>({});
  ASSERT_TRUE(a->WaitReady(kLong).ok());
  const std::set<pid_t> before = Templates();
  for (const pid_t pid : before) kill(pid, SIGKILL);
  auto b = driver.CreateActor<Probe>({});
  auto c = driver.CreateActor<Probe>({});
  EXPECT_TRUE(b->Call<&Probe::Pid>().Get(kLong).ok());
  EXPECT_TRUE(c->Call<&Probe::Pid>().Get(kLong).ok());
  // The actors do not need it.
  EXPECT_TRUE(a->Call<&Probe::Pid>().Get(kLong).ok());
  for (const pid_t pid : Templates()) EXPECT_FALSE(before.contains(pid));
}

TEST(TemplateTest, WithoutTemplatesActorsStartToo) {
  TestCluster cluster({.configure_node = [](WorkerDaemon::Options* options) {
    options->use_templates = false;
  }});
  Cluster driver = cluster.Connect();
  auto a = driver.CreateActor<Probe>({});
  EXPECT_EQ(*a->Call<&Probe::PidAtLoad>().Get(kLong),
            *a->Call<&Probe::Pid>().Get(kLong));
  EXPECT_TRUE(Templates().empty());
}

// With other plug-ins it is another program to a node.
TEST(TemplateTest, OnlyTheLastProgramsKeepOne) {
  constexpr size_t kKept = 4;
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  TempFolder folder;
  const auto plugin = ReadFile(
      absl::StrCat(getenv("TEST_SRCDIR"), "/", getenv("TEST_WORKSPACE"),
                   "/tests/runtime/worker/libguest_plugin.so"));
  ASSERT_TRUE(plugin.ok()) << plugin.status();
  const absl::Cleanup none = [] { internal::ProgramPlugins().clear(); };
  const auto create = [&](size_t program) {
    const std::string name = absl::StrCat("lib", program, ".so");
    const std::string path = folder.path() + "/" + name;
    EXPECT_TRUE(
        WriteFileAtomically(path, *plugin + std::string(program + 1, '\0'))
            .ok());
    internal::ProgramPlugins() = {{.path = path, .name = name}};
    return driver.CreateActor<Probe>({.resources = {.cpu = 0}});
  };
  std::vector<ActorHandle<Probe>> probes;
  std::vector<int64_t> templates;
  for (size_t i = 0; i < kKept + 2; ++i) {
    auto probe = create(i);
    ASSERT_TRUE(probe.ok()) << probe.status();
    const auto loaded_by = probe->Call<&Probe::PidAtLoad>().Get(kLong);
    ASSERT_TRUE(loaded_by.ok()) << loaded_by.status();
    templates.push_back(*loaded_by);
    probes.push_back(*std::move(probe));
  }
  const std::set<pid_t> kept(templates.end() - kKept, templates.end());
  ASSERT_EQ(kept.size(), kKept);
  EXPECT_TRUE(Eventually([&] { return Templates() == kept; }));
  // Actors need theirs no more, and who needs one that went gets another.
  for (const auto& probe : probes) {
    EXPECT_TRUE(probe.Call<&Probe::Pid>().Get(kLong).ok());
  }
  const auto again = create(0);
  ASSERT_TRUE(again.ok()) << again.status();
  const auto loaded_by = again->Call<&Probe::PidAtLoad>().Get(kLong);
  ASSERT_TRUE(loaded_by.ok()) << loaded_by.status();
  EXPECT_NE(*loaded_by, templates[0]);
  EXPECT_TRUE(Templates().contains(static_cast<pid_t>(*loaded_by)));
  EXPECT_TRUE(Eventually([&] { return Templates().size() == kKept; }));
}

TEST(RunawayTest, WhatLeftItsActorEndsWithIt) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto actor = driver.CreateActor<Probe>({});
  auto other = driver.CreateActor<Probe>({});
  const int64_t forked = *actor->Call<&Probe::StartRunaway>(false).Get(kLong);
  const int64_t program = *actor->Call<&Probe::StartRunaway>(true).Get(kLong);
  const int64_t others = *other->Call<&Probe::StartRunaway>(true).Get(kLong);
  ASSERT_GT(forked, 0);
  ASSERT_GT(program, 0);
  EXPECT_TRUE(ProcessLives(forked));
  ASSERT_TRUE(actor->Kill().ok());
  EXPECT_TRUE(Eventually([&] { return !ProcessLives(forked); }));
  EXPECT_TRUE(Eventually([&] { return !ProcessLives(program); }));
  EXPECT_TRUE(ProcessLives(others));
  cluster.StopDaemon(0);
  EXPECT_TRUE(Eventually([&] { return !ProcessLives(others); }));
}

TEST(OutputTest, NothingIsLostInACrash) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto actor = driver.CreateActor<Probe>({});
  std::string text;
  for (int i = 0; i < 5000; ++i) absl::StrAppend(&text, "line ", i, "\n");
  text += "no newline";
  EXPECT_FALSE(actor->Call<&Probe::PrintAndDie>(text).Get(kLong).ok());
  const std::map<int, std::string> logs =
      FindActorLogs(cluster.NodeFolder(0) + "/logs", actor->actor_id());
  ASSERT_EQ(logs.size(), 1);
  EXPECT_EQ(*ReadFile(logs.at(0)), text);
  const v1::ActorInfo info = cluster.Info(*actor);
  EXPECT_THAT(info.cause(),
              AllOf(HasSubstr("SIGKILL"), HasSubstr("line 4999\nno newline")));
  EXPECT_EQ(info.log_file(), logs.at(0));
}

TEST(OutputTest, LogsAreRotated) {
  TestCluster cluster({.configure_node = [](WorkerDaemon::Options* options) {
    options->log_max_bytes = 1000;
    options->log_files = 3;
  }});
  Cluster driver = cluster.Connect();
  auto actor = driver.CreateActor<Probe>({});
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(actor->Call<&Probe::Print>(std::string(499, 'a' + i) + "\n")
                    .Get(kLong)
                    .ok());
  }
  const std::string log =
      FindActorLogs(cluster.NodeFolder(0) + "/logs", actor->actor_id()).at(0);
  EXPECT_TRUE(Eventually(
      [&] { return absl::StrContains(ReadFile(log).value_or(""), 'j'); }));
  EXPECT_EQ(ReadFile(log)->size(), 1000);
  EXPECT_EQ(ReadFile(log + ".2")->size(), 1000);
  EXPECT_FALSE(ReadFile(log + ".3").ok());
}

ActorOptions Shared(const std::string& name) {
  return {.resources = {.cpu = 0}, .shared_process = name};
}

TEST(SharedProcessTest, ActorsOfOneNameShareAProcess) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto a = driver.CreateActor<Probe>(Shared("pool"));
  auto b = driver.CreateActor<Probe>(Shared("pool"));
  auto other = driver.CreateActor<Probe>(Shared("pond"));
  auto own = driver.CreateActor<Probe>({});
  const int64_t pid = *a->Call<&Probe::Pid>().Get(kLong);
  EXPECT_EQ(*b->Call<&Probe::Pid>().Get(kLong), pid);
  EXPECT_NE(*other->Call<&Probe::Pid>().Get(kLong), pid);
  EXPECT_NE(*own->Call<&Probe::Pid>().Get(kLong), pid);
  // The other job's are apart.
  Cluster second = cluster.Connect();
  auto theirs = second.CreateActor<Probe>(Shared("pool"));
  EXPECT_NE(*theirs->Call<&Probe::Pid>().Get(kLong), pid);

  ASSERT_TRUE(a->Kill().ok());
  EXPECT_TRUE(
      Eventually([&] { return !a->Call<&Probe::Pid>().Get(kLong).ok(); }));
  EXPECT_EQ(*b->Call<&Probe::Pid>().Get(kLong), pid);
  // One that comes later joins.
  auto c = driver.CreateActor<Probe>(Shared("pool"));
  EXPECT_EQ(*c->Call<&Probe::Pid>().Get(kLong), pid);
  // It ends with the last of them.
  ASSERT_TRUE(b->Kill().ok());
  ASSERT_TRUE(c->Kill().ok());
  EXPECT_TRUE(Eventually([&] { return !ProcessLives(pid); }));
}

TEST(SharedProcessTest, ACrashTakesAllAndSaysSo) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto a = driver.CreateActor<Probe>(Shared("pool"));
  ActorOptions options = Shared("pool");
  options.max_restarts = 1;
  auto b = driver.CreateActor<Probe>(options);
  ASSERT_TRUE(b->WaitReady(kLong).ok());
  const int64_t pid = *a->Call<&Probe::Pid>().Get(kLong);
  const absl::Status status = a->Call<&Probe::PrintAndDie>("ouch\n").Get(kLong);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("SIGKILL"), HasSubstr("shared process 'pool'"),
                    HasSubstr("2 actors"), HasSubstr("ouch")));
  EXPECT_TRUE(Eventually([&] {
    auto now = b->Call<&Probe::Pid>().Get(kLong);
    return now.ok() && *now != pid;
  }));
}

TEST(SharedProcessTest, AKillDoesNotHurtTheOthersWhatEverItRuns) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto a = driver.CreateActor<Probe>(Shared("pool"));
  auto b = driver.CreateActor<Probe>(Shared("pool"));
  auto c = driver.CreateActor<Probe>(Shared("pool"));
  const int64_t pid = *c->Call<&Probe::Pid>().Get(kLong);
  ASSERT_TRUE(a->WaitReady(kLong).ok());
  ASSERT_TRUE(b->WaitReady(kLong).ok());
  auto polite = a->Call<&Probe::Hang>();
  auto rude = b->Call<&Probe::HangForEver>();
  // Both run.
  ASSERT_TRUE(
      Eventually([&] { return *c->Call<&Probe::Hanging>().Get(kLong) == 2; }));
  for (const auto& actor : {*a, *b}) {
    ASSERT_TRUE(actor.Kill().ok());
    EXPECT_TRUE(Eventually(
        [&] { return cluster.Info(actor).state() == v1::ACTOR_STATE_DEAD; }));
  }
  // It has returned in time, and its reply may have come.
  EXPECT_NE(polite.Get(kLong).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(rude.Get(kLong).ok());
  EXPECT_EQ(*c->Call<&Probe::Pid>().Get(kLong), pid);
}

TEST(SharedProcessTest, ManyActorsLiveInOneProcess) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr size_t kActors = 100;
#else
  constexpr size_t kActors = 1000;
#endif
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  const absl::Time start = absl::Now();
  std::vector<ActorHandle<Probe>> actors;
  for (size_t i = 0; i < kActors; ++i) {
    auto actor = driver.CreateActor<Probe>(Shared("crowd"));
    ASSERT_TRUE(actor.ok()) << actor.status();
    actors.push_back(*actor);
  }
  std::vector<ObjectRef<int64_t>> calls;
  for (auto& actor : actors) calls.push_back(actor.Call<&Probe::Pid>());
  const int64_t pid = *calls[0].Get(kLong);
  for (auto& call : calls) {
    auto result = call.Get(kLong);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(*result, pid);
  }
  const absl::Time called = absl::Now();
  const std::string status =
      ReadFile(absl::StrCat("/proc/", pid, "/status")).value_or("");
  for (auto& actor : actors) ASSERT_TRUE(actor.Kill().ok());
  EXPECT_TRUE(Eventually([&] { return !ProcessLives(pid); }, kLong));
  std::cout << kActors << " actors: created and called in " << called - start
            << ", killed in " << absl::Now() - called << ", "
            << status.substr(status.find("VmRSS"),
                             status.find('\n', status.find("VmRSS")) -
                                 status.find("VmRSS"))
            << "\n";
}

TEST(MemoryTest, TheLargestActorIsKilledAndItsCallerToldWhy) {
  std::atomic<int64_t> used = 10;
  TestCluster cluster({.configure_node = [&](WorkerDaemon::Options* options) {
    options->memory.period = absl::Milliseconds(10);
    options->memory.read = [&used]() -> absl::StatusOr<MemoryReading> {
      return MemoryReading{.used_bytes = used.load() << 30,
                           .total_bytes = int64_t{100} << 30};
    };
  }});
  Cluster driver = cluster.Connect();
  auto small = driver.CreateActor<Probe>({});
  auto large = driver.CreateActor<Probe>({.max_restarts = 1});
  ASSERT_TRUE(small->WaitReady(kLong).ok());
  ASSERT_TRUE(large->Call<&Probe::Take>(int64_t{100} << 20).Get(kLong).ok());
  auto call = large->Call<&Probe::HangForEver>();
  const int64_t small_pid = *small->Call<&Probe::Pid>().Get(kLong);
  used = 97;
  const absl::Status status = call.Get(kLong);
  used = 10;
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("killed for memory: used 97.00 GiB of 100.00 GiB"),
            HasSubstr("(limit 95%); the actor used 0.")));
  EXPECT_EQ(*small->Call<&Probe::Pid>().Get(kLong), small_pid);
  // It counts as a death like any other.
  EXPECT_TRUE(
      Eventually([&] { return large->Call<&Probe::Pid>().Get(kLong).ok(); }));
  EXPECT_TRUE(Eventually([&] {
    const auto state = cluster.head().GetState();
    return state.nodes(0).memory_total_bytes() == int64_t{100} << 30;
  }));
}

TEST(MemoryTest, AnEndByTheKernelSaysSo) {
  const TightGroup group;
  if (!group.made()) GTEST_SKIP() << TightGroup::kWhyNot;
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto actor = driver.CreateActor<Probe>({});
  ASSERT_TRUE(actor->WaitReady(kLong).ok());
  const absl::Status status =
      actor->Call<&Probe::TakeTooMuchIn>(group.folder()).Get(kLong);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("killed by signal 9 (SIGKILL); in those seconds the "
                      "kernel ended a process of this machine for memory"),
            HasSubstr("with a lower miniray start --memory_limit")));
}

TEST(MemoryTest, WhoWasToldToEndDoesNotUseUpTheKernelsKill) {
  const TightGroup group;
  if (!group.made()) GTEST_SKIP() << TightGroup::kWhyNot;
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto stopped = driver.CreateActor<Probe>({});
  auto killed = driver.CreateActor<Probe>({});
  const int64_t stopped_pid = *stopped->Call<&Probe::Pid>().Get(kLong);
  const int64_t killed_pid = *killed->Call<&Probe::Pid>().Get(kLong);
  auto hangs = stopped->Call<&Probe::HangForEver>();
  auto waits = killed->Call<&Probe::HangForEver>();
  // Two, where the kernel ended one.
  ASSERT_EQ(group.KillOne(), SIGKILL);
  ASSERT_TRUE(stopped->Kill().ok());
  EXPECT_FALSE(hangs.Get(kLong).ok());
  EXPECT_TRUE(Eventually([&] { return !ProcessLives(stopped_pid); }, kLong));
  ASSERT_EQ(kill(static_cast<pid_t>(killed_pid), SIGKILL), 0);
  EXPECT_THAT(std::string(waits.Get(kLong).message()),
              HasSubstr("the kernel ended a process"));
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
