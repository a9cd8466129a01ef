// Flags of a head and of a worker daemon act in real processes.

#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/actor.grpc.pb.h"
#include "proto/head.grpc.pb.h"
#include "runtime/api/miniray.h"
#include "runtime/base/files.h"
#include "runtime/rpc/channel.h"
#include "runtime/worker/memory_monitor.h"
#include "tests/integration/process_tools.h"
#include "tests/integration/real_cluster.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/stop_process.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr double kGigabyte = 1 << 30;

class Target {
 public:
  int64_t Pid() { return getpid(); }
  // From then on a stop has to be a SIGKILL.
  void IgnoreStops() { signal(SIGTERM, SIG_IGN); }
  void Wait() {
    while (true) pause();
  }
  void Take(int64_t bytes) { memory_.assign(static_cast<size_t>(bytes), 'm'); }
  void Print(const std::string& line) {
    std::puts(line.c_str());
    std::fflush(stdout);
  }
  std::string Variable(const std::string& name) {
    const char* const value = std::getenv(name.c_str());
    return value == nullptr ? "" : value;
  }
  // Starts a process that leaves the actor's group, without the mark by which
  // the daemon would find it, and holds the actor's output open. Returns its
  // pid.
  int64_t LeaveChild() {
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    char program[] = "sleep", seconds[] = "60";
    char* const argv[] = {program, seconds, nullptr};
    char* const no_env[] = {nullptr};
    pid_t child = 0;
    posix_spawn(&child, "/bin/sleep", nullptr, &attributes, argv, no_env);
    posix_spawnattr_destroy(&attributes);
    return child;
  }

 private:
  std::string memory_;
};
MINIRAY_ACTOR(Target, Constructor<>, &Target::Pid, &Target::IgnoreStops,
              &Target::Wait, &Target::Take, &Target::Print, &Target::LeaveChild,
              &Target::Variable);

TEST(MemoryLimitTest, BeyondItTheActorIsKilledAndItsCallerToldOfWhat) {
  // Any machine uses more.
  RealCluster real(
      {.node_flags = {"--memory_limit=0.000001", "--memory_period=20ms"}});
  Cluster driver = real.Connect();
  const auto target = driver.CreateActor<Target>({});
  ASSERT_THAT(target, IsOk());
  const absl::Status status = target->Call<&Target::Wait>().Get(kPatience);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("killed for memory: used "), HasSubstr(" of ")));
}

TEST(MemoryLimitTest, TheActorThatWouldFreeMostIsKilled) {
  const auto before = ReadMemory();
  ASSERT_THAT(before, IsOk());
  // Half of what is in use, so it is exceeded, at the first look that finds
  // actors: between two looks both come up.
  const double limit = 0.5 * static_cast<double>(before->used_bytes) /
                       static_cast<double>(before->total_bytes);
  RealCluster real({.node_flags = {absl::StrCat("--memory_limit=", limit),
                                   "--memory_period=6s"}});
  Cluster driver = real.Connect();
  constexpr int64_t kBytes = 200 << 20;
  const auto large = driver.CreateActor<Target>({});
  ASSERT_THAT(large, IsOk());
  ASSERT_THAT(large->Call<&Target::Take>(kBytes).Get(kPatience), IsOk());
  const auto small = driver.CreateActor<Target>({});
  ASSERT_THAT(small, IsOk());
  const auto small_pid = small->Call<&Target::Pid>().Get(kPatience);
  ASSERT_THAT(small_pid, IsOk());

  const absl::Status status = large->Call<&Target::Wait>().Get(kPatience);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  const std::string message(status.message());
  // The next look is 6 s away.
  EXPECT_THAT(small->Call<&Target::Pid>().Get(kPatience),
              IsOkAndHolds(*small_pid));
  // What the machine had in use and has, and what the actor would free.
  const size_t at = message.find("killed for memory: used ");
  ASSERT_NE(at, std::string::npos) << message;
  double used = 0, total = 0, actor = 0;
  ASSERT_EQ(std::sscanf(message.c_str() + at,
                        "killed for memory: used %lf GiB of %lf GiB (limit "
                        "%*[^)]); the actor used %lf GiB",
                        &used, &total, &actor),
            3)
      << message;
  EXPECT_NEAR(total, static_cast<double>(before->total_bytes) / kGigabyte,
              0.01);
  EXPECT_GT(used, limit * total);
  EXPECT_LE(used, total);
  EXPECT_GE(actor, 0.19);
  EXPECT_LT(actor, 0.5);
}

