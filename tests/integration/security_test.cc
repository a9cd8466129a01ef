// From outside: whoever lacks the token or the right certificate can do
// nothing, read nothing, and leaves one line in the log.

#include <httplib.h>
#include <signal.h>
#include <sys/stat.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "runtime/api/miniray.h"
#include "runtime/base/files.h"
#include "runtime/base/net.h"
#include "runtime/client/actor_stream.h"
#include "runtime/rpc/certificates.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/tls.h"
#include "tests/integration/intruder.h"
#include "tests/integration/real_cluster.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/stop_process.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Not;

// Long enough that no other text contains it by chance.
constexpr char kToken[] = "sesame-4d2a7f6b1c9e8035-open";

class Counter {
 public:
  int64_t Add(int64_t n) { return value_ += n; }

 private:
  int64_t value_ = 0;
};
MINIRAY_ACTOR(Counter, Constructor<>, &Counter::Add);

// A cluster with a token, perhaps with TLS, and one actor on it.
class GuardedCluster {
 public:
  explicit GuardedCluster(bool tls, std::vector<std::string> head_flags = {}) {
    const std::string token_file = files_ / "token";
    EXPECT_THAT(WriteFileAtomically(token_file, kToken, 0600), IsOk());
    RealCluster::Options options;
    options.head_flags = std::move(head_flags);
    options.head_flags.push_back("--token_file=" + token_file);
    options.node_flags.push_back("--token_file=" + token_file);
    if (tls) {
      EXPECT_THAT(MakeCertificates({.tls_dir = certs()}), IsOk());
      options.head_flags.push_back("--tls_dir=" + certs());
      options.node_flags.push_back("--tls_dir=" + certs());
    }
    cluster_.emplace(options);
    auto driver = Cluster::Connect({.address = cluster_->address(),
                                    .token = kToken,
                                    .tls_dir = tls ? certs() : ""});
    EXPECT_THAT(driver, IsOk());
    driver_.emplace(*std::move(driver));
    auto counter = driver_->CreateActor<Counter>({.name = "counter"});
    EXPECT_THAT(counter, IsOk());
    counter_ = *counter;
    EXPECT_THAT(counter_.Call<&Counter::Add>(1).Get(absl::Seconds(30)),
                IsOkAndHolds(1));
    info_ = RealCluster::Info(*driver_, counter_);
    node_ = driver_->GetState()->nodes(0);
  }
  ~GuardedCluster() { EXPECT_THAT(UseTls(""), IsOk()); }

  std::string certs() const { return files_ / "certs"; }
  const TempFolder& files() const { return files_; }
  RealCluster& real() { return *cluster_; }
  const std::string& folder() { return cluster_->tree().folder(); }
  const v1::ActorInfo& info() const { return info_; }
  const v1::NodeInfo& node() const { return node_; }

  // Where a service is served.
  std::string AddressOf(const std::string& service) const {
    if (service == "Head" || service == "RunCollector") {
      return cluster_->address();
    }
    if (service == "ActorService") return info_.address();
    EXPECT_EQ(service, "ObjectStore");
    return node_.object_address();
  }

  std::vector<RemoteMethod> Methods() const {
    return AllMethods({{"actor_id", info_.actor_id()},
                       {"name", "counter"},
                       {"node_id", node_.node_id()},
                       {"job_id", info_.job_id()},
                       {"package_id", info_.package_id()},
                       {"class_name", info_.class_name()},
                       {"session_id", "intruder"},
                       {"hostname", "intruder"}});
  }

  // What the tables hold, but for what changes by itself.
  std::string Tables() const {
    auto state = driver_->GetState();
    EXPECT_THAT(state, IsOk());
    for (v1::NodeInfo& node : *state->mutable_nodes()) {
      node.clear_memory_used_bytes();
      node.clear_memory_total_bytes();
    }
    return state->DebugString();
  }

