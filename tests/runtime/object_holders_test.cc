// A value lives as long as any process has a reference to it. End to end: real
// processes, a real head, two nodes.

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;
using Ref = ObjectRef<std::string>;

constexpr absl::Duration kLong = absl::Seconds(50);
constexpr int64_t kSize = 100'000;

class Holder {
 public:
  int64_t Pid() const { return getpid(); }
  void Keep(Ref ref) { kept_ = {std::move(ref)}; }
  void KeepAll(std::vector<Ref> refs) { kept_ = std::move(refs); }
  void KeepNamed(const std::map<std::string, Ref>& refs) {
    for (const auto& [name, ref] : refs) kept_.push_back(ref);
  }
  std::string Make(int64_t size) { return std::string(size, 'm'); }
  // A value, for which a reference may stand.
  int64_t SizeOf(const std::string& text) { return text.size(); }
  void LetGo() { kept_.clear(); }
  absl::StatusOr<int64_t> KeptSize() {
    int64_t size = 0;
    for (const Ref& ref : kept_) {
      MR_ASSIGN_OR_RETURN(const std::string text, ref.Get(kLong));
      size += text.size();
    }
    return size;
  }
  // Puts a value and keeps no reference to it.
  Ref Give(int64_t size) {
    return ActorContext::Current()->cluster().Put(std::string(size, 'g'));
  }
  std::vector<Ref> GiveSome(int64_t count) {
    std::vector<Ref> refs;
    for (int64_t i = 0; i < count; ++i) refs.push_back(Give(10));
    return refs;
  }
  // The same inside of a large result, of any kind.
  std::pair<std::string, Ref> GiveLarge(int64_t size) {
    return {std::string(size, 'l'), Give(kSize)};
  }
  std::vector<Ref> Kept() { return kept_; }
  void Die() { kill(getpid(), SIGKILL); }
  // Has another actor keep what this one puts.
  absl::Status PutFor(ActorHandle<Holder> other);

 private:
  std::vector<Ref> kept_;
};
MINIRAY_ACTOR(Holder, Constructor<>, &Holder::Pid, &Holder::Keep,
              &Holder::KeepAll, &Holder::KeepNamed, &Holder::Make,
              &Holder::SizeOf, &Holder::LetGo, &Holder::KeptSize, &Holder::Give,
              &Holder::GiveSome, &Holder::GiveLarge, &Holder::Kept,
              &Holder::Die, &Holder::PutFor);

absl::Status Holder::PutFor(ActorHandle<Holder> other) {
  return other.Call<&Holder::Keep>(Give(kSize)).Get(kLong);
}

// Set in a process that is a node and no test: HEAD,FOLDER.
constexpr char kNodeVariable[] = "MINIRAY_OBJECT_HOLDERS_TEST_NODE";
// So that the holds of a node that is gone lapse after 10 s.
constexpr absl::Duration kCheckPeriod = absl::Milliseconds(500);

// A node that says that it is up, and waits to be killed.
int RunNode(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  WorkerDaemon::Options options;
  options.head_address = parts[0];
  options.session_dir = parts[1];
  (*options.resources.mutable_quantity())["CPU"] = 4;
  options.object_check_period = kCheckPeriod;
  auto daemon = WorkerDaemon::Start(options);
  if (!daemon.ok()) return 1;
  const std::string id = (*daemon)->node_id() + "\n";
  if (write(STDOUT_FILENO, id.data(), id.size()) < 0) return 1;
  pause();
  return 0;
}

class ObjectHoldersTest : public testing::Test {
 protected:
  ObjectHoldersTest()
      : cluster_({.node_cpus = {4, 4},
                  .configure_node = [](WorkerDaemon::Options* node) {
                    node->object_check_period = kCheckPeriod;
                  }}) {}

  int64_t ObjectsIn(size_t i) {
    return cluster_.daemon(i).object_stats().objects;
  }
  int64_t Bytes() {
    return cluster_.daemon(0).object_stats().bytes +
           cluster_.daemon(1).object_stats().bytes;
  }
  bool AllFreed() {
    return Eventually([&] { return Bytes() == 0; }, absl::Seconds(40));
  }

