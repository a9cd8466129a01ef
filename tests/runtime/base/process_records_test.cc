#include "runtime/base/process_records.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "runtime/base/net.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A child that wrote a record and lives until it is ended here.
class RecordedChild {
 public:
  explicit RecordedChild(const ProcessRecord& record) {
    int ready[2], life[2];
    EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(life, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(life[1]);
      const char ok = WriteOwnProcessRecord(record).ok() ? 'y' : 'n';
      if (write(ready[1], &ok, 1) != 1) _exit(1);
      char end;
      while (read(life[0], &end, 1) > 0) {
      }
      _exit(0);
    }
    close(ready[1]);
    close(life[0]);
    life_ = ScopedFd(life[1]);
    const ScopedFd answer(ready[0]);
    char ok = 0;
    EXPECT_EQ(read(answer.get(), &ok, 1), 1);
    EXPECT_EQ(ok, 'y');
  }

  ~RecordedChild() {
    Kill();
    Reap();
  }

  pid_t pid() const { return pid_; }

  // Leaves a zombie.
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    siginfo_t info;
    waitid(P_PID, pid_, &info, WEXITED | WNOWAIT);
  }

  void Reap() {
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = -1;
  ScopedFd life_;
};

class ProcessRecordsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = absl::StrCat(::testing::TempDir(), "/records-XXXXXX");
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    ASSERT_EQ(setenv("MINIRAY_RUNTIME_DIR", folder.c_str(), 1), 0);
  }

  std::string PathOf(pid_t pid) const {
    return absl::StrCat(folder_, "/processes/", pid, ".json");
  }

  static bool Exists(const std::string& path) {
    return access(path.c_str(), F_OK) == 0;
  }

  std::string folder_;
};

std::vector<pid_t> ListedPids() {
  const auto records = ListProcessRecords();
  EXPECT_TRUE(records.ok()) << records.status();
  std::vector<pid_t> pids;
  if (records.ok()) {
    for (const ProcessRecord& record : *records) pids.push_back(record.pid);
  }
  return pids;
}

ProcessRecord Head(const std::string& address) {
  ProcessRecord record;
  record.address = address;
  return record;
}

TEST_F(ProcessRecordsTest, NothingRecorded) {
  EXPECT_THAT(ListedPids(), IsEmpty());
  EXPECT_EQ(MostRecentHeadAddress(), std::nullopt);
  EXPECT_EQ(TokenFor("127.0.0.1:6380"), std::nullopt);
  EXPECT_TRUE(RemoveProcessRecord(getpid()).ok());
}

TEST_F(ProcessRecordsTest, OwnRecordComesBackWhole) {
  ProcessRecord record;
  record.role = ProcessRole::kWorkerDaemon;
  record.address = "10.0.0.1:6380";
  record.listen_host = "10.0.0.2";
  record.dashboard_port = 8266;
  record.token = "secret";
  record.session_dir = "/somewhere/\xff session";  // Not UTF-8.
  record.node_id = "node-1";
  record.lifeline = true;
  ASSERT_TRUE(WriteOwnProcessRecord(record).ok());

  struct stat st;
  ASSERT_EQ(stat(PathOf(getpid()).c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600);

  const auto records = ListProcessRecords();
  ASSERT_TRUE(records.ok());
  ASSERT_EQ(records->size(), 1);
  const ProcessRecord& read = records->front();
  EXPECT_EQ(read.role, ProcessRole::kWorkerDaemon);
  EXPECT_EQ(read.pid, getpid());
  EXPECT_EQ(read.start_ticks, ProcessStartTicks(getpid()).value());
  EXPECT_GT(read.start_unix_ms, 0);
  EXPECT_EQ(read.address, "10.0.0.1:6380");
  EXPECT_EQ(read.listen_host, "10.0.0.2");
  EXPECT_EQ(read.dashboard_port, 8266);
  EXPECT_EQ(read.token, "secret");
  EXPECT_EQ(read.session_dir, "/somewhere/\xef\xbf\xbd session");
  EXPECT_EQ(read.node_id, "node-1");
  EXPECT_TRUE(read.lifeline);
  EXPECT_TRUE(IsAlive(read));

  ASSERT_TRUE(RemoveProcessRecord(getpid()).ok());
  EXPECT_THAT(ListedPids(), IsEmpty());
}

TEST_F(ProcessRecordsTest, NewestFirst) {
  RecordedChild first(Head("127.0.0.1:1"));
  // Start times are kept in milliseconds.
  const int64_t begun = absl::ToUnixMillis(absl::Now());
  while (absl::ToUnixMillis(absl::Now()) == begun) std::this_thread::yield();
  RecordedChild second(Head("127.0.0.1:2"));
  EXPECT_THAT(ListedPids(), ElementsAre(second.pid(), first.pid()));
  EXPECT_EQ(MostRecentHeadAddress(), "127.0.0.1:2");
}

TEST_F(ProcessRecordsTest, RecordOfADeadProcessIsRemoved) {
  RecordedChild living(Head("127.0.0.1:1"));
  RecordedChild dead(Head("127.0.0.1:2"));
  const std::string path = PathOf(dead.pid());
  dead.Kill();
  dead.Reap();
  ASSERT_TRUE(Exists(path));
  EXPECT_THAT(ListedPids(), ElementsAre(living.pid()));
  EXPECT_FALSE(Exists(path));
}

TEST_F(ProcessRecordsTest, ZombieIsDead) {
  RecordedChild child(Head("127.0.0.1:1"));
  child.Kill();
  EXPECT_FALSE(ProcessStartTicks(child.pid()).ok());
  EXPECT_THAT(ListedPids(), IsEmpty());
}

TEST_F(ProcessRecordsTest, ReusedPidIsTold) {
  RecordedChild child(Head("127.0.0.1:1"));
  // The same pid with another start time is another process.
  std::string text = ReadFile(PathOf(child.pid())).value();
  const std::string ticks =
      absl::StrCat(ProcessStartTicks(child.pid()).value());
  const size_t at = text.find(ticks);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, ticks.size(), "1");
  ASSERT_TRUE(WriteFileAtomically(PathOf(child.pid()), text, 0600).ok());
  EXPECT_THAT(ListedPids(), IsEmpty());
  EXPECT_FALSE(Exists(PathOf(child.pid())));
}