  // Calls and creations go on as before.
  void ExpectWorking() {
    ASSERT_THAT(counter_.Call<&Counter::Add>(0).Get(absl::Seconds(30)),
                IsOkAndHolds(1));
    auto another = driver_->CreateActor<Counter>({});
    ASSERT_THAT(another, IsOk());
    EXPECT_THAT(another->Call<&Counter::Add>(5).Get(absl::Seconds(30)),
                IsOkAndHolds(5));
  }

 private:
  TempFolder files_;
  std::optional<RealCluster> cluster_;
  std::optional<Cluster> driver_;
  ActorHandle<Counter> counter_;
  v1::ActorInfo info_;
  v1::NodeInfo node_;
};

class TokenTest : public ::testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(Security, TokenTest, ::testing::Bool(),
                         [](const ::testing::TestParamInfo<bool>& info) {
                           return info.param ? "WithTls" : "PlainText";
                         });

TEST_P(TokenTest, NoMethodOfAnyServiceDoesAnythingWithoutIt) {
  const bool tls = GetParam();
  GuardedCluster cluster(tls);
  const std::string before = cluster.Tables();
  const std::string wrong = "abracadabra-4d2a7f6b1c9e8035";
  const std::string prefix(kToken, sizeof(kToken) - 2);
  const std::string last = prefix + "m";  // As long as the right one.
  const std::map<std::string, std::string> metadata = {
      {"miniray-actor", cluster.info().actor_id()},
      {"miniray-incarnation", "0"}};
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels;
  std::map<std::string, int> expected;  // Two services may share a name.
  for (const RemoteMethod& method : cluster.Methods()) {
    SCOPED_TRACE(method.path);
    const std::string address = cluster.AddressOf(method.service);
    ASSERT_FALSE(address.empty());
    auto& channel = channels[address];
    if (channel == nullptr) {
      channel = tls ? TlsChannel(address, cluster.certs(), cluster.certs())
                    : PlainChannel(address);
    }
    int& tries = expected[method.name];
    for (const std::string* token :
         {(const std::string*)nullptr, &wrong, &prefix, &last}) {
      const CallResult result =
          CallRaw(channel, method.path, method.request, token, metadata);
      EXPECT_EQ(result.status.error_code(), grpc::StatusCode::UNAUTHENTICATED)
          << result.status.error_message();
      EXPECT_EQ(result.bytes_read, 0);
      ++tries;
    }
    // One line for each, with who and what.
    const std::string line =
        absl::StrCat("refused ", method.name, " from ipv4:127.0.0.1:");
    EXPECT_TRUE(Eventually(
        [&] { return CountLines(cluster.folder(), line) >= tries; }));
    EXPECT_EQ(CountLines(cluster.folder(), line), tries);
  }
  EXPECT_EQ(cluster.Tables(), before);
  cluster.ExpectWorking();
  // The same request with the token is heard: it is the token that counts.
  const std::string token = kToken;
  for (const RemoteMethod& method : cluster.Methods()) {
    if (method.name != "GetClusterState") continue;
    const CallResult result =
        CallRaw(channels[cluster.AddressOf("Head")], method.path, "", &token);
    EXPECT_TRUE(result.status.ok()) << result.status.error_message();
    EXPECT_GT(result.bytes_read, 100);
  }
  int logs = 0;
  for (const auto& [path, contents] : FilesBelow(cluster.folder())) {
    if (!IsLog(path)) continue;
    ++logs;
    for (const std::string& secret : {std::string(kToken), wrong, prefix}) {
      EXPECT_THAT(contents, Not(HasSubstr(secret))) << path;
    }
  }
  EXPECT_GE(logs, 3);  // Of head, daemon and actor.
}

// Fails the test if it hears anything.
class LinkIntruder : public internal::ActorStreamUser {
 public:
  void OnWritable(internal::ActorStream*) override {}
  void OnFrame(internal::ActorStream*, const absl::Cord&) override {
    ADD_FAILURE() << "an answer";
  }
  void OnStreamEnded(internal::ActorStream*,
                     const absl::Status& status) override {
    why_ = status;
    ended_.Notify();
  }
  absl::Status Await() {
    if (!ended_.WaitForNotificationWithTimeout(absl::Seconds(30))) {
      return absl::DeadlineExceededError("the link goes on");
    }
    return why_;
  }

