// Values that are put, passed and kept, end to end: real processes, a real
// head, two nodes.

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/tcp_proxy.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(50);

class Reader {
 public:
  int64_t Size(const std::string& text) { return text.size(); }
  int64_t Sum(int64_t a, int64_t b) { return a + b; }
  int64_t Slow(int64_t n) {
    usleep(100'000);
    return n;
  }
  std::string Make(int64_t size) { return std::string(size, 'm'); }
  int64_t Fail() { throw std::runtime_error("no number today"); }
  void Die() { kill(getpid(), SIGKILL); }

  // References themselves.
  absl::StatusOr<int64_t> SizeOf(ObjectRef<std::string> ref) {
    MR_ASSIGN_OR_RETURN(const std::string text, ref.Get(kLong));
    return text.size();
  }
  absl::StatusOr<int64_t> SizeOfAll(
      const std::vector<ObjectRef<std::string>>& refs) {
    int64_t size = 0;
    for (const auto& ref : refs) {
      MR_ASSIGN_OR_RETURN(const std::string text, ref.Get(kLong));
      size += text.size();
    }
    return size;
  }
  // Hands a reference on to another actor.
  absl::StatusOr<int64_t> PassOn(ObjectRef<std::string> ref,
                                 ActorHandle<Reader> other);
  // Puts a value and has another actor read it; keeps it or not.
  absl::StatusOr<int64_t> PutFor(int64_t size, ActorHandle<Reader> other);
  absl::StatusOr<int64_t> HoldFor(int64_t size, ActorHandle<Reader> other);

 private:
  ObjectRef<std::string> held_;
};
MINIRAY_ACTOR(Reader, Constructor<>, &Reader::Size, &Reader::Sum, &Reader::Slow,
              &Reader::Make, &Reader::Fail, &Reader::Die, &Reader::SizeOf,
              &Reader::SizeOfAll, &Reader::PassOn, &Reader::PutFor,
              &Reader::HoldFor);

absl::StatusOr<int64_t> Reader::PassOn(ObjectRef<std::string> ref,
                                       ActorHandle<Reader> other) {
  return other.Call<&Reader::Size>(ref).Get(kLong);
}

absl::StatusOr<int64_t> Reader::PutFor(int64_t size,
                                       ActorHandle<Reader> other) {
  auto ref = ActorContext::Current()->cluster().Put(std::string(size, 'p'));
  return other.Call<&Reader::Size>(ref).Get(kLong);
}

absl::StatusOr<int64_t> Reader::HoldFor(int64_t size,
                                        ActorHandle<Reader> other) {
  held_ = ActorContext::Current()->cluster().Put(std::string(size, 'h'));
  return other.Call<&Reader::Size>(held_).Get(kLong);
}

int64_t ObjectsIn(TestCluster& cluster, size_t nodes) {
  int64_t objects = 0;
  for (size_t i = 0; i < nodes; ++i) {
    objects += cluster.daemon(i).object_stats().objects;
  }
  return objects;
}

// Set in a process that is a driver and no test.
constexpr char kDriverVariable[] = "MINIRAY_OBJECTS_TEST_DRIVER";

// A driver that puts a value, says so, and waits to be killed.
int RunDriver(const std::string& address) {
  auto cluster = Cluster::Connect({.address = address});
  if (!cluster.ok()) return 1;
  const ObjectRef<std::string> ref = cluster->Put(std::string(1'000'000, 'd'));
  if (!ref.Get(kLong).ok() || write(STDOUT_FILENO, "x", 1) != 1) return 1;
  pause();
  return 0;
}

// Readers that fill both nodes.
std::vector<ActorHandle<Reader>> Readers(const Cluster& driver, int count) {
  std::vector<ActorHandle<Reader>> readers;
  for (int i = 0; i < count; ++i) {
    auto reader = driver.CreateActor<Reader>({});
    EXPECT_THAT(reader, IsOk());
    readers.push_back(*reader);
  }
  for (const auto& reader : readers) {
    EXPECT_THAT(reader.WaitReady(kLong), IsOk());
  }
  return readers;
}

TEST(ObjectsTest, AValuePutOnceIsSentToEachNodeOnce) {
  TestCluster cluster({.node_cpus = {4, 4}});
  Cluster driver = cluster.Connect();
  const std::vector<ActorHandle<Reader>> readers = Readers(driver, 8);
  const std::string text(30'000'000, 't');
  {
    ObjectRef<std::string> ref = driver.Put(text);
    EXPECT_EQ(ref.Get(kLong)->size(), text.size());
    const int64_t served = cluster.daemon(0).object_stats().served +
                           cluster.daemon(1).object_stats().served;
    std::vector<ObjectRef<int64_t>> sizes;
    for (const auto& reader : readers) {
      sizes.push_back(reader.Call<&Reader::Size>(ref));
      sizes.push_back(reader.Call<&Reader::SizeOf>(ref));
    }
    const auto values = GetAll(sizes, kLong);
    ASSERT_THAT(values, IsOk());
    EXPECT_THAT(*values, testing::Each(30'000'000));
    // One of the two nodes had it, the other one fetched it, once.
    EXPECT_EQ(cluster.daemon(0).object_stats().fetched +
                  cluster.daemon(1).object_stats().fetched,
              1);
    EXPECT_EQ(cluster.daemon(0).object_stats().served +
                  cluster.daemon(1).object_stats().served,
              served + 1);
  }
  // Both copies go with the last reference.
  EXPECT_TRUE(Eventually([&] {
    return cluster.daemon(0).object_stats().objects == 0 &&
           cluster.daemon(1).object_stats().objects == 0;
  }));
}

TEST(ObjectsTest, ALargeValueIsPutAndRead) {
  TestCluster cluster({.node_cpus = {2}});
  Cluster driver = cluster.Connect();
  const std::vector<ActorHandle<Reader>> readers = Readers(driver, 1);
  ObjectRef<std::string> ref = driver.Put(std::string(200'000'000, 'x'));
  EXPECT_EQ(*readers[0].Call<&Reader::Size>(ref).Get(kLong), 200'000'000);
  // Tag, length and what aligns the bytes.
  EXPECT_GE(cluster.daemon(0).object_stats().bytes, 200'000'005);
  EXPECT_LE(cluster.daemon(0).object_stats().bytes, 200'000'005 + 66);
}

TEST(ObjectsTest, AReferenceHoldsItsValueUntilTheCallsThatUseItAreDone) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  const std::vector<ActorHandle<Reader>> readers = Readers(driver, 1);
  auto slow = readers[0].Call<&Reader::Slow>(1);
  // Temporaries: nobody else holds the references.
  auto size = readers[0].Call<&Reader::Size>(driver.Put(std::string(10, 'x')));
  auto all =
      readers[0].Call<&Reader::SizeOfAll>(std::vector<ObjectRef<std::string>>{
          driver.Put(std::string(20, 'x')), driver.Put(std::string(30, 'x'))});
  EXPECT_EQ(*size.Get(kLong), 10);
  EXPECT_EQ(*all.Get(kLong), 50);
  EXPECT_TRUE(Eventually(
      [&] { return cluster.daemon(0).object_stats().objects == 0; }));
}

