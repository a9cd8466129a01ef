#include "runtime/base/framed_socket.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Frame(absl::string_view message) {
  std::string frame;
  for (int i = 0; i < 4; ++i) {
    frame.push_back(static_cast<char>(message.size() >> (8 * i)));
  }
  return frame.append(message.data(), message.size());
}

class FramedSocketTest : public ::testing::Test {
 protected:
  FramedSocketTest() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    ours_ = ScopedFd(fds[0]);
    theirs_ = ScopedFd(fds[1]);
  }

  void SendRaw(absl::string_view bytes) {
    ASSERT_EQ(send(theirs_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  ScopedFd ours_, theirs_;
};

TEST_F(FramedSocketTest, MessagesArriveWholeAndInOrder) {
  const std::vector<std::string> messages = {"", "a", std::string("\0\xff", 2),
                                             std::string(5000, 'x'), ""};
  for (const std::string& message : messages) {
    ASSERT_THAT(WriteFrame(theirs_.get(), message), IsOk());
  }
  for (const std::string& message : messages) {
    const auto read = ReadFrame(ours_.get());
    ASSERT_THAT(read, IsOk());
    EXPECT_EQ(*read, message);
  }
}

TEST_F(FramedSocketTest, TheLengthIsFourBytesLittleEndian) {
  ASSERT_THAT(WriteFrame(theirs_.get(), std::string(0x0102, 'x')), IsOk());
  char header[4];
  ASSERT_EQ(recv(ours_.get(), header, 4, MSG_WAITALL), 4);
  EXPECT_THAT(header, ElementsAre(2, 1, 0, 0));
}

TEST_F(FramedSocketTest, AMessageBeyondTheSocketsBufferPassesInPieces) {
  std::string big(8 << 20, '\0');
  for (size_t i = 0; i < big.size(); ++i) big[i] = static_cast<char>(i * 7);
  std::thread writer(
      [&] { EXPECT_THAT(WriteFrame(theirs_.get(), big), IsOk()); });
  const auto read = ReadFrame(ours_.get());
  writer.join();
  ASSERT_THAT(read, IsOk());
  EXPECT_TRUE(*read == big);
}

TEST_F(FramedSocketTest, AMessageSplitAtEveryByteIsPutTogether) {
  const std::string frame = Frame("hello");
  std::thread writer([&] {
    for (char c : frame) SendRaw(absl::string_view(&c, 1));
  });
  EXPECT_EQ(ReadFrame(ours_.get()).value(), "hello");
  writer.join();
}

TEST_F(FramedSocketTest, PeerClosedBetweenMessages) {
  SendRaw(Frame("last"));
  theirs_.reset();
  EXPECT_EQ(ReadFrame(ours_.get()).value(), "last");
  EXPECT_THAT(ReadFrame(ours_.get()),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("closed")));
}

TEST_F(FramedSocketTest, PeerClosedWithinAMessage) {
  const std::string frame = Frame("hello");
  for (size_t cut = 1; cut < frame.size(); ++cut) {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    const ScopedFd ours(fds[0]);
    theirs_ = ScopedFd(fds[1]);
    SendRaw(absl::string_view(frame).substr(0, cut));
    theirs_.reset();
    EXPECT_THAT(ReadFrame(ours.get()),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr("closed within a message")))
        << cut;
  }
}

TEST_F(FramedSocketTest, AHostileLengthIsRefusedBeforeAnythingIsAllocated) {
  SendRaw("\xff\xff\xff\xff");
  EXPECT_THAT(ReadFrame(ours_.get()),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("4294967295"), HasSubstr("67108864"))));
}