TEST_F(ProcessRecordsTest, UnreadableFilesDoNoHarm) {
  RecordedChild child(Head("127.0.0.1:1"));
  const std::string living = PathOf(getpid());
  const std::string other = absl::StrCat(folder_, "/processes/notes.json");
  for (const char* text : {"", "{", "[]", "{\"role\": 3}",
                           "{\"role\": \"head\", \"pid\": \"x\"}"}) {
    std::ofstream(living) << text;
    std::ofstream(other) << text;
    EXPECT_THAT(ListedPids(), ElementsAre(child.pid())) << text;
    EXPECT_TRUE(Exists(living));
    EXPECT_TRUE(Exists(other));
  }
}

TEST_F(ProcessRecordsTest, TokenOfTheHeadAtAnAddress) {
  ProcessRecord head = Head("10.0.0.1:6380");
  head.listen_host = "0.0.0.0";
  head.token = "head-token";
  RecordedChild head_process(head);
  ProcessRecord daemon;
  daemon.role = ProcessRole::kWorkerDaemon;
  daemon.address = "10.0.0.9:7000";
  daemon.token = "other-token";
  RecordedChild daemon_process(daemon);

  EXPECT_EQ(TokenFor("10.0.0.1:6380"), "head-token");
  EXPECT_EQ(TokenFor("127.0.0.1:6380"), "head-token");
  EXPECT_EQ(TokenFor("localhost:6380"), "head-token");
  EXPECT_EQ(TokenFor("10.0.0.9:7000"), "other-token");
  // By its own name.
  EXPECT_EQ(TokenFor(Hostname() + ":6380"), "head-token");
  // Another machine, or another cluster: its token must not be sent there.
  EXPECT_EQ(TokenFor("10.0.0.2:6380"), std::nullopt);
  EXPECT_EQ(TokenFor("127.0.0.1:7000"), std::nullopt);
  EXPECT_EQ(TokenFor("127.0.0.1:6381"), std::nullopt);
  EXPECT_EQ(TokenFor("not an address"), std::nullopt);
}

TEST_F(ProcessRecordsTest, HeadWithoutTokenHasAnEmptyOne) {
  RecordedChild head(Head("127.0.0.1:6380"));
  EXPECT_EQ(TokenFor("127.0.0.1:6380"), "");
}

TEST_F(ProcessRecordsTest, TheStateFolderIsThatOfAHeadOnThisMachine) {
  ProcessRecord head = Head("127.0.0.1:6380");
  head.listen_host = "127.0.0.1";
  head.state_dir = "/state";
  RecordedChild head_process(head);
  ProcessRecord daemon;
  daemon.role = ProcessRole::kWorkerDaemon;
  daemon.address = "10.0.0.9:7000";
  RecordedChild daemon_process(daemon);
  EXPECT_EQ(StateDirFor("localhost:6380"), "/state");
  EXPECT_EQ(StateDirFor("10.0.0.9:7000"), std::nullopt);
  EXPECT_EQ(StateDirFor("127.0.0.1:6381"), std::nullopt);
}

TEST_F(ProcessRecordsTest, ADaemonKnowsItsHead) {
  ProcessRecord daemon;
  daemon.role = ProcessRole::kWorkerDaemon;
  daemon.address = "10.0.0.9:7000";
  RecordedChild daemon_process(daemon);
  EXPECT_EQ(MostRecentHeadAddress(), "10.0.0.9:7000");
  RecordedChild head(Head("127.0.0.1:1"));
  EXPECT_EQ(MostRecentHeadAddress(), "127.0.0.1:1");
}

}  // namespace
}  // namespace miniray