 private:
  absl::Notification ended_;
  absl::Status why_;
};

internal::ActorStream::Metadata LinkMetadata(const GuardedCluster& cluster) {
  return {{kActorKey, cluster.info().actor_id()},
          {kIncarnationKey, "0"},
          {kCallerKey, "intruder"}};
}

// What carries most calls is not gRPC: unix sockets and TCP.
TEST(LinkTest, NoActorHearsALinkWithoutTheToken) {
  GuardedCluster cluster(false);
  const std::string before = cluster.Tables();
  const std::string address = cluster.info().address();
  const std::string wrong = "abracadabra-4d2a7f6b1c9e8035";
  const std::string prefix(kToken, sizeof(kToken) - 2);
  struct Way {
    decltype(&internal::StartTcpActorStream) start;
    std::string line;
  };
  for (const Way& way : std::vector<Way>{
           {&internal::StartTcpActorStream,
            "refused Channel from ipv4:127.0.0.1:"},
           {&internal::StartUnixActorStream,
            absl::StrCat("refused Channel from @miniray-", address)}}) {
    SCOPED_TRACE(way.line);
    int tries = 0;
    for (const std::string& token : {std::string(), wrong, prefix}) {
      const auto intruder = std::make_shared<LinkIntruder>();
      const auto stream =
          way.start(intruder, address, token, LinkMetadata(cluster));
      ASSERT_NE(stream, nullptr);
      EXPECT_EQ(intruder->Await().code(), absl::StatusCode::kUnauthenticated);
      ++tries;
      EXPECT_TRUE(Eventually(
          [&] { return CountLines(cluster.folder(), way.line) >= tries; }));
      EXPECT_EQ(CountLines(cluster.folder(), way.line), tries);
    }
  }
  EXPECT_EQ(CountLines(cluster.folder(), wrong), 0);
  EXPECT_EQ(CountLines(cluster.folder(), prefix), 0);
  EXPECT_EQ(cluster.Tables(), before);
  cluster.ExpectWorking();
}

// Links prove nothing but the token: where certificates are asked for there are
// none.
TEST(LinkTest, ATlsClusterHearsNoLinks) {
  GuardedCluster cluster(true);
  const std::string before = cluster.Tables();
  const std::string address = cluster.info().address();
  // The right token does not help.
  const auto intruder = std::make_shared<LinkIntruder>();
  const auto stream = internal::StartTcpActorStream(intruder, address, kToken,
                                                    LinkMetadata(cluster));
  ASSERT_NE(stream, nullptr);
  EXPECT_FALSE(intruder->Await().ok());
  const std::string line =
      "refused a connection from a peer: it does not "
      "speak TLS";
  EXPECT_TRUE(
      Eventually([&] { return CountLines(cluster.folder(), line) >= 1; }));
  EXPECT_EQ(CountLines(cluster.folder(), line), 1);
  // Nobody listens at the name that a unix socket would have.
  EXPECT_EQ(
      internal::StartUnixActorStream(std::make_shared<LinkIntruder>(), address,
                                     kToken, LinkMetadata(cluster)),
      nullptr);
  EXPECT_EQ(cluster.Tables(), before);
  cluster.ExpectWorking();
}