TEST_F(FramedSocketTest, TheLimitItselfIsTaken) {
  SendRaw(Frame("12345"));
  EXPECT_EQ(ReadFrame(ours_.get(), 5).value(), "12345");
  SendRaw(Frame("123456"));
  EXPECT_THAT(ReadFrame(ours_.get(), 5), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(FramedSocketTest, WritingToAPeerThatIsGone) {
  theirs_.reset();
  EXPECT_THAT(WriteFrame(ours_.get(), "hello"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("send")));
}

TEST_F(FramedSocketTest, WritingWhatALengthCannotSay) {
  const char byte = 0;
  // Only its size is looked at.
  EXPECT_THAT(
      WriteFrame(ours_.get(), absl::string_view(&byte, size_t{1} << 32)),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("4294967296")));
}

TEST_F(FramedSocketTest, ErrorsOfTheDescriptorAreReported) {
  EXPECT_THAT(ReadFrame(-1), StatusIs(absl::StatusCode::kUnknown,
                                      HasSubstr("Bad file descriptor")));
  EXPECT_THAT(WriteFrame(-1, "x"), StatusIs(absl::StatusCode::kUnknown,
                                            HasSubstr("Bad file descriptor")));
}

TEST_F(FramedSocketTest, SignalsDoNotCutAMessage) {
  struct sigaction action = {}, old;
  action.sa_handler = [](int) {};  // Without SA_RESTART: recv gives EINTR.
  ASSERT_EQ(sigaction(SIGUSR1, &action, &old), 0);
  std::string text;
  std::thread reader([&] { text = ReadFrame(ours_.get()).value_or("failed"); });
  const std::string frame = Frame("hello");
  for (char c : frame) {
    for (int i = 0; i < 20; ++i) {
      pthread_kill(reader.native_handle(), SIGUSR1);
      std::this_thread::yield();
    }
    SendRaw(absl::string_view(&c, 1));
  }
  reader.join();
  EXPECT_EQ(text, "hello");
  sigaction(SIGUSR1, &old, nullptr);
}

TEST(FrameParserTest, PiecesOfEverySize) {
  const std::vector<std::string> messages = {"one", "", std::string(300, 'z'),
                                             "four"};
  std::string stream;
  for (const std::string& message : messages) stream += Frame(message);
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    FrameParser parser;
    std::vector<std::string> read;
    for (size_t at = 0; at < stream.size(); at += piece) {
      parser.Feed(absl::string_view(stream).substr(at, piece));
      while (true) {
        auto next = parser.Next();
        ASSERT_THAT(next, IsOk());
        if (!next->has_value()) break;
        read.push_back(**std::move(next));
      }
    }
    EXPECT_EQ(read, messages) << piece;
  }
}

TEST(FrameParserTest, NothingYet) {
  FrameParser parser;
  EXPECT_EQ(parser.Next().value(), std::nullopt);
  parser.Feed(Frame("hello").substr(0, 8));
  EXPECT_EQ(parser.Next().value(), std::nullopt);
  EXPECT_EQ(parser.Next().value(), std::nullopt);
  parser.Feed("o");
  EXPECT_EQ(parser.Next().value(), "hello");
  EXPECT_EQ(parser.Next().value(), std::nullopt);
}

TEST(FrameParserTest, AHostileLengthIsRefusedAtTheHeader) {
  FrameParser parser(10);
  parser.Feed(Frame("good") + std::string("\x0b\0\0\0", 4));
  EXPECT_EQ(parser.Next().value(), "good");
  EXPECT_THAT(parser.Next(),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("11 bytes"), HasSubstr("at most 10"))));
  // And stays refused: there is no way back into step.
  parser.Feed(Frame("good"));
  EXPECT_THAT(parser.Next(), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(FrameParserTest, ManySmallMessagesInOnePieceTakeLinearTime) {
  std::string stream;
  constexpr int kCount = 200000;
  for (int i = 0; i < kCount; ++i) stream += Frame("x");
  FrameParser parser;
  parser.Feed(stream);
  int count = 0;
  while (true) {
    auto next = parser.Next();
    ASSERT_THAT(next, IsOk());
    if (!next->has_value()) break;
    ++count;
  }
  EXPECT_EQ(count, kCount);
}

}  // namespace
}  // namespace miniray