  // On the node `i`.
  ActorHandle<Holder> Create(size_t i, ActorOptions options = {}) {
    options.node_id = cluster_.daemon(i).node_id();
    auto holder = driver_.CreateActor<Holder>(options);
    EXPECT_THAT(holder, IsOk());
    EXPECT_THAT(holder->WaitReady(kLong), IsOk());
    return *holder;
  }

  // One on the node that the driver's values are in, one on the other.
  std::vector<ActorHandle<Holder>> OnBothNodes() {
    Ref ref = driver_.Put(std::string(kSize, 'x'));
    EXPECT_THAT(ref.Get(kLong), IsOk());
    source_ = ObjectsIn(0) > 0 ? 0 : 1;
    return {Create(source_), Create(1 - source_)};
  }

  TestCluster cluster_;
  Cluster driver_ = cluster_.Connect();
  size_t source_ = 0;
};

TEST_F(ObjectHoldersTest, AnActorKeepsWhatItWasPassed) {
  for (const auto& holder : OnBothNodes()) {
    ASSERT_TRUE(AllFreed());
    ASSERT_THAT(holder.Call<&Holder::Keep>(driver_.Put(std::string(kSize, 'x')))
                    .Get(kLong),
                IsOk());
    // The driver's reference is gone by now, and its word of that on the way.
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(holder.Call<&Holder::KeptSize>().Get(kLong),
                  IsOkAndHolds(kSize));
    }
    ASSERT_THAT(holder.Call<&Holder::LetGo>().Get(kLong), IsOk());
    EXPECT_TRUE(AllFreed());
  }
}

TEST_F(ObjectHoldersTest, AKilledActorKeepsNothing) {
  for (const auto& holder : OnBothNodes()) {
    ASSERT_TRUE(AllFreed());
    ASSERT_THAT(holder.Call<&Holder::Keep>(driver_.Put(std::string(kSize, 'x')))
                    .Get(kLong),
                IsOk());
    EXPECT_EQ(ObjectsIn(source_), 1);
    EXPECT_FALSE(holder.Call<&Holder::Die>().Get(kLong).ok());
    EXPECT_TRUE(AllFreed());
  }
}

TEST_F(ObjectHoldersTest, TheLastOfSeveralHoldersFreesIt) {
  const auto holders = OnBothNodes();
  ASSERT_TRUE(AllFreed());
  {
    const Ref ref = driver_.Put(std::string(kSize, 'x'));
    const std::map<std::string, Ref> named = {{"a", ref}, {"b", ref}};
    for (const auto& holder : holders) {
      ASSERT_THAT(holder.Call<&Holder::Keep>(ref).Get(kLong), IsOk());
      ASSERT_THAT(holder.Call<&Holder::KeepNamed>(named).Get(kLong), IsOk());
    }
    ASSERT_THAT(holders[0].Call<&Holder::LetGo>().Get(kLong), IsOk());
    EXPECT_THAT(ref.Get(kLong), IsOk());
  }
  EXPECT_THAT(holders[1].Call<&Holder::KeptSize>().Get(kLong),
              IsOkAndHolds(3 * kSize));
  // Passed on by one that is no putter, and held again by the first.
  ASSERT_THAT(
      holders[0]
          .Call<&Holder::KeepAll>(*holders[1].Call<&Holder::Kept>().Get(kLong))
          .Get(kLong),
      IsOk());
  ASSERT_THAT(holders[1].Call<&Holder::LetGo>().Get(kLong), IsOk());
  EXPECT_THAT(holders[0].Call<&Holder::KeptSize>().Get(kLong),
              IsOkAndHolds(3 * kSize));
  ASSERT_THAT(holders[0].Call<&Holder::LetGo>().Get(kLong), IsOk());
  EXPECT_TRUE(AllFreed());
}