TEST(VersionTest, NoMethodOfAnyServiceAnswersAnotherRelease) {
  GuardedCluster cluster(false);
  const std::string before = cluster.Tables();
  const std::string token = kToken;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels;
  for (const RemoteMethod& method : cluster.Methods()) {
    SCOPED_TRACE(method.path);
    const std::string address = cluster.AddressOf(method.service);
    auto& channel = channels[address];
    if (channel == nullptr) channel = PlainChannel(address);
    const CallResult result =
        CallRaw(channel, method.path, method.request, &token,
                {{"miniray-actor", cluster.info().actor_id()},
                 {"miniray-incarnation", "0"},
                 {kVersionKey, "99.1.0"}});
    EXPECT_EQ(result.status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
    EXPECT_THAT(result.status.error_message(), HasSubstr("Mini-Ray 99.1.0"));
    EXPECT_EQ(result.bytes_read, 0);
  }
  EXPECT_EQ(CountLines(cluster.folder(), "it is of another version"),
            static_cast<int>(cluster.Methods().size()));
  EXPECT_EQ(cluster.Tables(), before);
  cluster.ExpectWorking();
}

TEST(TlsTest, NobodyGetsInWithoutACertificateOfTheCluster) {
  GuardedCluster cluster(true);
  const std::string before = cluster.Tables();
  const std::string expired = cluster.files() / "expired";
  const std::string foreign = cluster.files() / "foreign";
  ASSERT_THAT(MakeCertificates({.tls_dir = expired,
                                .ca_dir = cluster.certs(),
                                .not_before = absl::Now() - absl::Hours(48),
                                .not_after = absl::Now() - absl::Hours(24)}),
              IsOk());
  ASSERT_THAT(MakeCertificates({.tls_dir = foreign}), IsOk());
  const std::string token = kToken;  // The right one does not help.
  struct Try {
    std::string name;
    std::function<std::shared_ptr<grpc::Channel>(const std::string&)> channel;
    std::string line;
  };
  const std::vector<Try> tries = {
      {"plain text", [](const std::string& a) { return PlainChannel(a); },
       "it does not speak TLS"},
      {"no certificate",
       [&](const std::string& a) { return TlsChannel(a, cluster.certs(), ""); },
       "it shows no certificate"},
      {"expired",
       [&](const std::string& a) {
         return TlsChannel(a, cluster.certs(), expired);
       },
       "its certificate is expired"},
      // Trusts the cluster, and so learns how the cluster takes it.
      {"of another authority",
       [&](const std::string& a) {
         return TlsChannel(a, cluster.certs(), foreign);
       },
       "its certificate is expired, or not signed by"},
  };
  int bad_certificates = 0;
  for (const Try& attempt : tries) {
    SCOPED_TRACE(attempt.name);
    std::map<std::string, std::shared_ptr<grpc::Channel>> channels;
    for (const RemoteMethod& method : cluster.Methods()) {
      const std::string address = cluster.AddressOf(method.service);
      ASSERT_FALSE(address.empty());
      auto& channel = channels[address];
      if (channel == nullptr) channel = attempt.channel(address);
      const CallResult result =
          CallRaw(channel, method.path, method.request, &token);
      EXPECT_EQ(result.status.error_code(), grpc::StatusCode::UNAVAILABLE)
          << method.path << ": " << result.status.error_message();
      EXPECT_EQ(result.bytes_read, 0) << method.path;
    }
    const int others = absl::StrContains(attempt.line, "certificate is expired")
                           ? bad_certificates
                           : 0;
    int lines = 0;
    EXPECT_TRUE(Eventually([&] {
      lines = CountLines(cluster.folder(), attempt.line) - others;
      return lines >= static_cast<int>(channels.size());
    })) << lines;
    bad_certificates += lines;
  }
  EXPECT_EQ(cluster.Tables(), before);
  cluster.ExpectWorking();
}

TEST(TlsTest, AClientThatTrustsAnotherAuthorityTellsNothing) {
  GuardedCluster cluster(true);
  const std::string foreign = cluster.files() / "foreign";
  ASSERT_THAT(MakeCertificates({.tls_dir = foreign}), IsOk());
  for (const auto& [dir, advice] : std::map<std::string, std::string>{
           {foreign, "of the same cluster?"},
           {cluster.files() / "none", "miniray make-certs"}}) {
    EXPECT_THAT(Cluster::Connect({.address = cluster.real().address(),
                                  .token = kToken,
                                  .tls_dir = dir,
                                  .connect_timeout = absl::Seconds(2)})
                    .status()
                    .ToString(),
                HasSubstr(advice));
  }
}

// Whoever stands where a head should, and cannot prove that it is one, is told
// nothing: by drivers, the command line and daemons.
TEST(TlsTest, AHeadWithAWrongCertificateIsToldNothing) {
  TempFolder files;
  const std::string own = files / "own";
  ASSERT_THAT(MakeCertificates({.tls_dir = own}), IsOk());
  const std::string foreign = files / "foreign", expired = files / "expired",
                    named = files / "named";
  ASSERT_THAT(MakeCertificates({.tls_dir = foreign}), IsOk());
  ASSERT_THAT(MakeCertificates({.tls_dir = expired,
                                .ca_dir = own,
                                .not_before = absl::Now() - absl::Hours(48),
                                .not_after = absl::Now() - absl::Hours(24)}),
              IsOk());
  ASSERT_THAT(MakeCertificates(
                  {.tls_dir = named, .ca_dir = own, .name = "another.example"}),
              IsOk());
  ProcessTree tree;
  tree.env()["MINIRAY_TOKEN"] = kToken;
  tree.env()["MINIRAY_TLS_DIR"] = own;
  const std::string miniray = BuiltProgram("tools/miniray");
  for (const auto& [dir, advice] : std::map<std::string, std::string>{
           {foreign, "is it of the same cluster?"},
           {expired, "certificate is expired"},
           {named, "make-certs"}}) {
    SCOPED_TRACE(dir);
    const Impostor head(dir);
    EXPECT_THAT(Cluster::Connect({.address = head.address(),
                                  .token = kToken,
                                  .tls_dir = own,
                                  .connect_timeout = absl::Seconds(2)})
                    .status()
                    .ToString(),
                HasSubstr(advice));
    const RunResult status = tree.Run(
        {miniray, "status", "--address", head.address(), "--timeout=2"});
    EXPECT_NE(status.exit_code, 0);
    EXPECT_THAT(status.err, HasSubstr(advice));
    const RunResult node = tree.Run(
        {miniray, "start", "--address", head.address(), "--num_cpus=1"});
    EXPECT_NE(node.exit_code, 0);
    EXPECT_THAT(node.err, HasSubstr(advice));
    EXPECT_EQ(head.calls(), 0);
  }
  // It counts what it is told by those who trust it.
  const Impostor head(own);
  EXPECT_NE(
      tree.Run({miniray, "status", "--address", head.address(), "--timeout=20"})
          .exit_code,
      0);
  EXPECT_GE(head.calls(), 1);
  EXPECT_THAT(UseTls(""), IsOk());
}

// The same where an actor was, which the head still holds for alive.
TEST(TlsTest, AnActorWithAWrongCertificateIsToldNothing) {
  GuardedCluster cluster(true, {"--lease=60s", "--reconnect_timeout=1s"});
  const std::string foreign = cluster.files() / "foreign",
                    expired = cluster.files() / "expired",
                    named = cluster.files() / "named";
  ASSERT_THAT(MakeCertificates({.tls_dir = foreign}), IsOk());
  ASSERT_THAT(MakeCertificates({.tls_dir = expired,
                                .ca_dir = cluster.certs(),
                                .not_before = absl::Now() - absl::Hours(48),
                                .not_after = absl::Now() - absl::Hours(24)}),
              IsOk());
  ASSERT_THAT(MakeCertificates({.tls_dir = named,
                                .ca_dir = cluster.certs(),
                                .name = "another.example"}),
              IsOk());
  // Its daemon stands still, and so cannot tell the head of its death.
  ASSERT_TRUE(StopProcess(cluster.real().node(0).pid()));
  const auto pid = static_cast<pid_t>(cluster.info().pid());
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  ASSERT_TRUE(Eventually([pid] { return !ProcessLives(pid); }));
  const std::string address = cluster.info().address();
  const auto host_port = ParseHostPort(address);
  ASSERT_THAT(host_port, IsOk());
  // What a driver of its own, which has never talked to the actor, hears.
  auto call = [&] {
    const auto driver = Cluster::Connect({.address = cluster.real().address(),
                                          .token = kToken,
                                          .tls_dir = cluster.certs()});
    if (!driver.ok()) return driver.status();
    const auto counter = driver->GetActor<Counter>("counter");
    if (!counter.ok()) return counter.status();
    return counter->Call<&Counter::Add>(1).Get(absl::Seconds(40)).status();
  };
  for (const auto& [dir, why] : std::map<std::string, std::string>{
           {foreign, "is it of the same cluster?"},
           {expired, "certificate is expired"},
           {named, "make-certs"}}) {
    SCOPED_TRACE(dir);
    const Impostor actor(dir, host_port->port);
    EXPECT_THAT(call(), StatusIs(absl::StatusCode::kUnavailable,
                                 AllOf(HasSubstr(address), HasSubstr(why))));
    EXPECT_EQ(actor.calls(), 0);
  }
  // It counts what it is told by those who trust it.
  const Impostor actor(cluster.certs(), host_port->port);
  EXPECT_THAT(call(), Not(IsOk()));
  EXPECT_GE(actor.calls(), 1);
  cluster.real().node(0).Signal(SIGCONT);
}

class DashboardTest : public ::testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(Security, DashboardTest, ::testing::Bool(),
                         [](const ::testing::TestParamInfo<bool>& info) {
                           return info.param ? "WithTls" : "PlainText";
                         });

TEST_P(DashboardTest, ForeignPagesAndStrangersReadNothing) {
  const bool tls = GetParam();
  GuardedCluster cluster(tls, {"--dashboard_port=0"});
  const std::string before = cluster.Tables();
  std::string line;
  do {
    line = cluster.real().head().ReadLine();
    ASSERT_FALSE(line.empty());
  } while (!absl::StrContains(line, "Dashboard: "));
  const std::string scheme = tls ? "https://" : "http://";
  ASSERT_THAT(line, HasSubstr(scheme));
  std::string url = line.substr(line.find(scheme));
  url = url.substr(0, url.find("/?"));
  httplib::Client client(url);
  client.set_ca_cert_path((cluster.certs() + "/ca.crt").c_str());
  const std::string bearer = absl::StrCat("Bearer ", kToken);
  struct Try {
    httplib::Headers headers;
    int status;
    std::string line;
  };
  for (const Try& attempt : std::vector<Try>{
           {{{"Host", "evil.example"}, {"Authorization", bearer}},
            403,
            "its Host is 'evil.example'"},
           {{{"Origin", "http://evil.example"}, {"Authorization", bearer}},
            403,
            "its Origin is 'http://evil.example'"},
           {{{"Origin", "null"}, {"Authorization", bearer}},
            403,
            "its Origin is 'null'"},
           {{}, 401, "it carries no token"},
           {{{"Authorization", bearer.substr(0, bearer.size() - 1)}},
            401,
            "its token is wrong"},
       }) {
    SCOPED_TRACE(attempt.line);
    const httplib::Result answer = client.Get("/api/v1/state", attempt.headers);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, attempt.status);
    EXPECT_THAT(answer->body, Not(HasSubstr(cluster.info().actor_id())));
    EXPECT_TRUE(Eventually([&] {
      return CountLines(cluster.folder(), attempt.line) == 1;
    })) << CountLines(cluster.folder(), attempt.line);
  }
  EXPECT_THAT(CountLines(cluster.folder(), "refused GET /api/v1/state from "),
              Eq(5));
  const httplib::Result answer =
      client.Get("/api/v1/state", {{"Authorization", bearer}});
  ASSERT_TRUE(answer);
  EXPECT_THAT(answer->body, HasSubstr(cluster.info().actor_id()));
  if (tls) {
    // The token is not sent in plain text, and would not help.
    httplib::Client plain("http://" + url.substr(scheme.size()));
    EXPECT_FALSE(plain.Get("/api/v1/state", {{"Authorization", bearer}}));
    const std::string refusal = "the dashboard from 127.0.0.1:";
    EXPECT_TRUE(
        Eventually([&] { return CountLines(cluster.folder(), refusal) >= 1; }));
    EXPECT_EQ(CountLines(cluster.folder(), refusal), 1);
    EXPECT_EQ(CountLines(cluster.folder(), "it does not speak TLS"), 1);
    // Who was sent to another authority sends nothing at all.
    ASSERT_THAT(MakeCertificates({.tls_dir = cluster.files() / "foreign"}),
                IsOk());
    httplib::Client foreign(url);
    foreign.set_ca_cert_path((cluster.files() / "foreign/ca.crt").c_str());
    EXPECT_EQ(foreign.Get("/api/v1/state", {{"Authorization", bearer}}).error(),
              httplib::Error::SSLServerVerification);
  }
  EXPECT_EQ(cluster.Tables(), before);
  cluster.ExpectWorking();
}

