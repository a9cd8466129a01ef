// The dashboard as a person sees it: Debian's Chromium beside a real cluster
// that trains. Pictures of all pages are left in TEST_UNDECLARED_OUTPUTS_DIR
// (bazel-testlogs/tests/integration/dashboard_browser_test/test.outputs).

#include <signal.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/actor.pb.h"
#include "proto/head.pb.h"
#include "proto/run.pb.h"
#include "runtime/api/miniray.h"
#include "runtime/runs/run_reporter.h"
#include "tests/integration/browser.h"
#include "tests/integration/dashboard_browser_fixture.h"
#include "tests/integration/process_tools.h"
#include "tests/integration/real_cluster.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// As a string in JavaScript.
std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump();
}

struct Page {
  std::string name;
  std::string hash;
  std::string shows;  // Is true of it once all is there.
};

std::vector<Page> AllPages(const std::string& talker) {
  return {
      {"overview", "#/overview",
       "one('page-overview') && text('card-nodes').includes('1 alive') && "
       "Number(text('actors-alive')) >= 4 && one('run-row') && one('job-row') "
       "&& one('node-row')"},
      {"runs", "#/runs",
       "one('page-runs') && !one('run-detail') && "
       "text('run-row').includes('quadratic') && text('run-state') === "
       "'running'"},
      {"run", "#/runs/quadratic",
       "one('run-detail') && points('x') > 0 && points('sync') > 0 && "
       "text('run-facts').includes('DataParallelTrainer') && "
       "one('sample-image')?.querySelector('img').naturalWidth === 16"},
      {"jobs", "#/jobs", "one('page-jobs') && text('job-state') === 'running'"},
      {"actors", "#/actors",
       "one('page-actors') && !one('actor-detail') && "
       "all('actor-row').length >= 4 && "
       "all('actor-row-log').every((cell) => "
       "cell.querySelector('a').hash.startsWith('#/logs/actor/')) && "
       // Workers have been called; none of them has a queue.
       "all('actor-calls-done').some((cell) => Number(cell.textContent) > 0) "
       "&& all('actor-queue').some((cell) => cell.textContent === '0') && "
       "all('actor-state').every((cell) => cell.textContent === 'alive')"},
      {"actor", "#/actors/" + talker,
       "text('actor-facts').includes('Talker') && "
       "text('actor-calls').includes('Calls done') && "
       "text('actor-log').includes('good morning')"},
      {"nodes", "#/nodes",
       "one('page-nodes') && text('node-state') === 'alive'"},
      {"servers", "#/servers",
       "one('page-servers') && Number(text('server-version')) >= 1 && "
       "text('server-row').includes('quadratic')"},
      {"log", "#/logs/actor/" + talker,
       "text('log-text').includes('good morning')"},
  };
}

TEST_F(DashboardBrowserTest, EveryPageShowsARealTraining) {
  StartTraining();
  const ActorHandle<Talker> talker = StartTalker();
  ASSERT_THAT(
      talker.Call<&Talker::Say>(std::string("good morning")).Get(kPatience),
      IsOk());
  // The page of an actor reads the log once.
  ASSERT_TRUE(Eventually(
      [&] {
        return absl::StrContains(Api("logs?actor=" + talker.actor_id()),
                                 "good morning");
      },
      kPatience));
  OpenDashboard();
  struct Look {
    std::string name;
    int width, height;
    std::string colours;
  };
  for (const Look& look : std::vector<Look>{{"light", 1280, 900, "light"},
                                            {"dark", 1280, 900, "dark"},
                                            {"phone", 320, 640, "light"},
                                            {"phone-dark", 320, 640, "dark"}}) {
    SCOPED_TRACE(look.name);
    ASSERT_THAT(browser_->Resize(look.width, look.height), IsOk());
    ASSERT_THAT(browser_->PreferColours(look.colours), IsOk());
    for (const Page& page : AllPages(talker.actor_id())) {
      SCOPED_TRACE(page.name);
      Go(page.hash);
      ASSERT_TRUE(See(page.shows));
      // Charts fit themselves a moment later.
      ASSERT_TRUE(
          See(absl::StrCat("innerWidth === ", look.width,
                           " && document.documentElement.scrollWidth <= "
                           "document.documentElement.clientWidth")));
      EXPECT_TRUE(See("text('problem') === '' && text('banner') === ''"));
      EXPECT_EQ(Now("all('nav-overview').length"), 1);
      SavePicture(absl::StrCat(page.name, "-", look.name));
    }
    EXPECT_GE(Now("contrast()").get<double>(), 4.5);
    const double back = Now("back()").get<double>();
    if (look.colours == "dark") {
      EXPECT_LT(back, 0.1);
    } else {
      EXPECT_GT(back, 0.8);
    }
  }
}

