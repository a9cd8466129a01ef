#include "tests/integration/dashboard_browser_fixture.h"

#include <httplib.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"
#include "tests/train/quadratic_worker.h"

namespace miniray {
namespace {

using ::testing::StartsWith;

constexpr double kEpochSeconds = 0.5;

// 16 x 16 pixels, RGB (made with Python's zlib).
constexpr int kPictureSize = 16;
constexpr char kPicture[] =
    "iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAIAAACQkWg2AAABlUlEQVR42g3LQQEAIQgA"
    "QStYwQpWsAIVqMB3n1awghWoQAUqUMG7+U9rjd4YjdlYDWlowxq7cRq34Y1oZKMar9Fa"
    "p3dGZ3ZWRzrasc7unM7teCc62anO638Y9MEYzMEayEAHNtiDM7gDH8QgBzV44w+TPhmT"
    "OVkTmejEJntyJnfik5jkpCZv/mHRF2MxF2shC13YYi/O4i58EYtc1OKtPwhdGMIUliCC"
    "CiZs4QhXcCGEFEp48gelK0OZylJEUcWUrRzlKq6EkkopT/9gdGMY01iGGGqYsY1jXMON"
    "MNIo49kfNn0zNnOzNrLRjW325mzuxjexyU1t3v7DoR/GYR7WQQ56sMM+nMM9+CEOeajD"
    "O3+49Mu4zMu6yEUvdtmXc7kXv8QlL3V59w9Od4YzneWIo4452znOddwJJ51ynv8h6MEI"
    "ZrACCTSwYAcnuIEHEWRQwYs/JD0ZyUxWIokmluzkJDfxJJJMKnn5h6IXo5jFKqTQwopd"
    "nOIWXkSRRRWv/vDoj/GYj/WQhz7ssR/ncR/+iEc+6vEeHzeffxDda3MHAAAAAElFTkSu"
    "QmCC";

// For scripts in the page; see runtime/dashboard/README.md for the names.
constexpr char kTools[] = R"js(
const all = (id) => [...document.querySelectorAll(`[data-testid="${id}"]`)];
const one = (id) => all(id)[0] ?? null;
const text = (id) => one(id)?.textContent ?? '';
const points = (metric) => Number(one('chart-' + metric)?.dataset.points);
const focused = () => document.activeElement?.dataset.testid ?? '';
// Of two colours, as WCAG 2 defines it.
const light = (colour) => {
  const [r, g, b] = colour.match(/[\d.]+/g).map((part) => part / 255).map(
      (part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const back = () => light(getComputedStyle(document.body).backgroundColor);
const contrast = () => {
  const two = [light(getComputedStyle(document.body).color), back()];
  return (Math.max(...two) + 0.05) / (Math.min(...two) + 0.05);
};
)js";

}  // namespace

struct DashboardTraining::Rep {
  class Trainer : public train::QuadraticTrainer {
   public:
    explicit Trainer(const train::TrainerOptions& options)
        : QuadraticTrainer(options, {}) {}

    std::atomic<bool> stop = false;

   protected:
    void OnEpochEnd(int epoch, const train::EpochResult& result) override {
      QuadraticTrainer::OnEpochEnd(epoch, result);
      std::string png;
      if (epoch % 20 == 0 && absl::Base64Unescape(kPicture, &png)) {
        ReportImage("samples", epoch, png, kPictureSize, kPictureSize);
      }
      if (stop) RequestStop();
    }
  };

  explicit Rep(const train::TrainerOptions& options)
      : trainer(options), thread([this] {
          train::RunOptions run = {.epochs = kEpochs};
          run.config.Set("epoch_seconds", kEpochSeconds);
          result = trainer.Train(run);
        }) {}

  Trainer trainer;
  absl::StatusOr<train::Result> result = absl::UnknownError("not ended");
  std::thread thread;  // Last: it uses the others.
};

DashboardTraining::DashboardTraining(const Cluster& cluster)
    : rep_([&cluster] {
        train::TrainerOptions options;
        options.num_workers = 2;
        options.cluster = cluster;
        options.run_id = kRun;
        return std::make_unique<Rep>(options);
      }()) {}

DashboardTraining::~DashboardTraining() { (void)End(); }

const absl::StatusOr<train::Result>& DashboardTraining::End() {
  rep_->trainer.stop = true;
  return Wait();
}

const absl::StatusOr<train::Result>& DashboardTraining::Wait() {
  if (rep_->thread.joinable()) rep_->thread.join();
  return rep_->result;
}

void DashboardBrowserTest::SetUp() {
  const std::string token_file = files_ / "token";
  ASSERT_THAT(WriteFileAtomically(token_file, kToken, 0600), IsOk());
  RealCluster::Options options;
  options.head_flags = {"--token_file=" + token_file};
  options.node_flags = {"--token_file=" + token_file};
  options.dashboard = true;
  real_.emplace(options);
  absl::StatusOr<Cluster> driver =
      Cluster::Connect({.address = real_->address(), .token = kToken});
  ASSERT_THAT(driver, IsOk());
  driver_.emplace(*std::move(driver));
  absl::StatusOr<std::unique_ptr<Browser>> browser = Browser::Start();
  ASSERT_TRUE(browser.ok()) << browser.status();
  browser_ = *std::move(browser);
}

void DashboardBrowserTest::TearDown() {
  if (browser_ != nullptr) {
    if (HasFailure()) SavePicture("failure");
    ExpectNoComplaints();
    const auto taken = browser_->TakeRequests();
    EXPECT_THAT(taken, IsOk());
    const std::vector<std::string> urls =
        taken.ok() ? *taken : std::vector<std::string>();
    int ours = 0;
    for (const std::string& url : urls) {
      // Of the browser itself, and what scripts make of what they have.
      if (absl::StartsWith(url, "chrome:") || absl::StartsWith(url, "about:") ||
          absl::StartsWith(url, "data:") || absl::StartsWith(url, "blob:")) {
        continue;
      }
      EXPECT_THAT(url, StartsWith(real_->dashboard() + "/"));
      ++ours;
    }
    EXPECT_GT(ours, 0);
    EXPECT_THAT(browser_->Quit(), IsOk());
  }
  training_.reset();
}

void DashboardBrowserTest::ExpectNoComplaints(
    const std::vector<std::string>& allowed) {
  const auto lines = browser_->TakeConsole();
  ASSERT_TRUE(lines.ok()) << lines.status();
  for (const Browser::ConsoleLine& line : *lines) {
    if (line.level != "SEVERE") continue;
    bool expected = false;
    for (const std::string& part : allowed) {
      expected = expected || absl::StrContains(line.text, part);
    }
    EXPECT_TRUE(expected && line.source == "network")
        << line.source << ": " << line.text;
  }
}

testing::AssertionResult DashboardBrowserTest::See(
    const std::string& expression) {
  const auto found =
      browser_->Await(absl::StrCat(kTools, "return (", expression, ");"));
  if (found.ok()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << found.status().message();
}

nlohmann::json DashboardBrowserTest::Now(const std::string& expression) {
  const auto value =
      browser_->Run(absl::StrCat(kTools, "return (", expression, ");"));
  EXPECT_THAT(value.status(), IsOk());
  return value.ok() ? *value : nlohmann::json();
}

void DashboardBrowserTest::Do(const std::string& statements) {
  EXPECT_THAT(browser_->Run(absl::StrCat(kTools, statements)).status(), IsOk());
}

void DashboardBrowserTest::Click(const std::string& element) {
  EXPECT_TRUE(See(absl::StrCat("(", element, ").checkVisibility()")));
  Do(absl::StrCat("(", element, ").click();"));
}

void DashboardBrowserTest::OpenDashboard() {
  ASSERT_THAT(browser_->Open(absl::StrCat(real_->dashboard(),
                                          "/?token=", kTokenInAddress)),
              IsOk());
  ASSERT_TRUE(See("text('card-nodes').includes('1 alive')"));
  // Neither the address nor the history shows it.
  EXPECT_EQ(Now("location.search"), "");
}

void DashboardBrowserTest::Go(const std::string& hash) {
  ASSERT_THAT(browser_->Run("location.hash = '" + hash + "';").status(),
              IsOk());
}

void DashboardBrowserTest::SavePicture(const std::string& name) {
  const char* outputs = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  const std::string folder =
      outputs == nullptr ? ::testing::TempDir() : outputs;
  const std::string test =
      ::testing::UnitTest::GetInstance()->current_test_info()->name();
  EXPECT_THAT(
      browser_->SavePicture(absl::StrCat(folder, "/", test, "-", name, ".png")),
      IsOk());
}

void DashboardBrowserTest::StartTraining() {
  training_ = std::make_unique<DashboardTraining>(*driver_);
  ASSERT_TRUE(Eventually(
      [&] { return !Api(absl::StrCat("runs/", kRun)).empty(); }, kPatience));
}

ActorHandle<Talker> DashboardBrowserTest::StartTalker(const std::string& name) {
  auto talker =
      driver_->CreateActor<Talker>({.name = name, .resources = {.cpu = 0.01}});
  EXPECT_THAT(talker, IsOk());
  EXPECT_THAT(talker->WaitReady(kPatience), IsOk());
  return *talker;
}

std::string DashboardBrowserTest::Api(const std::string& path) {
  httplib::Client client(real_->dashboard());
  client.set_read_timeout(30);
  const httplib::Result answer = client.Get(
      "/api/v1/" + path,
      httplib::Headers{{"Authorization", absl::StrCat("Bearer ", kToken)}});
  return answer && answer->status == 200 ? answer->body : "";
}

std::vector<v1::ActorInfo> DashboardBrowserTest::ActorsOf(
    const std::string& class_name) {
  std::vector<v1::ActorInfo> found;
  const auto state = driver_->GetState();
  EXPECT_THAT(state, IsOk());
  if (!state.ok()) return found;
  for (const v1::ActorInfo& actor : state->actors()) {
    if (absl::StrContains(actor.class_name(), class_name) &&
        actor.state() == v1::ACTOR_STATE_ALIVE) {
      found.push_back(actor);
    }
  }
  return found;
}

}  // namespace miniray