TEST_F(ObjectHoldersTest, WhatIsPassedAsAValueIsNotHeld) {
  const auto holders = OnBothNodes();
  ASSERT_TRUE(AllFreed());
  for (const auto& holder : holders) {
    EXPECT_THAT(
        holder.Call<&Holder::SizeOf>(driver_.Put(std::string(kSize, 'x')))
            .Get(kLong),
        IsOkAndHolds(kSize));
    EXPECT_TRUE(AllFreed());
  }
}

TEST_F(ObjectHoldersTest, AValueOutlivesTheActorThatPutIt) {
  const auto holders = OnBothNodes();
  ASSERT_TRUE(AllFreed());
  for (size_t i = 0; i < 2; ++i) {
    const ActorHandle<Holder> putter = Create(i);
    ASSERT_THAT(putter.Call<&Holder::PutFor>(holders[0]).Get(kLong), IsOk());
    const int64_t pid = *putter.Call<&Holder::Pid>().Get(kLong);
    EXPECT_FALSE(putter.Call<&Holder::Die>().Get(kLong).ok());
    ASSERT_TRUE(Eventually([&] { return !ProcessLives(pid); }));
    ASSERT_TRUE(Eventually(
        [&] { return cluster_.Info(putter).state() == v1::ACTOR_STATE_DEAD; }));
    EXPECT_THAT(holders[0].Call<&Holder::KeptSize>().Get(kLong),
                IsOkAndHolds(kSize));
    ASSERT_THAT(holders[0].Call<&Holder::LetGo>().Get(kLong), IsOk());
    EXPECT_TRUE(AllFreed());
  }
}

TEST_F(ObjectHoldersTest, AResultThatWasAskedToStayIsHeldAsAValueThatWasPut) {
  const auto holders = OnBothNodes();
  ASSERT_TRUE(AllFreed());
  for (size_t i = 0; i < 2; ++i) {
    for (const bool dies : {false, true}) {
      const ActorHandle<Holder> maker = Create(i);
      {
        const Ref ref =
            maker.With({.keep_result = true}).Call<&Holder::Make>(kSize);
        // As soon as it is there, and before.
        for (const auto& holder : holders) {
          ASSERT_THAT(holder.Call<&Holder::Keep>(ref).Get(kLong), IsOk());
        }
      }
      if (dies) {
        EXPECT_FALSE(maker.Call<&Holder::Die>().Get(kLong).ok());
        ASSERT_TRUE(Eventually([&] {
          return cluster_.Info(maker).state() == v1::ACTOR_STATE_DEAD;
        }));
      }
      for (const auto& holder : holders) {
        EXPECT_THAT(holder.Call<&Holder::KeptSize>().Get(kLong),
                    IsOkAndHolds(kSize));
        ASSERT_THAT(holder.Call<&Holder::LetGo>().Get(kLong), IsOk());
      }
      EXPECT_TRUE(AllFreed());
    }
  }
}

TEST_F(ObjectHoldersTest, AReferenceInAResultOutlivesTheProducersOwn) {
  const auto holders = OnBothNodes();
  ASSERT_TRUE(AllFreed());
  for (const auto& holder : holders) {
    auto given = holder.Call<&Holder::Give>(kSize);
    // Not read before the producer has long let go of its own.
    ASSERT_THAT(holder.Call<&Holder::Pid>().Get(kLong), IsOk());
    auto ref = given.Get(kLong);
    ASSERT_THAT(ref, IsOk());
    given = {};
    ASSERT_THAT(holder.Call<&Holder::Pid>().Get(kLong), IsOk());
    EXPECT_THAT(ref->Get(kLong), IsOkAndHolds(std::string(kSize, 'g')));
    // Beyond the producer itself.
    auto another = *holder.Call<&Holder::Give>(kSize).Get(kLong);
    EXPECT_FALSE(holder.Call<&Holder::Die>().Get(kLong).ok());
    EXPECT_TRUE(Eventually(
        [&] { return cluster_.Info(holder).state() == v1::ACTOR_STATE_DEAD; }));
    EXPECT_THAT(another.Get(kLong), IsOk());
    EXPECT_THAT(ref->Get(kLong), IsOk());
    *ref = {};
    another = {};
    EXPECT_TRUE(AllFreed());
  }
}