TEST_F(DashboardBrowserTest, ACurveGrowsAndALogIsFollowed) {
  StartTraining();
  OpenDashboard();
  Go("#/runs/quadratic");
  ASSERT_TRUE(
      See("points('x') > 0 && "
          "text('chart-x-values').includes('worker 1: ')"));
  for (int i = 0; i < 3; ++i) {
    const int64_t before = Now("points('x')").get<int64_t>();
    // What is said of it grows too.
    const std::string said = Now("text('chart-x-values')").get<std::string>();
    EXPECT_THAT(said, StartsWith("mean: "));
    ASSERT_TRUE(See(absl::StrCat("points('x') > ", before,
                                 " && text('chart-x-values') !== '", said,
                                 "' && one('chart-x').ariaLabel.startsWith("
                                 "'x; now mean ')")));
  }
  const ActorHandle<Talker> talker = StartTalker();
  Go("#/logs/actor/" + talker.actor_id());
  ASSERT_TRUE(See("text('log-status').startsWith('Following')"));
  for (const std::string words : {"one", "two", "three"}) {
    ASSERT_THAT(talker.Call<&Talker::Say>("line " + words).Get(kPatience),
                IsOk());
    ASSERT_TRUE(See("text('log-text').endsWith('line " + words + "\\n')"));
  }
}

// Reports a training of a metric "x" with so many epochs, all at once, which
// then goes on.
class LongRun {
 public:
  LongRun(const std::string& head, const std::string& id, int epochs) {
    absl::StatusOr<std::unique_ptr<RunReporter>> reporter = RunReporter::Start(
        {.head_address = head, .token = kToken, .run_id = id});
    EXPECT_THAT(reporter, IsOk());
    reporter_ = *std::move(reporter);
    v1::RunEvent event;
    event.mutable_started()->set_kind("LongRun");
    event.mutable_started()->set_num_workers(1);
    reporter_->Report(std::move(event));
    for (int i = 0; i < epochs; ++i) Report();
  }

  // One more epoch.
  void Report() {
    ++epochs_;
    v1::RunEvent event;
    v1::RunPoint& point = *event.mutable_point();
    point.set_metric("x");
    point.set_worker(-1);
    point.set_epoch(epochs_);
    point.set_value(std::sin(epochs_ * 0.01) + 10.0 / epochs_);
    reporter_->Report(std::move(event));
  }

  bool Flush() { return reporter_->Flush(kPatience); }
  int64_t dropped() const { return reporter_->counts().dropped; }

 private:
  std::unique_ptr<RunReporter> reporter_;
  int epochs_ = 0;
};