TEST(ObjectsTest, ObjectsEndWithTheirJobAndTheirNode) {
  TestCluster cluster({.node_cpus = {2, 2}});
  {
    Cluster driver = cluster.Connect();
    auto ref = driver.Put(std::string(1000, 'x'));
    ASSERT_THAT(ref.Get(kLong), IsOk());
    // The driver goes without having freed it.
    driver.Shutdown();
    EXPECT_THAT(ref.Get(kLong), StatusIs(absl::StatusCode::kCancelled));
  }
  EXPECT_TRUE(Eventually([&] {
    return cluster.daemon(0).object_stats().objects == 0 &&
           cluster.daemon(1).object_stats().objects == 0;
  }));
  Cluster driver = cluster.Connect();
  auto ref = driver.Put(std::string(1000, 'x'));
  ASSERT_THAT(ref.Get(kLong), IsOk());
  const size_t holder = cluster.daemon(0).object_stats().objects > 0 ? 0 : 1;
  cluster.StopDaemon(holder);
  EXPECT_THAT(ref.Get(kLong), StatusIs(absl::StatusCode::kUnavailable,
                                       HasSubstr("node's store at")));
}

TEST(ObjectsTest, WhatNobodyElseHoldsEndsWithTheProcessThatPutIt) {
  TestCluster cluster({.node_cpus = {2, 2}});
  Cluster driver = cluster.Connect();
  const std::vector<ActorHandle<Reader>> readers = Readers(driver, 4);
  EXPECT_EQ(
      *readers[0].Call<&Reader::HoldFor>(3'000'000, readers[1]).Get(kLong),
      3'000'000);
  EXPECT_EQ(
      *readers[0].Call<&Reader::HoldFor>(3'000'000, readers[3]).Get(kLong),
      3'000'000);
  EXPECT_GE(ObjectsIn(cluster, 2), 1);
  EXPECT_FALSE(readers[0].Call<&Reader::Die>().Get(kLong).ok());
  EXPECT_TRUE(Eventually([&] { return ObjectsIn(cluster, 2) == 0; }));
}

