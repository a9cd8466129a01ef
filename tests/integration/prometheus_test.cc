// Debian's Prometheus watches a cluster of real processes, with the
// configuration that we ship: it finds the nodes through the head, reads all
// pages, and answers what the dashboard for Grafana asks.

#include <httplib.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/api/miniray.h"
#include "runtime/base/files.h"
#include "runtime/rpc/certificates.h"
#include "runtime/rpc/tls.h"
#include "tests/integration/process_tools.h"
#include "tests/integration/real_cluster.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr char kToken[] = "a-token-for-tests";
constexpr char kPrometheus[] = "/usr/bin/prometheus";
constexpr char kPromtool[] = "/usr/bin/promtool";
constexpr char kWhereFrom[] =
    " is not there: run tools/setup.sh, or apt-get install prometheus";
constexpr char kFolder[] = "tools/deploy/monitoring/";

// A file of the repository.
std::string Shipped(const std::string& path) {
  return ReadFile(BuiltProgram(path)).value_or("");
}

class Watched {
 public:
  int64_t Add(int64_t n) { return n + 1; }
  void Fail() { throw std::runtime_error("as it was asked to"); }
};
MINIRAY_ACTOR(Watched, Constructor<>, &Watched::Add, &Watched::Fail);

enum class Guard { kNone, kToken, kTls };

class PrometheusTest : public testing::TestWithParam<Guard> {
 protected:
  static constexpr int kNodes = 2;

  ~PrometheusTest() override { EXPECT_THAT(UseTls(""), IsOk()); }

  void SetUp() override {
    for (const char* program : {kPrometheus, kPromtool}) {
      ASSERT_EQ(access(program, X_OK), 0) << program << kWhereFrom;
    }
    RealCluster::Options options;
    options.num_nodes = kNodes;
    options.head_flags = {"--dashboard_port=0"};
    if (guarded()) {
      ASSERT_THAT(WriteFileAtomically(files_ / "token",
                                      absl::StrCat(kToken, "\n"), 0600),
                  IsOk());
      options.head_flags.push_back("--token_file=" + files_ / "token");
      options.node_flags.push_back("--token_file=" + files_ / "token");
    }
    if (tls()) {
      ASSERT_THAT(MakeCertificates({.tls_dir = certs()}), IsOk());
      options.head_flags.push_back("--tls_dir=" + certs());
      options.node_flags.push_back("--tls_dir=" + certs());
    }
    cluster_.emplace(options);
    std::string line;
    do {
      line = cluster_->head().ReadLine();
      ASSERT_FALSE(line.empty()) << "the head shows no dashboard";
    } while (!absl::StrContains(line, "Dashboard: "));
    // http://127.0.0.1:PORT, perhaps with "/?token=" behind it.
    head_url_ = line.substr(line.find("http"));
    head_url_ = head_url_.substr(0, head_url_.find("/?"));
  }

  bool guarded() const { return GetParam() != Guard::kNone; }
  bool tls() const { return GetParam() == Guard::kTls; }
  std::string certs() const { return files_ / "certs"; }
  ProcessTree& tree() { return cluster_->tree(); }

  Cluster Connect() {
    auto driver = Cluster::Connect({.address = cluster_->address(),
                                    .token = guarded() ? kToken : "",
                                    .tls_dir = tls() ? certs() : ""});
    EXPECT_THAT(driver, IsOk());
    return *std::move(driver);
  }

  // What an address of head or daemon answers; empty: it refuses.
  std::string Get(const std::string& url, const std::string& path) const {
    httplib::Client client(url);
    if (tls()) client.set_ca_cert_path((certs() + "/ca.crt").c_str());
    httplib::Headers headers;
    if (guarded()) {
      headers.emplace("Authorization", absl::StrCat("Bearer ", kToken));
    }
    const httplib::Result answer = client.Get(path, headers);
    return answer && answer->status == 200 ? answer->body : "";
  }

  // The addresses of all pages, as the head lists them.
  std::vector<std::string> Targets() const {
    std::vector<std::string> targets;
    const Json groups = Json::parse(
        Get(head_url_, "/api/v1/prometheus/targets"), nullptr, false);
    if (!groups.is_array()) return targets;
    for (const Json& group : groups) {
      targets.push_back(group["labels"]["__scheme__"].get<std::string>() +
                        "://" + group["targets"][0].get<std::string>());
    }
    return targets;
  }