// The head thins them: a page draws no more than it can, and still the newest.
TEST_F(DashboardBrowserTest, TenRunsOfTenThousandPoints) {
  constexpr int kRuns = 10;
  constexpr int kPoints = 10000;
  std::vector<LongRun> runs;
  for (int i = 0; i < kRuns; ++i) {
    runs.emplace_back(real_->address(), absl::StrCat("long-", i), kPoints);
  }
  for (LongRun& run : runs) {
    ASSERT_TRUE(run.Flush());
    ASSERT_EQ(run.dropped(), 0);
  }
  OpenDashboard();
  ASSERT_THAT(
      browser_
          ->Run("window.slow = []; new PerformanceObserver((list) => "
                "window.slow.push(...list.getEntries().map((entry) => "
                "Math.round(entry.duration)))).observe({type: 'longtask'});")
          .status(),
      IsOk());
  Go("#/runs");
  ASSERT_TRUE(See(absl::StrCat("all('run-row').length === ", kRuns)));
  for (int i = 0; i < kRuns; ++i) {
    SCOPED_TRACE(i);
    Go(absl::StrCat("#/runs/long-", i));
    // Each of the ten goes on meanwhile.
    for (int more = 1; more <= 2; ++more) {
      for (LongRun& run : runs) run.Report();
      ASSERT_TRUE(runs[static_cast<size_t>(i)].Flush());
      ASSERT_TRUE(
          See(absl::StrCat("points('x') >= 300 && points('x') <= 1000 && "
                           "text('chart-x-values').endsWith(' at epoch ",
                           kPoints + 2 * i + more, "')")));
    }
  }
  SavePicture("long-run");
  // What a person would feel; how long it takes hangs on the machine.
  std::cout << "milliseconds in which the page could not answer: "
            << Now("window.slow").dump() << std::endl;
}

// A learning rate that stays the same is not drawn as 0.
TEST_F(DashboardBrowserTest, AConstantIsDrawnWhereItIs) {
  auto reporter = RunReporter::Start(
      {.head_address = real_->address(), .token = kToken, .run_id = "steady"});
  ASSERT_THAT(reporter, IsOk());
  v1::RunEvent event;
  event.mutable_started()->set_kind("Steady");
  event.mutable_started()->set_num_workers(1);
  (*reporter)->Report(event);
  for (int epoch = 1; epoch <= 3; ++epoch) {
    v1::RunPoint& point = *event.mutable_point();
    point.set_metric("lr");
    point.set_worker(-1);
    point.set_epoch(epoch);
    point.set_value(2e-4);
    (*reporter)->Report(event);
  }
  ASSERT_TRUE((*reporter)->Flush(kPatience));
  OpenDashboard();
  Go("#/runs/steady");
  ASSERT_TRUE(See("points('lr') === 3"));
  const std::string axis = "Chart.getChart(one('chart-lr')).scales.y";
  EXPECT_GT(Now(axis + ".min").get<double>(), 1e-4);
  EXPECT_LT(Now(axis + ".min").get<double>(), 2e-4);
  EXPECT_GT(Now(axis + ".max").get<double>(), 2e-4);
  EXPECT_LT(Now(axis + ".max").get<double>(), 3e-4);
  SavePicture("constant");
}

TEST_F(DashboardBrowserTest, ColumnsThatNoNodeHasAnythingInAreNotShown) {
  OpenDashboard();
  Go("#/nodes");
  ASSERT_TRUE(See("one('node-row')"));
  const auto shown = [](const std::string& column) {
    return "[...document.querySelectorAll('th, td')].filter((cell) => "
           "(cell.dataset.label ?? cell.textContent) === '" +
           column + "' && cell.checkVisibility()).length";
  };
  EXPECT_EQ(Now(shown("CPU given")), 2);
  EXPECT_EQ(Now(shown("GPU given")), 0);
  EXPECT_EQ(Now(shown("Other")), 0);
  // The empty cell of the node that has none is shown, too.
  real_->AddNode({"--num_gpus=2"});
  EXPECT_TRUE(See(shown("GPU given") + " === 3"));
  EXPECT_EQ(Now(shown("Other")), 0);
  SavePicture("nodes");
}