TEST(ObjectsTest, ADetachedActorPutsValuesAfterItsDriverHasLeft) {
  TestCluster cluster;
  {
    Cluster first = cluster.Connect();
    auto kept = first.CreateActor<Reader>({.name = "kept", .detached = true});
    ASSERT_THAT(kept, IsOk());
    ASSERT_THAT(kept->WaitReady(kLong), IsOk());
    ASSERT_THAT(first.Put(std::string(1000, 'x')).Get(kLong), IsOk());
    const auto ref = first.Put(std::string(1000, 'x'));
    ASSERT_THAT(ref.Get(kLong), IsOk());
    first.Shutdown();
  }
  // The end of its job has come to the node.
  ASSERT_TRUE(Eventually([&] { return ObjectsIn(cluster, 1) == 0; }));
  Cluster driver = cluster.Connect();
  const std::vector<ActorHandle<Reader>> readers = Readers(driver, 1);
  auto kept = driver.GetActor<Reader>("kept");
  ASSERT_THAT(kept, IsOk());
  EXPECT_EQ(*kept->Call<&Reader::HoldFor>(1'000'000, readers[0]).Get(kLong),
            1'000'000);
  EXPECT_EQ(ObjectsIn(cluster, 1), 1);
}

TEST(ObjectsTest, InASharedProcessValuesEndWithTheProcess) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  std::vector<ActorHandle<Reader>> light;
  for (int i = 0; i < 2; ++i) {
    light.push_back(*driver.CreateActor<Reader>(
        {.resources = {.cpu = 0}, .shared_process = "light"}));
    ASSERT_THAT(light.back().WaitReady(kLong), IsOk());
  }
  ASSERT_EQ(cluster.Info(light[0]).pid(), cluster.Info(light[1]).pid());
  EXPECT_EQ(*light[1].Call<&Reader::HoldFor>(1'000'000, light[0]).Get(kLong),
            1'000'000);
  EXPECT_EQ(ObjectsIn(cluster, 1), 1);
  // The first one, of which the process has its name.
  ASSERT_THAT(light[0].Kill(), IsOk());
  EXPECT_TRUE(Eventually(
      [&] { return cluster.Info(light[0]).state() == v1::ACTOR_STATE_DEAD; }));
  EXPECT_EQ(*light[1].Call<&Reader::Sum>(1, 2).Get(kLong), 3);
  EXPECT_EQ(ObjectsIn(cluster, 1), 1);
  EXPECT_FALSE(light[1].Call<&Reader::Die>().Get(kLong).ok());
  EXPECT_TRUE(Eventually([&] { return ObjectsIn(cluster, 1) == 0; }));
}

TEST(ObjectsTest, WhatAKilledDriverHasPutEndsWithIt) {
  TestCluster cluster;
  int said[2];
  ASSERT_EQ(pipe2(said, O_CLOEXEC), 0);
  const std::string variable =
      absl::StrCat(kDriverVariable, "=", cluster.address());
  std::vector<char*> environment = {const_cast<char*>(variable.c_str())};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    environment.push_back(*entry);
  }
  environment.push_back(nullptr);
  char program[] = "objects_test";
  char* const argv[] = {program, nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, said[1], STDOUT_FILENO);
  pid_t child = 0;
  ASSERT_EQ(posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv,
                        environment.data()),
            0);
  posix_spawn_file_actions_destroy(&actions);
  close(said[1]);
  char byte;
  EXPECT_EQ(read(said[0], &byte, 1), 1);
  close(said[0]);
  EXPECT_EQ(ObjectsIn(cluster, 1), 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(Eventually([&] { return ObjectsIn(cluster, 1) == 0; },
                         absl::Seconds(30)));
}

TEST(ObjectsTest, ValuesThatHaveNoRoomInMemoryAreReadFromDisk) {
  TestCluster cluster(
      {.node_cpus = {2, 2}, .configure_node = [](WorkerDaemon::Options* node) {
         node->object_store_bytes = 25'000'000;
       }});
  Cluster driver = cluster.Connect();
  const std::vector<ActorHandle<Reader>> readers = Readers(driver, 4);
  std::vector<ObjectRef<std::string>> refs;
  for (int i = 0; i < 6; ++i) {
    refs.push_back(driver.Put(std::string(10'000'000, 'x')));
    ASSERT_THAT(refs.back().Get(kLong), IsOk());
  }
  EXPECT_EQ(cluster.daemon(0).object_stats().spilled_objects +
                cluster.daemon(1).object_stats().spilled_objects,
            4);
  std::vector<ObjectRef<int64_t>> sizes;
  for (const auto& reader : readers) {
    sizes.push_back(reader.Call<&Reader::SizeOfAll>(refs));
  }
  const auto values = GetAll(sizes, kLong);
  ASSERT_THAT(values, IsOk());
  EXPECT_THAT(*values, testing::Each(60'000'000));
  refs.clear();
  sizes.clear();
  EXPECT_TRUE(Eventually([&] { return ObjectsIn(cluster, 2) == 0; }));
}