  // Runs Prometheus with what we ship: another port, and a shorter interval.
  void StartPrometheus() {
    std::string config = absl::StrReplaceAll(
        Shipped(absl::StrCat(kFolder, "prometheus.yml")),
        {{"http://127.0.0.1:8266", head_url_}, {"15s", "1s"}});
    ASSERT_THAT(config, HasSubstr(head_url_));
    // As its first lines say.
    if (guarded()) {
      config = absl::StrReplaceAll(config, {{"#token ", ""}});
      ASSERT_THAT(WriteFileAtomically(files_ / "miniray.token", kToken, 0600),
                  IsOk());
    }
    if (tls()) {
      config = absl::StrReplaceAll(config, {{"#tls ", ""}});
      std::filesystem::copy_file(certs() + "/ca.crt", files_ / "ca.crt");
    }
    ASSERT_THAT(WriteFileAtomically(files_ / "prometheus.yml", config), IsOk());
    ASSERT_THAT(
        WriteFileAtomically(files_ / "alerts.yml",
                            Shipped(absl::StrCat(kFolder, "alerts.yml"))),
        IsOk());
    prometheus_ =
        tree().Start({kPrometheus, "--config.file=" + files_ / "prometheus.yml",
                      "--storage.tsdb.path=" + files_ / "tsdb",
                      "--web.listen-address=127.0.0.1:0"});
    const std::regex listening(
        "msg=\"Listening on\" address=(127\\.0\\.0\\.1:[0-9]+)");
    std::string log;
    ASSERT_TRUE(Eventually(
        [&] {
          log = ReadFile(prometheus_->error_file()).value_or("");
          std::smatch match;
          if (!std::regex_search(log, match, listening)) return false;
          prometheus_url_ = "http://" + match[1].str();
          return true;
        },
        kLong))
        << log;
  }

  // The one number that the query has as its answer.
  std::optional<double> Ask(const std::string& query) const {
    httplib::Client client(prometheus_url_);
    const httplib::Result answer = client.Get(
        "/api/v1/query", httplib::Params{{"query", query}}, httplib::Headers());
    if (!answer || answer->status != 200) return std::nullopt;
    const Json json = Json::parse(answer->body, nullptr, false);
    if (!json.is_object()) return std::nullopt;
    const Json& result = json["data"]["result"];
    if (result.size() != 1) return std::nullopt;
    return std::stod(result[0]["value"][1].get<std::string>());
  }

  testing::AssertionResult Becomes(const std::string& query,
                                   double value) const {
    std::optional<double> last;
    if (Eventually(
            [&] {
              last = Ask(query);
              return last == value;
            },
            kLong)) {
      return testing::AssertionSuccess();
    }
    return testing::AssertionFailure()
           << query << " is "
           << (last.has_value() ? absl::StrCat(*last) : "not there") << ", not "
           << value << "; Prometheus says: "
           << ReadFileTail(prometheus_->error_file(), 2000).value_or("");
  }

  TempFolder files_;
  std::optional<RealCluster> cluster_;
  std::string head_url_;
  std::string prometheus_url_;
  std::unique_ptr<ProcessTree::Child> prometheus_;
};

INSTANTIATE_TEST_SUITE_P(Prometheus, PrometheusTest,
                         testing::Values(Guard::kNone, Guard::kToken,
                                         Guard::kTls),
                         [](const testing::TestParamInfo<Guard>& info) {
                           return info.param == Guard::kNone    ? "Open"
                                  : info.param == Guard::kToken ? "WithToken"
                                                                : "WithTls";
                         });