TEST_F(DashboardBrowserTest, ADeathIsSeenWithItsCause) {
  StartTraining();
  const ActorHandle<Talker> talker = StartTalker();
  OpenDashboard();
  Go("#/actors/" + talker.actor_id());
  ASSERT_TRUE(
      See("text('actor-facts').includes('alive') && "
          "text('actor-calls').includes('Calls done')"));
  ExpectNoComplaints();
  const auto pid =
      static_cast<pid_t>(RealCluster::Info(*driver_, talker).pid());
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  ASSERT_TRUE(
      See("text('actor-facts').includes('dead') && "
          "text('actor-facts').includes('killed by signal 9')"));
  SavePicture("actor");
  // And in the list.
  Go("#/actors?state=dead");
  ASSERT_TRUE(
      See(absl::StrCat("one('actor-row')?.dataset.key === '", talker.actor_id(),
                       "' && text('actor-state') === 'dead' && "
                       "text('actor-row').includes('killed by signal 9')")));
  SavePicture("actors");
  // Of a dead one nobody can tell what it does: the page asks, and says so.
  ExpectNoComplaints(
      {"/calls - Failed to load resource: the server responded "
       "with a status of 503",
       "/calls - Failed to load resource: the server responded "
       "with a status of 504"});

  Go("#/runs/quadratic");
  ASSERT_TRUE(See("points('x') > 0 && text('run-facts').includes('running')"));
  const std::vector<v1::ActorInfo> workers = ActorsOf("QuadraticWorker");
  ASSERT_EQ(workers.size(), 2u);
  ASSERT_EQ(kill(static_cast<pid_t>(workers[0].pid()), SIGKILL), 0);
  ASSERT_TRUE(
      See("text('run-facts').includes('failed') && "
          "text('run-error').includes('signal 9')"));
  SavePicture("run");
  EXPECT_FALSE(training_->Wait().ok());
}

TEST_F(DashboardBrowserTest, AKilledHeadIsSeenAndComesBack) {
  StartTraining();
  OpenDashboard();
  Go("#/runs/quadratic");
  // Ten epochs of three curves: the first of them are on the head's disk, which
  // is written every second.
  ASSERT_TRUE(See("points('x') >= 30"));
  ExpectNoComplaints();
  const int64_t before = Now("points('x')").get<int64_t>();
  real_->KillHead();
  ASSERT_TRUE(See("text('banner').includes('The head does not answer')"));
  SavePicture("away");
  // What was seen is still there.
  EXPECT_GE(Now("points('x')").get<int64_t>(), before);
  EXPECT_EQ(Now("text('run-title')"), kRun);

  real_->StartHead();
  ASSERT_TRUE(See("text('banner') === ''"));
  const int64_t back = Now("points('x')").get<int64_t>();
  ASSERT_TRUE(See(absl::StrCat("points('x') > ", std::max(before, back),
                               " && text('run-facts').includes('running')")));
  SavePicture("back");
  // While nobody answered; scripts failed in nothing.
  ExpectNoComplaints({"Failed to load resource: net::ERR_"});
  Go("#/runs");
  ASSERT_TRUE(
      See("all('run-row').length === 1 && "
          "text('run-row').includes('quadratic') && "
          "text('run-state') === 'running'"));
  Go("#/nodes");
  ASSERT_TRUE(See("text('node-state') === 'alive'"));
  const auto run = nlohmann::json::parse(
      Api(absl::StrCat("runs/", kRun, "?points=5000")), nullptr, false);
  ASSERT_TRUE(run.is_object() && run.contains("curves"));
  ASSERT_FALSE(run["curves"].empty());
  EXPECT_EQ(run["curves"][0]["epochs"][0], 1.0);
  EXPECT_THAT(training_->End(), IsOk());
}