TEST(ObjectsTest, ANodeThatIsCutOffWhenAJobEndsFreesItsValuesLater) {
  std::unique_ptr<TcpProxy> proxy;
  TestCluster cluster({.configure_node = [&](WorkerDaemon::Options* node) {
    proxy = std::make_unique<TcpProxy>(node->head_address);
    node->head_address = proxy->address();
  }});
  const auto node_is = [&](v1::NodeState state) {
    return cluster.head().GetState().nodes(0).state() == state;
  };
  {
    Cluster driver = cluster.Connect();
    auto ref = driver.Put(std::string(1000, 'x'));
    ASSERT_THAT(ref.Get(kLong), IsOk());
    proxy->Refuse(true);
    proxy->Cut();
    ASSERT_TRUE(Eventually([&] { return !node_is(v1::NODE_STATE_ALIVE); }));
    driver.Shutdown();
  }
  ASSERT_TRUE(Eventually([&] {
    return cluster.head().GetState().jobs(0).state() == v1::JOB_STATE_SUCCEEDED;
  }));
  EXPECT_EQ(ObjectsIn(cluster, 1), 1);
  proxy->Refuse(false);
  EXPECT_TRUE(Eventually([&] { return ObjectsIn(cluster, 1) == 0; },
                         absl::Seconds(30)));
}

TEST(ObjectsTest, ADriverWithTheJobIdOfAnEarlierOnePutsToo) {
  TestCluster cluster;
  for (int i = 0; i < 2; ++i) {
    auto driver =
        Cluster::Connect({.address = cluster.address(), .job_id = "nightly"});
    ASSERT_THAT(driver, IsOk());
    auto ref = driver->Put(std::string(1000, 'x'));
    EXPECT_THAT(ref.Get(kLong), IsOk());
    driver->Shutdown();
    EXPECT_TRUE(Eventually(
        [&] { return cluster.daemon(0).object_stats().objects == 0; }));
  }
}

TEST(ObjectsTest, ResultsArePassedToOtherCalls) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  const std::vector<ActorHandle<Reader>> readers = Readers(driver, 2);
  // A chain that is built at once; later calls keep their order behind it.
  auto one = readers[0].Call<&Reader::Slow>(1);
  auto three = readers[1].Call<&Reader::Sum>(one, 2);
  auto behind = readers[1].Call<&Reader::Sum>(0, 0);
  auto six = readers[1].Call<&Reader::Sum>(three, three);
  EXPECT_THAT(std::string(three.Get(absl::Milliseconds(1)).status().message()),
              HasSubstr("waits for its argument 1, Reader.Slow"));
  EXPECT_FALSE(behind.ready());
  EXPECT_EQ(*six.Get(kLong), 6);
  EXPECT_TRUE(behind.ready());
  // What an argument dies of, its call dies of.
  auto failed = readers[0].Call<&Reader::Fail>();
  EXPECT_THAT(readers[1].Call<&Reader::Sum>(1, failed).Get(kLong),
              StatusIs(absl::StatusCode::kUnknown,
                       AllOf(HasSubstr("argument 2"), HasSubstr("Reader.Fail"),
                             HasSubstr("no number today"))));
  // One that waits for its argument can be cancelled.
  auto slow = readers[0].Call<&Reader::Slow>(1);
  auto cancelled = readers[1].Call<&Reader::Sum>(slow, 1);
  Cancel(cancelled);
  EXPECT_THAT(cancelled.Get(kLong), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(slow.Get(kLong), IsOk());
}

