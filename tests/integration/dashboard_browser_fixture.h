// A real cluster that trains, and a browser that shows its dashboard: what the
// tests of the dashboard's pages have in common.

#ifndef MINIRAY_TESTS_INTEGRATION_DASHBOARD_BROWSER_FIXTURE_H_
#define MINIRAY_TESTS_INTEGRATION_DASHBOARD_BROWSER_FIXTURE_H_

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "runtime/api/miniray.h"
#include "tests/integration/browser.h"
#include "tests/integration/real_cluster.h"
#include "tests/runtime/base/temp_folder.h"
#include "train/result.h"

namespace miniray {

// With what means something in an address.
inline constexpr char kToken[] = "a+b/c=&#$%41x-8f31c07be2d94a65";
inline constexpr char kTokenInAddress[] =
    "a%2Bb%2Fc%3D%26%23%24%2541x-8f31c07be2d94a65";
inline constexpr char kTokenEnd[] = "8f31c07be2d94a65";
inline constexpr char kRun[] = "quadratic";
// More than a test lasts.
inline constexpr int kEpochs = 1000;
inline constexpr absl::Duration kPatience = Browser::kPatience;

class Talker {
 public:
  void Say(const std::string& words) { std::cout << words << std::endl; }
};
MINIRAY_ACTOR(Talker, Constructor<>, &Talker::Say);

// Trains two workers, as the run kRun, in a thread until it is stopped, and
// shows a picture now and then.
class DashboardTraining {
 public:
  explicit DashboardTraining(const Cluster& cluster);
  ~DashboardTraining();

  // Stops it, unless it has ended.
  const absl::StatusOr<train::Result>& End();
  // Until it has ended.
  const absl::StatusOr<train::Result>& Wait();

 private:
  struct Rep;
  const std::unique_ptr<Rep> rep_;
};

// A cluster with a token and a browser that shows its dashboard. At the end of
// each test the browser has complained of nothing but what the test allows, and
// has asked no other host for anything.
class DashboardBrowserTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Looks at the errors in the page's console since the last time. allowed:
  // parts of lines about requests that failed; no other error ever is.
  void ExpectNoComplaints(const std::vector<std::string>& allowed = {});

  // Scripts have all(id), one(id) and text(id) of elements by their data-testid
  // (runtime/dashboard/README.md), points(metric) of its chart, focused(),
  // back() and contrast() of the page.

  // Waits until the JavaScript expression is true in the page. With an error
  // that says what it shows instead.
  testing::AssertionResult See(const std::string& expression);
  // Its value now.
  nlohmann::json Now(const std::string& expression);
  // Does something in the page: statements of JavaScript.
  void Do(const std::string& statements);
  // As soon as the expression is an element that can be seen.
  void Click(const std::string& element);

  void OpenDashboard();
  // "#/runs"
  void Go(const std::string& hash);
  void SavePicture(const std::string& name);

  // Returns once the head has heard of it: a page of a run that it does not
  // know is an error in the console.
  void StartTraining();
  ActorHandle<Talker> StartTalker(const std::string& name = "talker");

  // As a program asks.
  std::string Api(const std::string& path);
  // The actors of a class that live.
  std::vector<v1::ActorInfo> ActorsOf(const std::string& class_name);

  TempFolder files_;
  std::optional<RealCluster> real_;
  std::optional<Cluster> driver_;
  std::unique_ptr<DashboardTraining> training_;
  std::unique_ptr<Browser> browser_;
};

}  // namespace miniray

#endif  // MINIRAY_TESTS_INTEGRATION_DASHBOARD_BROWSER_FIXTURE_H_