TEST_F(DashboardBrowserTest, TheKeyboardIsEnough) {
  // Presses Tab until the expression is true.
  const auto tab_to = [this](const std::string& expression) {
    for (int i = 0; i < 30; ++i) {
      EXPECT_THAT(browser_->Press(Browser::kTab), IsOk());
      if (Now(expression) == true) return true;
    }
    return false;
  };
  StartTraining();
  OpenDashboard();
  // The first is the way past the navigation.
  ASSERT_THAT(browser_->Press(Browser::kTab), IsOk());
  EXPECT_EQ(Now("focused()"), "skip-link");
  ASSERT_THAT(browser_->Press(Browser::kEnter), IsOk());
  EXPECT_TRUE(See("document.activeElement.id === 'main'"));

  ASSERT_THAT(browser_->Open(real_->dashboard() + "/"), IsOk());
  ASSERT_TRUE(See("one('run-row')"));
  ASSERT_TRUE(tab_to("focused() === 'nav-runs'"));
  // It is seen.
  EXPECT_NE(Now("getComputedStyle(document.activeElement).outlineStyle"),
            "none");
  ASSERT_THAT(browser_->Press(Browser::kEnter), IsOk());
  ASSERT_TRUE(
      See("one('page-runs') && one('run-row') && "
          "document.activeElement.tagName === 'H1'"));
  EXPECT_EQ(Now("one('nav-runs').getAttribute('aria-current')"), "page");

  const std::string in_row =
      "document.activeElement.closest('[data-testid=run-row]') !== null";
  ASSERT_TRUE(tab_to(in_row));
  // Numbers change around the focus.
  const std::string epoch = Now("text('run-epoch')").get<std::string>();
  ASSERT_TRUE(See("text('run-epoch') !== '" + epoch + "'"));
  EXPECT_EQ(Now(in_row), true);
  ASSERT_THAT(browser_->Press(Browser::kEnter), IsOk());
  ASSERT_TRUE(
      See("one('run-detail') && text('run-title') === 'quadratic' && "
          "one('stop-run') && !one('stop-run').hidden"));

  const std::string in_facts =
      "document.activeElement.closest('[data-testid=run-facts]') !== null";
  ASSERT_TRUE(tab_to(in_facts));
  ASSERT_TRUE(See("points('x') > 0"));
  const auto before = Now("points('x')").get<int64_t>();
  ASSERT_TRUE(See(absl::StrCat("points('x') > ", before)));
  EXPECT_EQ(Now(in_facts), true);
  ASSERT_TRUE(tab_to("focused() === 'stop-run'"));
  ASSERT_THAT(browser_->Press(Browser::kEnter), IsOk());
  // A key too many stops nothing.
  ASSERT_TRUE(
      See("one('confirm-dialog').open && focused() === 'confirm-no' && "
          "text('confirm-text').includes('quadratic')"));
  ASSERT_THAT(browser_->Press(Browser::kTab, {Browser::kShift}), IsOk());
  ASSERT_EQ(Now("focused()"), "confirm-yes");
  SavePicture("stop");
  ASSERT_THAT(browser_->Press(Browser::kEnter), IsOk());
  ASSERT_TRUE(See("text('run-facts').includes('stopped')"));
  const absl::StatusOr<train::Result>& result = training_->Wait();
  ASSERT_THAT(result, IsOk());
  EXPECT_LT(result->history.size(), static_cast<size_t>(kEpochs));
}