TEST(ObjectsTest, AKeptResultDoesNotPassTheDriver) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  const std::vector<ActorHandle<Reader>> readers = Readers(driver, 3);
  auto kept_bytes = [&] { return cluster.daemon(0).object_stats().bytes; };
  {
    auto made =
        readers[0].With({.keep_result = true}).Call<&Reader::Make>(20'000'000);
    // Passed on before it exists: by value, by reference, and through another
    // actor.
    auto size = readers[1].Call<&Reader::Size>(made);
    auto size_of = readers[2].Call<&Reader::SizeOf>(made);
    EXPECT_EQ(*size.Get(kLong), 20'000'000);
    EXPECT_EQ(*size_of.Get(kLong), 20'000'000);
    EXPECT_EQ(*readers[1].Call<&Reader::PassOn>(made, readers[2]).Get(kLong),
              20'000'000);
    // The driver has no more than the reference ...
    EXPECT_LT(made.state()->Wait(kLong)->size(), 500u);
    EXPECT_GE(kept_bytes(), 20'000'000);
    // ... until it asks for the value.
    EXPECT_EQ(made.Get(kLong)->size(), 20'000'000u);
  }
  EXPECT_TRUE(Eventually([&] { return kept_bytes() == 0; }));
}

TEST(ObjectsTest, AKeptResultComesToEachNodeOnce) {
  TestCluster cluster({.node_cpus = {4, 4}});
  Cluster driver = cluster.Connect();
  const std::vector<ActorHandle<Reader>> readers = Readers(driver, 8);
  auto made =
      readers[0].With({.keep_result = true}).Call<&Reader::Make>(5'000'000);
  std::vector<ObjectRef<int64_t>> sizes;
  for (const auto& reader : readers) {
    sizes.push_back(reader.Call<&Reader::Size>(made));
    sizes.push_back(reader.Call<&Reader::SizeOf>(made));
  }
  const auto values = GetAll(sizes, kLong);
  ASSERT_THAT(values, IsOk());
  EXPECT_THAT(*values, testing::Each(5'000'000));
  // The maker's node has it.
  EXPECT_EQ(cluster.daemon(0).object_stats().fetched +
                cluster.daemon(1).object_stats().fetched,
            1);
}

TEST(ObjectsTest, AKeptResultOutlivesTheActorThatMadeIt) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  const std::vector<ActorHandle<Reader>> readers = Readers(driver, 2);
  for (const int64_t size : {10, 1'000'000}) {
    const std::vector<ActorHandle<Reader>> makers = Readers(driver, 1);
    auto made = makers[0].With({.keep_result = true}).Call<&Reader::Make>(size);
    ASSERT_THAT(made.state()->Wait(kLong), IsOk());
    EXPECT_FALSE(makers[0].Call<&Reader::Die>().Get(kLong).ok());
    ASSERT_TRUE(Eventually([&] {
      return cluster.Info(makers[0]).state() == v1::ACTOR_STATE_DEAD;
    }));
    const auto text = made.Get(kLong);
    ASSERT_THAT(text, IsOk());
    EXPECT_EQ(static_cast<int64_t>(text->size()), size);
    EXPECT_THAT(readers[1].Call<&Reader::Size>(made).Get(kLong),
                IsOkAndHolds(size));
    made = {};
    EXPECT_TRUE(Eventually(
        [&] { return cluster.daemon(0).object_stats().objects == 0; }));
  }
}

TEST(ObjectsTest, APlainResultIsNotPassedByReference) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  const std::vector<ActorHandle<Reader>> readers = Readers(driver, 1);
  auto made = readers[0].Call<&Reader::Make>(10);
  EXPECT_THAT(
      readers[0].Call<&Reader::SizeOf>(made).Get(kLong),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("keep_result")));
  EXPECT_THAT(
      readers[0]
          .Call<&Reader::SizeOfAll>(std::vector<ObjectRef<std::string>>{made})
          .Get(kLong),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("keep_result")));
  EXPECT_FALSE(readers[0]
                   .Call<&Reader::SizeOf>(ObjectRef<std::string>())
                   .Get(kLong)
                   .ok());
}

TEST(ObjectsTest, ActorsPutValuesToo) {
  TestCluster cluster({.node_cpus = {2, 2}});
  Cluster driver = cluster.Connect();
  const std::vector<ActorHandle<Reader>> readers = Readers(driver, 4);
  EXPECT_EQ(*readers[0].Call<&Reader::PutFor>(5'000'000, readers[3]).Get(kLong),
            5'000'000);
  EXPECT_EQ(*readers[3].Call<&Reader::PutFor>(6'000'000, readers[0]).Get(kLong),
            6'000'000);
  EXPECT_TRUE(Eventually([&] {
    return cluster.daemon(0).object_stats().objects == 0 &&
           cluster.daemon(1).object_stats().objects == 0;
  }));
}

}  // namespace
}  // namespace miniray

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  if (const char* address = std::getenv(miniray::kDriverVariable)) {
    return miniray::RunDriver(address);
  }
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kAbort);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