// The token may stand in the environment and in files of their owner.
TEST(TokenSecrecyTest, ItIsOnNoCommandLineAndInNoLog) {
  ProcessTree tree;
  tree.env()["MINIRAY_TOKEN"] = kToken;
  const std::string miniray = BuiltProgram("tools/miniray");
  const RunResult head = tree.Run({miniray, "start", "--head", "--port=0",
                                   "--dashboard_port=0", "--num_cpus=2"});
  ASSERT_EQ(head.exit_code, 0) << head.err;
  std::string address =
      head.out.substr(head.out.find("listens at ") + strlen("listens at "));
  address = address.substr(0, address.find(' '));
  auto driver = tree.Start({BuiltProgram("tests/integration/sleeper_program"),
                            "--address", address, "--actors=2"});
  ASSERT_THAT(driver->ReadLine(), HasSubstr("ready"));
  EXPECT_EQ(tree.Run({miniray, "status"}).exit_code, 0);
  // A job whose driver runs, with its submitter, and actors of its own.
  auto submitter = tree.Start(
      {miniray, "submit", "--wait", "--address", address, "--num_cpus=0", "--",
       BuiltProgram("tests/integration/sleeper_program"), "--actors=1"});
  std::string word;
  do {
    word = submitter->ReadLine();
    ASSERT_FALSE(word.empty());
  } while (!absl::StrContains(word, "ready"));
  // The dashboard hears it in both ways, and a wrong one.
  std::string url = head.out.substr(head.out.find("http://"));
  url = url.substr(0, url.find("/?"));
  httplib::Client browser(url);
  for (const auto& [query, authorization] : std::map<std::string, std::string>{
           {absl::StrCat("?token=", kToken), "Bearer x"},
           {absl::StrCat("?token=", kToken, "-wrong"), "Bearer x"},
           {"?n=1", absl::StrCat("Bearer ", kToken)},
           {"?n=2", absl::StrCat("Bearer ", kToken, "-wrong")}}) {
    EXPECT_TRUE(browser.Get("/api/v1/state" + query,
                            {{"Authorization", authorization}}));
  }
  EXPECT_TRUE(Eventually([&] {
    return CountLines(tree.folder(), "refused GET /api/v1/state") == 2;
  }));
  tree.env()["MINIRAY_TOKEN"] = "a-wrong-one";
  EXPECT_NE(tree.Run({miniray, "status", "--address", address}).exit_code, 0);

  const std::vector<pid_t> living = tree.Living();
  // Head, daemon, driver, two actors; submitter, job, its actor; at least.
  ASSERT_GE(living.size(), 8);
  for (pid_t pid : living) {
    const auto line = ReadFile(absl::StrCat("/proc/", pid, "/cmdline"));
    if (!line.ok()) continue;  // It has just ended.
    EXPECT_THAT(*line, Not(HasSubstr(kToken)));
  }
  int secret_files = 0;
  auto check = [&] {
    for (const auto& [path, contents] : FilesBelow(tree.folder())) {
      if (!absl::StrContains(contents, kToken)) continue;
      ++secret_files;
      struct stat st = {};
      if (stat(path.c_str(), &st) != 0) continue;
      EXPECT_EQ(st.st_mode & 077, 0) << path;
      EXPECT_THAT(path, AnyOf(HasSubstr("/processes/"), HasSubstr("/token")));
    }
  };
  check();
  EXPECT_GE(secret_files, 2);  // The check can see it.
  driver->Signal(SIGKILL);
  driver->Wait();
  submitter->Signal(SIGKILL);
  submitter->Wait();
  EXPECT_EQ(tree.Run({miniray, "stop"}).exit_code, 0);
  check();  // What they wrote at their end.
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