TEST_F(DashboardBrowserTest, AJobIsStoppedFromItsPage) {
  const RunResult submitted = real_->tree().Run(
      {BuiltProgram("tools/miniray"), "submit", "--address", real_->address(),
       "--token_file", files_ / "token", "--no_wait", "--job_id=night", "--",
       "sh", "-c", "echo good evening; exec sleep 1000"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  OpenDashboard();
  Go("#/jobs");
  Click(
      "all('job-row').find((row) => row.dataset.key === 'night')"
      ".querySelector('a')");
  ASSERT_TRUE(
      See("one('job-detail') && location.hash === '#/jobs?id=night' && "
          "text('job-facts').includes('Staterunning')"));
  SavePicture("running");
  Click("one('stop-job')");
  ASSERT_TRUE(
      See("one('confirm-dialog').open && "
          "text('confirm-text').includes('Stop the job night?')"));
  Click("one('confirm-no')");
  ASSERT_TRUE(See("!one('confirm-dialog').open"));
  // It goes on, and it has a log.
  Click("one('job-facts').querySelector('a[href^=\"#/logs/\"]')");
  ASSERT_TRUE(See("text('log-text').includes('good evening\\n')"));
  Go("#/jobs?id=night");
  ASSERT_TRUE(See("text('job-facts').includes('Staterunning')"));
  Click("one('stop-job')");
  Click("one('confirm-yes')");
  ASSERT_TRUE(
      See("text('job-facts').includes('Statestopped') && "
          "one('stop-job').hidden"));
  SavePicture("stopped");
  Go("#/jobs");
  ASSERT_TRUE(
      See("all('job-row').find((row) => row.dataset.key === 'night')"
          ".textContent.includes('stopped')"));
}

// Whatever the cluster says is text, and no part of the page.
TEST_F(DashboardBrowserTest, MarkupOfAnActorIsText) {
  constexpr char kMarkup[] = "<img src=x onerror='window.hacked = true'>";
  const ActorHandle<Talker> talker = StartTalker(kMarkup);
  const std::string log = "logs?actor=" + talker.actor_id();
  ASSERT_THAT(talker.Call<&Talker::Say>(std::string(kMarkup)).Get(kPatience),
              IsOk());
  ASSERT_TRUE(Eventually(
      [&] {
        return absl::StrContains(Api(log), kMarkup) &&
               absl::StrContains(Api("timeline"), kMarkup);
      },
      kPatience));
  OpenDashboard();
  const auto see_text = [&](const std::string& id) {
    EXPECT_TRUE(
        See(absl::StrCat("text('", id, "').includes(", Quoted(kMarkup), ")")));
    EXPECT_EQ(Now("document.querySelectorAll('img').length"), 0);
  };
  Go("#/actors");
  see_text("actor-row");
  Go("#/actors/" + talker.actor_id());
  see_text("actor-facts");
  see_text("actor-log");
  SavePicture("actor");
  Go("#/logs/actor/" + talker.actor_id());
  see_text("log-text");
  Go("#/actors?class=%3Cimg%20src%3Dx%3E");
  EXPECT_TRUE(See("text('actor-count') === '0 actors'"));

  // The trace that is saved has it, too.
  Go("#/overview");
  Do("const create = URL.createObjectURL;"
     "URL.createObjectURL = (blob) => {"
     "  blob.text().then((trace) => { window.saved = trace; });"
     "  return create.call(URL, blob);"
     "};");
  Click("one('timeline')");
  EXPECT_TRUE(
      See(absl::StrCat("!one('timeline').disabled && "
                       "JSON.parse(window.saved).traceEvents.some((event) => "
                       "String(event.args.name).includes(",
                       Quoted(kMarkup), "))")));
  EXPECT_EQ(Now("text('timeline-problem')"), "");
  EXPECT_EQ(Now("window.hacked === undefined"), true);
}

TEST_F(DashboardBrowserTest, ALogIsFilteredPausedAndCut) {
  const ActorHandle<Talker> talker = StartTalker();
  const auto say = [&talker](const std::string& words) {
    EXPECT_THAT(talker.Call<&Talker::Say>(words).Get(kPatience), IsOk());
  };
  const auto ends_with = [](const std::string& line) {
    return "text('log-text').endsWith('" + line + "\\n')";
  };
  OpenDashboard();
  Go("#/logs/actor/" + talker.actor_id());
  say("pear 1");
  say("apple 1");
  ASSERT_TRUE(
      See(ends_with("apple 1") + " && text('log-text').includes('pear')"));
  Do("one('log-filter').value = 'APPLE'; one('log-show').click();");
  ASSERT_TRUE(
      See("location.hash.endsWith('?filter=APPLE') && "
          "!text('log-text').includes('pear') && " +
          ends_with("apple 1")));
  say("pear 2");
  say("apple 2");
  ASSERT_TRUE(See(ends_with("apple 2")));
  EXPECT_EQ(Now("text('log-text').includes('pear')"), false);

  Click("one('log-pause')");
  say("apple 3");
  ASSERT_TRUE(See("text('log-pause').includes('wait')"));
  EXPECT_EQ(Now("one('log-pause').getAttribute('aria-pressed')"), "true");
  EXPECT_EQ(Now(ends_with("apple 2")), true);
  Click("one('log-pause')");
  ASSERT_TRUE(See(ends_with("apple 3") + " && text('log-pause') === 'Pause'"));

  // The last hundred of what is there, once.
  std::string lines = "apple row 1";
  for (int i = 2; i <= 150; ++i) absl::StrAppend(&lines, "\napple row ", i);
  say(lines);
  ASSERT_TRUE(See(ends_with("apple row 150")));
  Do("one('log-filter').value = '';"
     "one('log-tail').value = '100';"
     "one('log-follow').checked = false;"
     "one('log-show').click();");
  ASSERT_TRUE(See("text('log-text').startsWith('apple row 51\\n') && " +
                  ends_with("apple row 150") +
                  " && text('log-status') === ''"));
}

TEST_F(DashboardBrowserTest, ActorsAreChosenAndPaged) {
  const ActorHandle<Talker> one = StartTalker("one");
  const ActorHandle<Talker> two = StartTalker("two");
  OpenDashboard();
  Go("#/actors");
  ASSERT_TRUE(See("text('actor-count') === '2 actors'"));
  Do("one('actor-class-filter').value = 'Talk'; one('actor-filter').click();");
  ASSERT_TRUE(
      See("location.hash === '#/actors?class=Talk' && "
          "one('actor-class-filter').value === 'Talk' && "
          "all('actor-row').length === 2"));
  Do("one('actor-state-filter').value = 'dead';"
     "one('actor-state-filter').dispatchEvent(new Event('change'));");
  ASSERT_TRUE(
      See("location.hash === '#/actors?state=dead&class=Talk' && "
          "text('actor-count') === '0 actors' && !one('actor-row')"));
  // The newest come first.
  Go("#/actors?class=Talk&offset=1");
  ASSERT_TRUE(
      See(absl::StrCat("text('pager-where') === '2–2 of 2' && "
                       "all('actor-row').length === 1 && "
                       "one('actor-row').dataset.key === '",
                       one.actor_id(), "' && one('pager-after').hidden")));
  Click("one('pager-before')");
  ASSERT_TRUE(
      See("location.hash === '#/actors?class=Talk' && "
          "text('pager-where') === '1–2 of 2' && one('pager-before').hidden"));
}

TEST_F(DashboardBrowserTest, WithoutTheTokenItAsksForIt) {
  ASSERT_THAT(browser_->Open(real_->dashboard() + "/"), IsOk());
  ASSERT_TRUE(See("one('token-dialog').open && focused() === 'token-input'"));
  EXPECT_EQ(Now("document.body.innerText.includes('1 alive')"), false);
  ASSERT_THAT(browser_->Type("sesame"), IsOk());
  ASSERT_THAT(browser_->Press(Browser::kEnter), IsOk());
  ASSERT_TRUE(See("one('token-dialog').open && text('token-wrong') !== ''"));
  SavePicture("wrong");
  // What no header can carry: in the address, and in the form.
  ASSERT_THAT(browser_->Open(real_->dashboard() + "/?token=s%C3%A4same"),
              IsOk());
  ASSERT_TRUE(See("one('token-dialog').open && text('token-wrong') !== ''"));
  EXPECT_EQ(Now("location.search"), "");
  Do("document.getElementById('token').value = 's\\u00e4same';"
     "one('token-submit').click();");
  ASSERT_TRUE(
      See("one('token-dialog').open && "
          "text('token-wrong').includes('other characters')"));
  EXPECT_EQ(Now("text('banner')"), "");
  ASSERT_THAT(
      browser_->Run("document.getElementById('token').focus();").status(),
      IsOk());
  // Set, not typed: half of its characters need another key beneath.
  Do(absl::StrCat("document.getElementById('token').value = ", Quoted(kToken),
                  ";"));
  ASSERT_THAT(browser_->Press(Browser::kEnter), IsOk());
  ASSERT_TRUE(
      See("!one('token-dialog').open && "
          "text('card-nodes').includes('1 alive')"));
  EXPECT_THAT(Now("document.documentElement.outerHTML").get<std::string>(),
              Not(HasSubstr(kTokenEnd)));
  ExpectNoComplaints({"the server responded with a status of 401"});
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