TEST_P(PrometheusTest, SeesTheClusterThroughTheHeadsAddressAlone) {
  Cluster driver = Connect();
  std::vector<ActorHandle<Watched>> actors;
  for (int i = 0; i < 3; ++i) {
    auto actor = driver.CreateActor<Watched>({.max_restarts = 1});
    ASSERT_THAT(actor, IsOk());
    for (int n = 0; n < 4; ++n) {
      ASSERT_THAT(actor->Call<&Watched::Add>(n).Get(kLong), IsOk());
    }
    actors.push_back(*actor);
  }
  EXPECT_THAT(actors[0].Call<&Watched::Fail>().Get(kLong), Not(IsOk()));
  StartPrometheus();
  // Head and nodes.
  EXPECT_TRUE(Becomes("count(up{job=\"miniray\"} == 1)", 1 + kNodes));
  EXPECT_TRUE(Becomes("count(up{job=\"miniray\"})", 1 + kNodes));
  EXPECT_TRUE(Becomes("sum(miniray_actors{state=\"alive\"})", 3));
  EXPECT_TRUE(Becomes("sum(miniray_nodes{state=\"alive\"})", kNodes));
  EXPECT_TRUE(Becomes("sum(miniray_jobs{state=\"running\"})", 1));
  // Each node has its labels.
  EXPECT_TRUE(
      Becomes("count(count by (node) (miniray_node_cpus{role=\"node\"}"
              "))",
              kNodes));
  // Over all nodes, whichever ran them.
  EXPECT_TRUE(Becomes(
      "sum(miniray_calls_total{class=\"Watched\",method=\"Add\"})", 12));
  EXPECT_TRUE(
      Becomes("sum(miniray_call_failures_total{class=\"Watched\"})", 1));
  EXPECT_TRUE(Becomes(
      "sum(miniray_call_run_seconds_count{class=\"Watched\",method=\"Add\"})",
      12));
  // What a dashboard makes of histograms: it is some number.
  EXPECT_TRUE(
      Becomes("count(histogram_quantile(0.99, sum by (le) "
              "(miniray_call_run_seconds_bucket)) >= 0)",
              1));
  // An actor's death and its restart.
  const int64_t pid = RealCluster::Info(driver, actors[0]).pid();
  ASSERT_EQ(kill(static_cast<pid_t>(pid), SIGKILL), 0);
  EXPECT_TRUE(Becomes("sum(miniray_actor_restarts_total)", 1));
  EXPECT_TRUE(Becomes("sum(miniray_actors{state=\"alive\"})", 3));
  // A node that joins is found, one that leaves is not looked for.
  cluster_->AddNode();
  EXPECT_TRUE(Becomes("count(up{job=\"miniray\"} == 1)", 2 + kNodes));
  cluster_->node(kNodes).Signal(SIGTERM);
  EXPECT_TRUE(Becomes("count(up{job=\"miniray\"})", 1 + kNodes));
  EXPECT_TRUE(Becomes("count(up{job=\"miniray\"} == 1)", 1 + kNodes));
}

TEST_P(PrometheusTest, PromtoolFindsNothingWrong) {
  Cluster driver = Connect();
  const auto actor = driver.CreateActor<Watched>({});
  ASSERT_THAT(actor, IsOk());
  ASSERT_THAT(actor->Call<&Watched::Add>(1).Get(kLong), IsOk());
  EXPECT_THAT(actor->Call<&Watched::Fail>().Get(kLong), Not(IsOk()));
  const std::vector<std::string> targets = Targets();
  ASSERT_EQ(targets.size(), 1 + kNodes);
  // The calls are there too.
  ASSERT_TRUE(Eventually(
      [&] {
        return std::any_of(
            targets.begin(), targets.end(), [&](const std::string& target) {
              return absl::StrContains(Get(target, "/metrics"),
                                       "miniray_call_failures_total{");
            });
      },
      kLong));
  const std::string readme = Shipped("runtime/metrics/README.md");
  const std::regex type("# TYPE ([a-z_0-9]+) ");
  for (const std::string& target : targets) {
    SCOPED_TRACE(target);
    const std::string page = Get(target, "/metrics");
    ASSERT_FALSE(page.empty());
    ASSERT_THAT(WriteFileAtomically(files_ / "page", page), IsOk());
    const RunResult result =
        tree().Run({"/bin/sh", "-c",
                    absl::StrCat(kPromtool, " check metrics < ",
                                 files_ / "page", " 2>&1")});
    EXPECT_EQ(result.exit_code, 0) << result.out << page;
    EXPECT_THAT(result.out, IsEmpty());
    // Each metric has its line in the table.
    for (auto it = std::sregex_iterator(page.begin(), page.end(), type);
         it != std::sregex_iterator(); ++it) {
      EXPECT_THAT(readme,
                  HasSubstr(absl::StrCat("| `", (*it)[1].str(), "` |")));
    }
  }
}