TEST(MemoryLimitTest, NoughtKillsNothing) {
  RealCluster real(
      {.node_flags = {"--memory_limit=0", "--memory_period=10ms"}});
  Cluster driver = real.Connect();
  const auto target = driver.CreateActor<Target>({});
  ASSERT_THAT(target, IsOk());
  const auto pid = target->Call<&Target::Pid>().Get(kPatience);
  ASSERT_THAT(pid, IsOk());
  const ObjectRef<void> waiting = target->Call<&Target::Wait>();
  // A hundred looks at the memory.
  EXPECT_THAT(waiting.Get(absl::Seconds(1)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_TRUE(ProcessLives(*pid));
}

TEST(StopGraceTest, AnActorHasItToEnd) {
  for (const auto& [flag, grace] :
       {std::pair("--stop_grace=100ms", absl::Milliseconds(100)),
        std::pair("--stop_grace=3s", absl::Seconds(3))}) {
    RealCluster real({.node_flags = {flag}});
    Cluster driver = real.Connect();
    auto target = driver.CreateActor<Target>({});
    ASSERT_THAT(target, IsOk());
    const auto pid = target->Call<&Target::Pid>().Get(kPatience);
    ASSERT_THAT(pid, IsOk());
    ASSERT_THAT(target->Call<&Target::IgnoreStops>().Get(kPatience), IsOk());
    const absl::Time begin = absl::Now();
    ASSERT_THAT(target->Kill(), IsOk());
    ASSERT_TRUE(Eventually([&] { return !ProcessLives(*pid); }));
    const absl::Duration took = absl::Now() - begin;
    EXPECT_GE(took, grace);
    EXPECT_LT(took, grace + absl::Seconds(2)) << flag;
  }
}

// --- Output.

// Of an actor's first process; empty: there is none yet.
std::string FindLog(RealCluster* real, const AnyActorHandle& actor) {
  const std::string end = absl::StrCat(actor.actor_id(), ".0.log");
  for (const auto& file :
       std::filesystem::recursive_directory_iterator(real->tree().folder())) {
    if (absl::EndsWith(file.path().string(), end)) return file.path().string();
  }
  return "";
}

TEST(LogFlagsTest, AnActorsOutputIsKeptInSoManyFilesOfThatSize) {
  RealCluster real({.node_flags = {"--log_max_bytes=4096", "--log_files=3"}});
  const auto driver =
      Cluster::Connect({.address = real.address(), .log_to_driver = false});
  ASSERT_THAT(driver, IsOk());
  const auto target = driver->CreateActor<Target>({});
  ASSERT_THAT(target, IsOk());
  constexpr int kLines = 60, kLineBytes = 512;  // 30 KiB: seven files.
  for (int i = 0; i < kLines; ++i) {
    std::string line = absl::StrCat("line ", i, " ");
    line.resize(kLineBytes - 1, '.');
    ASSERT_THAT(target->Call<&Target::Print>(line).Get(kPatience), IsOk());
  }
  const std::string log = FindLog(&real, *target);
  ASSERT_FALSE(log.empty());
  ASSERT_TRUE(Eventually([&] {
    return absl::StrContains(ReadFile(log).value_or(""), "line 59 ");
  }));
  EXPECT_LE(std::filesystem::file_size(log), 4096);
  for (const char* full : {".1", ".2"}) {
    const auto text = ReadFile(log + full);
    ASSERT_THAT(text, IsOk());
    EXPECT_LE(text->size(), 4096) << full;
    EXPECT_GT(text->size(), 4096 - kLineBytes) << full;
  }
  EXPECT_FALSE(std::filesystem::exists(log + ".3"));
}

// The node's own connections and those of what runs there have one setting.
TEST(SilenceTimeoutTest, ActorsInheritThatOfTheirNode) {
  RealCluster real({.num_nodes = 0, .head_flags = {"--silence_timeout=30s"}});
  real.AddNode({"--num_cpus=1", "--silence_timeout=90s"});
  Cluster driver = real.Connect();
  const auto target = driver.CreateActor<Target>({});
  ASSERT_THAT(target, IsOk());
  EXPECT_THAT(
      target->Call<&Target::Variable>("MINIRAY_SILENCE_TIMEOUT").Get(kPatience),
      IsOkAndHolds("1m30s"));
}

// Where there is no room for one beside what goes on, a group is served all the
// same, and soon.
TEST(GroupPatienceTest, NodesAreHeldForAGroupAfterIt) {
  RealCluster real({.num_nodes = 0, .head_flags = {"--group_patience=500ms"}});
  real.AddNode({"--num_cpus=2"});
  Cluster driver = real.Connect();
  const auto occupant = driver.CreateActor<Target>({.resources = {.cpu = 1}});
  ASSERT_THAT(occupant, IsOk());
  ASSERT_THAT(occupant->WaitReady(kPatience), IsOk());
  const auto group = driver.CreatePlacementGroup(
      {.strategy = PlacementStrategy::kPack, .bundles = {{.cpu = 2}}});
  ASSERT_THAT(group, IsOk());
  // It looks every second. Not a condition: nothing that can be seen changes.
  absl::SleepFor(absl::Seconds(3));
  const auto late = driver.CreateActor<Target>({.resources = {.cpu = 1}});
  ASSERT_THAT(late, IsOk());
  EXPECT_THAT(late->WaitReady(absl::Seconds(1)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  ASSERT_THAT(occupant->Kill(), IsOk());
  EXPECT_THAT(group->WaitReady(kPatience), IsOk());
}

TEST(DrainTimeoutTest, OutputThatSomethingElseHoldsOpenIsReadSoLong) {
  for (const auto& [flag, timeout] :
       {std::pair("--drain_timeout=100ms", absl::Milliseconds(100)),
        std::pair("--drain_timeout=4s", absl::Seconds(4))}) {
    RealCluster real({.node_flags = {flag}});
    Cluster driver = real.Connect();
    const auto target = driver.CreateActor<Target>({});
    ASSERT_THAT(target, IsOk());
    const auto pid = target->Call<&Target::Pid>().Get(kPatience);
    ASSERT_THAT(pid, IsOk());
    const auto child = target->Call<&Target::LeaveChild>().Get(kPatience);
    ASSERT_THAT(child, IsOk());
    ASSERT_GT(*child, 1);
    const absl::Time begin = absl::Now();
    ASSERT_EQ(kill(static_cast<pid_t>(*pid), SIGKILL), 0);
    EXPECT_TRUE(Eventually([&] {
      return RealCluster::Info(driver, *target).state() == v1::ACTOR_STATE_DEAD;
    }));
    const absl::Duration took = absl::Now() - begin;
    EXPECT_TRUE(ProcessLives(*child)) << "it held nothing open";
    kill(static_cast<pid_t>(*child), SIGKILL);
    EXPECT_GE(took, timeout) << flag;
    EXPECT_LT(took, timeout + absl::Seconds(2)) << flag;
  }
}

// --- Waiting for the head.

TEST(FetchTimeoutTest, AProgramThatDoesNotComeInThatTimeIsGivenUp) {
  for (const bool in_time : {false, true}) {
    RealCluster real(
        {.node_flags = {
             "--inject_faults=Head/GetPackage:delay=1@3s",
             in_time ? "--fetch_timeout=1m" : "--fetch_timeout=1s"}});
    Cluster driver = real.Connect();
    const auto target = driver.CreateActor<Target>({});
    ASSERT_THAT(target, IsOk());
    const auto pid = target->Call<&Target::Pid>().Get(kPatience);
    if (in_time) {
      EXPECT_THAT(pid, IsOk());
    } else {
      EXPECT_THAT(pid, StatusIs(absl::StatusCode::kUnavailable,
                                AllOf(HasSubstr("could not be started"),
                                      HasSubstr("has not sent all of it "
                                                "within 1s"),
                                      HasSubstr("--fetch_timeout"))));
    }
  }
}

// Takes a node's registration, and never answers.
class SilentHead : public v1::Head::Service {
 public:
  SilentHead() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~SilentHead() override { server_->Shutdown(absl::ToChronoTime(absl::Now())); }

  grpc::Status AttachNode(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::NodeCommand, v1::NodeMessage>* stream)
      override {
    v1::NodeMessage message;
    if (stream->Read(&message)) ++registrations_;
    while (stream->Read(&message)) {
    }
    return grpc::Status::CANCELLED;
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  int registrations() const { return registrations_; }

 private:
  int port_ = 0;
  std::atomic<int> registrations_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST(AnswerTimeoutTest, AHeadThatTakesARegistrationAndIsSilentIsDialledAnew) {
  SilentHead head;
  ProcessTree tree;
  const RunResult result =
      tree.Run({BuiltProgram("tools/miniray"), "start", "--block", "--address",
                head.address(), "--num_cpus=1", "--answer_timeout=200ms",
                "--connect_timeout=4s"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err,
              HasSubstr("has not answered the registration of this node for "
                        "200ms"));
  EXPECT_GE(head.registrations(), 3);
}

// Whether an actor still knows the session of a caller, whose stream to it
// begins it or goes on with it, and then breaks.
bool ActorKnows(const v1::ActorInfo& actor, bool resume) {
  const auto stub = v1::ActorService::NewStub(MakeChannel(actor.address()));
  grpc::ClientContext context;
  PrepareContext(&context, /*token=*/"", kPatience);
  context.AddMetadata(kActorKey, actor.actor_id());
  context.AddMetadata(kIncarnationKey, "0");
  context.AddMetadata(kCallerKey, "a-caller");
  if (resume) context.AddMetadata(kResumeKey, "1");
  const auto stream = stub->Channel(&context);
  v1::ReplyFrame frame;
  EXPECT_TRUE(stream->Read(&frame));
  EXPECT_TRUE(frame.has_session());
  context.TryCancel();
  (void)stream->Finish();
  return frame.session().known();
}

TEST(SessionLifeTest, AnActorRemembersACallerWhoseLinkBrokeSoLong) {
  for (const auto& [flag, remembers] :
       {std::pair("--session_life=500ms", false),
        std::pair("--session_life=1m", true)}) {
    RealCluster real({.head_flags = {flag, "--reconnect_timeout=500ms"}});
    Cluster driver = real.Connect();
    const auto target = driver.CreateActor<Target>({});
    ASSERT_THAT(target, IsOk());
    ASSERT_THAT(target->WaitReady(kPatience), IsOk());
    const v1::ActorInfo info = RealCluster::Info(driver, *target);
    EXPECT_FALSE(ActorKnows(info, /*resume=*/false));
    // Not a condition: so long nobody has the session.
    absl::SleepFor(absl::Seconds(2));
    EXPECT_EQ(ActorKnows(info, /*resume=*/true), remembers) << flag;
  }
}

// The head tells its drivers: without the flag it is a minute.
TEST(ReconnectTimeoutTest, CallsWaitForAnActorOutOfReachAsLongAsTheHeadSays) {
  RealCluster real({.head_flags = {"--reconnect_timeout=1s"}});
  Cluster driver = real.Connect();
  const auto target = driver.CreateActor<Target>({});
  ASSERT_THAT(target, IsOk());
  ASSERT_THAT(target->WaitReady(kPatience), IsOk());
  const auto pid = static_cast<pid_t>(RealCluster::Info(driver, *target).pid());
  // It takes connections, and answers nobody.
  ASSERT_TRUE(StopProcess(pid));
  const auto answer = target->Call<&Target::Pid>().Get(absl::Seconds(40));
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(answer.status().message()),
              HasSubstr("could not be reached for 1"));
  kill(pid, SIGCONT);
}

// A process that lived for longer is no reason for a pause.
TEST(LongLifeTest, AProcessThatLivedSoLongRestartsAtOnce) {
  RealCluster real(
      {.head_flags = {"--long_life=0s", "--max_restart_delay=1h"}});
  Cluster driver = real.Connect();
  auto target = driver.CreateActor<Target>({.max_restarts = -1});
  ASSERT_THAT(target, IsOk());
  // The pauses would be 0, 0.1, 0.2, ... s: 51 s for the last.
  for (int i = 0; i < 11; ++i) {
    const auto pid = target->With({.max_retries = 5})
                         .Call<&Target::Pid>()
                         .Get(absl::Seconds(20));
    ASSERT_THAT(pid, IsOk()) << i;
    ASSERT_EQ(kill(static_cast<pid_t>(*pid), SIGKILL), 0);
    ASSERT_TRUE(Eventually([&] {
      return RealCluster::Info(driver, *target).restarts() == i + 1;
    }));
  }
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
