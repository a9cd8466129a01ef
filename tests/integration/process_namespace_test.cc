// A node in a process namespace of its own, as each container is one: nobody
// there can open the memory of a process out here, nor the other way round.
// Tensors and objects take the stream then, by themselves.

#include <unistd.h>

#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/api/miniray.h"
#include "runtime/tensor/tensor_codec.h"
#include "tests/integration/real_cluster.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// 8 MB; far more than what travels within a message in any case.
constexpr int64_t kElements = 2 << 20;

class Adder {
 public:
  // As its own namespace counts.
  int64_t Pid() const { return getpid(); }
  // Keeps what it got, so that what it maps can be looked at.
  at::Tensor Add(at::Tensor tensor, double value) {
    last_ = std::move(tensor);
    return last_.add(value);
  }

 private:
  at::Tensor last_;
};
MINIRAY_ACTOR(Adder, Constructor<>, &Adder::Pid, &Adder::Add);

// The inodes of Mini-Ray's memory that a process has mapped, as numbers in
// text: inodes are counted for the whole machine.
std::set<std::string> MappedMemory(pid_t pid) {
  std::ifstream maps(absl::StrCat("/proc/", pid, "/maps"));
  std::set<std::string> inodes;
  std::string line;
  while (std::getline(maps, line)) {
    if (!absl::StrContains(line, "memfd:miniray")) continue;
    std::istringstream words(line);
    std::string range, rights, offset, device, inode;
    words >> range >> rights >> offset >> device >> inode;
    inodes.insert(inode);
  }
  return inodes;
}

class ProcessNamespaceTest : public testing::Test {
 protected:
  void SetUp() override {
    const RunResult made = cluster_.tree().Run(
        {"/usr/bin/unshare", "--pid", "--fork", "--mount-proc", "/bin/true"});
    if (made.exit_code != 0) GTEST_SKIP() << made.err;
  }

  // Memory that this process and any of the cluster have both mapped.
  std::set<std::string> Shared() {
    const std::set<std::string> own = MappedMemory(getpid());
    std::set<std::string> shared;
    for (const pid_t pid : cluster_.tree().Living()) {
      for (const std::string& inode : MappedMemory(pid)) {
        if (own.contains(inode)) shared.insert(inode);
      }
    }
    return shared;
  }

  RealCluster cluster_{{.num_nodes = 0}};
};

TEST_F(ProcessNamespaceTest, TensorsAndObjectsTakeTheStream) {
  const auto contained = cluster_.tree().Start(
      {"/usr/bin/unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
       BuiltProgram("tools/miniray"), "start", "--block", "--address",
       cluster_.address(), "--num_cpus=2", "--labels=where=inside"});
  ASSERT_TRUE(absl::StrContains(contained->ReadLine(), "joined"));
  Cluster driver = cluster_.Connect();
  const at::Tensor sent = at::full({kElements}, 1, at::kFloat);

  auto inside =
      driver.CreateActor<Adder>({.node_labels = {{"where", "inside"}}});
  ASSERT_THAT(inside, IsOk());
  // Small numbers, as in a new namespace: it is another one.
  EXPECT_LT(inside->Call<&Adder::Pid>().Get().value(), 100);
  const auto sum = inside->Call<&Adder::Add>(sent, 2.0).Get();
  ASSERT_THAT(sum, IsOk());
  EXPECT_TRUE(at::equal(*sum, at::full({kElements}, 3, at::kFloat)));
  EXPECT_THAT(Shared(), IsEmpty());

  // An object of the node inside, read out here, and passed on as a reference.
  const auto put = driver.Put(sent);
  const auto of_put = inside->Call<&Adder::Add>(put, 3.0).Get();
  ASSERT_THAT(of_put, IsOk());
  EXPECT_TRUE(at::equal(*of_put, at::full({kElements}, 4, at::kFloat)));
  EXPECT_THAT(Shared(), IsEmpty());

  // Out here the same is shared: the question was a fair one.
  cluster_.AddNode({"--labels=where=outside"});
  auto outside =
      driver.CreateActor<Adder>({.node_labels = {{"where", "outside"}}});
  ASSERT_THAT(outside, IsOk());
  const auto shared_sum = outside->Call<&Adder::Add>(sent, 2.0).Get();
  ASSERT_THAT(shared_sum, IsOk());
  EXPECT_TRUE(at::equal(*shared_sum, at::full({kElements}, 3, at::kFloat)));
  EXPECT_THAT(Shared(), Not(IsEmpty()));

  // And between two actors, one on each side.
  const auto passed =
      inside->Call<&Adder::Add>(outside->Call<&Adder::Add>(sent, 5.0), 1.0);
  const auto both = passed.Get();
  ASSERT_THAT(both, IsOk());
  EXPECT_TRUE(at::equal(*both, at::full({kElements}, 7, at::kFloat)));
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