TEST(MonitoringFilesTest, PromtoolTakesTheConfiguration) {
  ASSERT_EQ(access(kPromtool, X_OK), 0) << kPromtool << kWhereFrom;
  ProcessTree tree;
  // It looks for the rules beside it, where Bazel may have a link to elsewhere.
  TempFolder files;
  for (const char* name : {"prometheus.yml", "alerts.yml"}) {
    ASSERT_THAT(
        WriteFileAtomically(files / name, Shipped(absl::StrCat(kFolder, name))),
        IsOk());
  }
  const RunResult plain =
      tree.Run({kPromtool, "check", "config", files / "prometheus.yml"});
  EXPECT_EQ(plain.exit_code, 0) << plain.out << plain.err;
  EXPECT_THAT(plain.out, HasSubstr("1 rule files found"));
  EXPECT_THAT(plain.out, HasSubstr("6 rules found"));
}

// What a run told last stays where it has ended; nobody is to be woken for it.
TEST(MonitoringFilesTest, ALossThatIsNoNumberIsToldWhileItsRunGoesOn) {
  ASSERT_EQ(access(kPromtool, X_OK), 0) << kPromtool << kWhereFrom;
  ProcessTree tree;
  TempFolder files;
  ASSERT_THAT(WriteFileAtomically(files / "alerts.yml",
                                  Shipped(absl::StrCat(kFolder, "alerts.yml"))),
              IsOk());
  // Run a breaks in its second minute and ends in its fourth; b is well.
  ASSERT_THAT(WriteFileAtomically(files / "test.yml", R"(
rule_files: [alerts.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'miniray_run_metric{instance="h:1",metric="loss",run="a"}'
        values: '0.5 NaN NaN NaN'
      - series: 'miniray_run_running{instance="h:1",run="a"}'
        values: '1 1 1 0'
      - series: 'miniray_run_metric{instance="h:1",metric="loss",run="b"}'
        values: '0.5 0.5 0.5 0.5'
      - series: 'miniray_run_running{instance="h:1",run="b"}'
        values: '1 1 1 1'
    alert_rule_test:
      - {alertname: MinirayLossIsNoNumber, eval_time: 0m, exp_alerts: []}
      - alertname: MinirayLossIsNoNumber
        eval_time: 2m
        exp_alerts:
          - exp_labels: {instance: "h:1", metric: loss, run: a}
            exp_annotations: {summary: loss of run a is no number}
      - {alertname: MinirayLossIsNoNumber, eval_time: 3m, exp_alerts: []}
)"),
              IsOk());
  const RunResult result =
      tree.Run({kPromtool, "test", "rules", files / "test.yml"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
}

// A panel that asks for what nobody tells shows nothing, and nobody notices.
TEST(MonitoringFilesTest, DashboardAndAlertsAskForWhatThereIs) {
  const std::string readme = Shipped("runtime/metrics/README.md");
  const std::string dashboard =
      Shipped(absl::StrCat(kFolder, "grafana/dashboards/miniray.json"));
  const std::string alerts = Shipped(absl::StrCat(kFolder, "alerts.yml"));
  const Json json = Json::parse(dashboard, nullptr, false);
  ASSERT_TRUE(json.is_object());
  std::string queries = alerts;
  int panels = 0;
  for (const Json& panel : json["panels"]) {
    if (panel["type"] == "row") continue;
    ++panels;
    ASSERT_FALSE(panel["targets"].empty()) << panel["title"];
    for (const Json& target : panel["targets"]) {
      absl::StrAppend(&queries, "\n", target["expr"].get<std::string>());
      EXPECT_EQ(target["datasource"]["uid"], "miniray-prometheus");
    }
  }
  EXPECT_GE(panels, 20);
  EXPECT_THAT(
      Shipped(absl::StrCat(kFolder, "grafana/datasources/prometheus.yml")),
      HasSubstr("uid: miniray-prometheus"));
  std::set<std::string> asked;
  const std::regex name("(miniray|process)_[a-z_]+");
  for (auto it = std::sregex_iterator(queries.begin(), queries.end(), name);
       it != std::sregex_iterator(); ++it) {
    // What Prometheus makes of a histogram.
    asked.insert(
        std::regex_replace(it->str(), std::regex("_(bucket|sum|count)$"), ""));
  }
  EXPECT_GE(asked.size(), 25u);
  for (const std::string& metric : asked) {
    EXPECT_THAT(readme, HasSubstr(absl::StrCat("| `", metric, "` |")));
  }
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
