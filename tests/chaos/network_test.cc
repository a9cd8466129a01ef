// A cut between two machines swallows what passes there, and nothing else.

#include "tools/havoc/network.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"

namespace miniray::havoc {
namespace {

constexpr int kMachines = 3;
constexpr uint16_t kPort = 4321;
// Of a packet that arrives; of one that must not.
constexpr int kPatienceSeconds = 10;
constexpr int kSilenceMilliseconds = 300;

// One UDP socket on each machine.
class NetworkTest : public testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<Network>> network =
        Network::Create(Network::Kind::kNamespaces, kMachines);
    if (!network.ok()) GTEST_SKIP() << network.status();
    network_ = *std::move(network);
    for (int i = 0; i < kMachines; ++i) {
      // A socket stays where it was made.
      std::thread([this, i] {
        ASSERT_TRUE(network_->Enter(i));
        sockets_[i] = ScopedFd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        const sockaddr_in address = Address(i);
        ASSERT_EQ(
            bind(sockets_[i].get(), reinterpret_cast<const sockaddr*>(&address),
                 sizeof(address)),
            0);
      }).join();
    }
  }
  void TearDown() override {
    if (network_ == nullptr) return;
    EXPECT_TRUE(network_->Remove().ok());
  }

  sockaddr_in Address(int machine) const {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(kPort);
    EXPECT_EQ(
        inet_pton(AF_INET, network_->Ip(machine).c_str(), &address.sin_addr),
        1);
    return address;
  }
  void Send(int from, int to) {
    const sockaddr_in address = Address(to);
    // Nobody tells the sender of a cut.
    EXPECT_EQ(
        sendto(sockets_[from].get(), "x", 1, 0,
               reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
        1);
  }
  // Whether something arrives within `patience`.
  bool Receives(int machine, timeval patience) {
    setsockopt(sockets_[machine].get(), SOL_SOCKET, SO_RCVTIMEO, &patience,
               sizeof(patience));
    char byte;
    return recv(sockets_[machine].get(), &byte, 1, 0) == 1;
  }
  bool Passes(int from, int to) {
    Send(from, to);
    return Receives(to, {.tv_sec = kPatienceSeconds});
  }
  bool IsSwallowed(int from, int to) {
    Send(from, to);
    return !Receives(to, {.tv_usec = kSilenceMilliseconds * 1000});
  }

  std::unique_ptr<Network> network_;
  std::array<ScopedFd, kMachines> sockets_;
};

TEST_F(NetworkTest, ACutIsBetweenTwoMachinesInBothDirections) {
  const int head = kHeadMachine, driver = kDriverMachine,
            node = kFirstNodeMachine;
  EXPECT_TRUE(Passes(head, node));
  ASSERT_TRUE(network_->Cut(head, node).ok());
  EXPECT_TRUE(IsSwallowed(head, node));
  EXPECT_TRUE(IsSwallowed(node, head));
  // Its peers still reach it.
  EXPECT_TRUE(Passes(driver, node));
  EXPECT_TRUE(Passes(node, driver));
  EXPECT_TRUE(Passes(driver, head));
  ASSERT_TRUE(network_->Heal(head, node).ok());
  EXPECT_TRUE(Passes(head, node));
  EXPECT_TRUE(Passes(node, head));
}

}  // namespace
}  // namespace miniray::havoc