TEST_F(ObjectHoldersTest, AResultThatNobodyReadsHoldsNothingForLong) {
  const auto holders = OnBothNodes();
  ASSERT_TRUE(AllFreed());
  {
    auto given = holders[0].Call<&Holder::Give>(kSize);
    auto dropped = holders[1].Call<&Holder::Give>(kSize);
    Wait(std::vector<ObjectRef<Ref>>{given, dropped}, 2, kLong);
    ASSERT_THAT(holders[1].Call<&Holder::Pid>().Get(kLong), IsOk());
    EXPECT_EQ(ObjectsIn(0) + ObjectsIn(1), 2);
  }
  EXPECT_TRUE(AllFreed());
}

TEST_F(ObjectHoldersTest, ResultsWithReferencesMayStayOrBePassedOn) {
  const auto holders = OnBothNodes();
  ASSERT_TRUE(AllFreed());
  {
    auto kept = holders[0]
                    .With({.keep_result = true})
                    .Call<&Holder::GiveLarge>(500'000);
    auto plain = holders[0].Call<&Holder::GiveLarge>(500'000);
    for (auto* result : {&kept, &plain}) {
      auto value = result->Get(kLong);
      ASSERT_THAT(value, IsOk());
      *result = {};
      ASSERT_THAT(holders[0].Call<&Holder::Pid>().Get(kLong), IsOk());
      EXPECT_THAT(value->second.Get(kLong), IsOk());
    }
    // As an argument, unread, and while nobody else has it.
    auto given = holders[1].Call<&Holder::GiveSome>(3);
    auto kept_there = holders[0].Call<&Holder::KeepAll>(given);
    given = {};
    ASSERT_THAT(kept_there.Get(kLong), IsOk());
  }
  EXPECT_THAT(holders[0].Call<&Holder::KeptSize>().Get(kLong),
              IsOkAndHolds(30));
  ASSERT_THAT(holders[0].Call<&Holder::LetGo>().Get(kLong), IsOk());
  EXPECT_TRUE(AllFreed());
}

TEST_F(ObjectHoldersTest, AThousandReferencesAreHeldAndLetGo) {
  const auto holders = OnBothNodes();
  ASSERT_TRUE(AllFreed());
  {
    std::vector<Ref> refs;
    for (int i = 0; i < 1000; ++i)
      refs.push_back(driver_.Put(std::string("x")));
    for (const auto& holder : holders) {
      ASSERT_THAT(holder.Call<&Holder::KeepAll>(refs).Get(kLong), IsOk());
    }
  }
  EXPECT_THAT(holders[1].Call<&Holder::KeptSize>().Get(kLong),
              IsOkAndHolds(1000));
  ASSERT_THAT(holders[1].Call<&Holder::LetGo>().Get(kLong), IsOk());
  EXPECT_THAT(holders[0].Call<&Holder::KeptSize>().Get(kLong),
              IsOkAndHolds(1000));
  ASSERT_THAT(holders[0].Call<&Holder::LetGo>().Get(kLong), IsOk());
  EXPECT_TRUE(AllFreed());
}

TEST_F(ObjectHoldersTest, DetachedActorsKeepAValueBeyondItsDriver) {
  const auto holders = OnBothNodes();
  ASSERT_TRUE(AllFreed());
  const Ref ref = driver_.Put(std::string(kSize, 'x'));
  for (size_t i = 0; i < 2; ++i) {
    const auto keeper =
        Create(i, {.name = absl::StrCat("keeper", i), .detached = true});
    ASSERT_THAT(keeper.Call<&Holder::Keep>(ref).Get(kLong), IsOk());
    ASSERT_THAT(holders[i].Call<&Holder::Keep>(ref).Get(kLong), IsOk());
  }
  driver_.Shutdown();  // With the reference, and the actors of its job.
  ASSERT_TRUE(Eventually([&] {
    return cluster_.head().GetState().jobs(0).state() ==
               v1::JOB_STATE_SUCCEEDED &&
           cluster_.Info(holders[0]).state() == v1::ACTOR_STATE_DEAD &&
           cluster_.Info(holders[1]).state() == v1::ACTOR_STATE_DEAD;
  }));
  Cluster next = cluster_.Connect();
  for (size_t i = 0; i < 2; ++i) {
    const auto keeper = next.GetActor<Holder>(absl::StrCat("keeper", i));
    ASSERT_THAT(keeper, IsOk());
    EXPECT_THAT(keeper->Call<&Holder::KeptSize>().Get(kLong),
                IsOkAndHolds(kSize));
    ASSERT_THAT(keeper->Kill(), IsOk());
  }
  EXPECT_TRUE(AllFreed());
}

TEST_F(ObjectHoldersTest, ADriverKeepsWhatItWasPassedUntilItLeaves) {
  const auto holders = OnBothNodes();
  ASSERT_TRUE(AllFreed());
  const auto keeper = Create(1 - source_, {.name = "giver", .detached = true});
  Cluster next = cluster_.Connect();
  const auto found = next.GetActor<Holder>("giver");
  ASSERT_THAT(found, IsOk());
  auto ref = found->Call<&Holder::Give>(kSize).Get(kLong);
  ASSERT_THAT(ref, IsOk());
  EXPECT_FALSE(found->Call<&Holder::Die>().Get(kLong).ok());
  EXPECT_TRUE(Eventually(
      [&] { return cluster_.Info(keeper).state() == v1::ACTOR_STATE_DEAD; }));
  EXPECT_THAT(ref->Get(kLong), IsOk());
  EXPECT_EQ(ObjectsIn(1 - source_), 1);
  next.Shutdown();  // With the reference.
  EXPECT_TRUE(AllFreed());
}

TEST_F(ObjectHoldersTest, ANodeThatIsKilledHoldsNothingAfterAWhile) {
  OnBothNodes();  // The driver puts into one of these from now on.
  ASSERT_TRUE(AllFreed());
  int said[2];
  ASSERT_EQ(pipe2(said, O_CLOEXEC), 0);
  const std::string variable = absl::StrCat(
      kNodeVariable, "=", cluster_.address(), ",", cluster_.NodeFolder(2));
  std::vector<char*> environment = {const_cast<char*>(variable.c_str())};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    environment.push_back(*entry);
  }
  environment.push_back(nullptr);
  char program[] = "object_holders_test";
  char* const argv[] = {program, nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, said[1], STDOUT_FILENO);
  pid_t node = 0;
  ASSERT_EQ(posix_spawn(&node, "/proc/self/exe", &actions, nullptr, argv,
                        environment.data()),
            0);
  posix_spawn_file_actions_destroy(&actions);
  close(said[1]);
  std::string node_id;
  char byte;
  while (read(said[0], &byte, 1) == 1 && byte != '\n') node_id += byte;
  close(said[0]);
  ASSERT_FALSE(node_id.empty());
  const auto holder = driver_.CreateActor<Holder>({.node_id = node_id});
  ASSERT_THAT(holder, IsOk());
  ASSERT_THAT(holder->Call<&Holder::Keep>(driver_.Put(std::string(kSize, 'x')))
                  .Get(kLong),
              IsOk());
  EXPECT_THAT(holder->Call<&Holder::KeptSize>().Get(kLong),
              IsOkAndHolds(kSize));
  EXPECT_GT(Bytes(), 0);
  kill(node, SIGKILL);
  waitpid(node, nullptr, 0);
  EXPECT_TRUE(AllFreed());
}

}  // namespace
}  // namespace miniray

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  if (const char* node = std::getenv(miniray::kNodeVariable)) {
    return miniray::RunNode(node);
  }
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kAbort);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
