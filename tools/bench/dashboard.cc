// What the dashboard costs, and how long it takes to answer: see kHelp.

#include <httplib.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/flags/flag.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/api/embedded_cluster.h"
#include "runtime/api/miniray.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/bench.h"
#include "tools/bench/child.h"
#include "tools/bench/simulated_cluster.h"
#include "tools/bench/train_team.h"

ABSL_FLAG(int, actors, 10000, "Actors in the list.");
ABSL_FLAG(int, daemons, 200, "Simulated nodes that they are on.");
ABSL_FLAG(int, requests, 500, "How often each page is asked for.");
ABSL_FLAG(int, epoch_samples, 2048, "Images in an epoch of each worker.");
ABSL_FLAG(int, batch, 64, "Images in a batch.");

namespace miniray::bench {
namespace {

using Json = nlohmann::json;

constexpr char kHelp[] =
    R"(Measures how long the dashboard takes to answer where there are many actors, and
what a training costs that is watched.

  dashboard [FLAGS]

Answers: the time of 99 of 100, over one connection, from a real head with
simulated nodes and actors, while another connection follows the news.
Training: a DataParallelTrainer with two workers of one compute thread each,
synchronised every epoch, in images a second, 8 epochs at a time. Watched: it
reports to the head, and a client follows the news and asks once a second for
what the run's page shows. Not watched: another trainer on the same cluster,
with report = false, and nobody asks the head for anything; measured twice in
each round, before and behind the watched one: the peer is the mean of both, and
a row shows how far they are apart. The head, the dashboard and that client
share the machine with the workers.

  --actors=N         in the list (default 10000)
  --daemons=N        simulated nodes, of 64 CPUs each (default 200)
  --requests=N       how often each page is asked for (default 500)
  --epoch_samples=N  images in an epoch of each worker (default 2048)
  --batch=N          images in a batch (default 64))";

constexpr double kMaxAnswerMs = 200;
constexpr double kMinShare = 0.99;
constexpr int kInFlight = 256;
// Measured at a time.
constexpr int kEpochs = 8;
constexpr char kRun[] = "bench";
constexpr time_t kReadSeconds = 60;

absl::Status CheckFlags() {
  const int batch = absl::GetFlag(FLAGS_batch);
  if (absl::GetFlag(FLAGS_actors) < 1 || absl::GetFlag(FLAGS_daemons) < 1 ||
      absl::GetFlag(FLAGS_requests) < 1 || batch < 1) {
    return absl::InvalidArgumentError(
        "--actors, --daemons, --requests and --batch must be 1 or more");
  }
  if (absl::GetFlag(FLAGS_actors) >
      int64_t{kCpusPerDaemon} * absl::GetFlag(FLAGS_daemons)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--daemons is ", absl::GetFlag(FLAGS_daemons),
        ", which has no room for --actors: each holds ", kCpusPerDaemon));
  }
  if (absl::GetFlag(FLAGS_epoch_samples) < batch) {
    return absl::InvalidArgumentError(
        absl::StrCat("--epoch_samples is ", absl::GetFlag(FLAGS_epoch_samples),
                     "; expected ", batch, " or more, a batch"));
  }
  return absl::OkStatus();
}

// --- The head.

// A real one with a dashboard, as `miniray start` runs it.
class Head {
 public:
  // flags: further ones of `miniray start`.
  static absl::StatusOr<std::unique_ptr<Head>> Start(
      const std::vector<std::string>& flags) {
    MR_ASSIGN_OR_RETURN(const std::string program,
                        internal::FindMinirayProgram());
    std::unique_ptr<Head> head = absl::WrapUnique(new Head);
    // It ends when its standard input does.
    std::vector<std::string> args = {"start",    "--head",
                                     "--block",  "--lifeline_fd=0",
                                     "--port=0", "--dashboard_port=0"};
    args.insert(args.end(), flags.begin(), flags.end());
    MR_ASSIGN_OR_RETURN(head->process_,
                        Child::StartProgram("head", program, args,
                                            {{"MINIRAY_TOKEN", head->token_},
                                             // Not a line for each daemon.
                                             {"GLOG_minloglevel", "2"}}));
    // "The head listens at HOST:PORT (pid ..."
    MR_ASSIGN_OR_RETURN(head->address_, head->ReadPast("listens at "));
    head->address_ = head->address_.substr(0, head->address_.find(' '));
    MR_ASSIGN_OR_RETURN(head->dashboard_, head->ReadPast("Dashboard: "));
    return head;
  }

  const std::string& address() const { return address_; }
  const std::string& token() const { return token_; }

  // A connection to the dashboard.
  std::unique_ptr<httplib::Client> Dial() const {
    auto client = std::make_unique<httplib::Client>(dashboard_);
    client->set_keep_alive(true);
    client->set_tcp_nodelay(true);
    client->set_read_timeout(kReadSeconds);
    client->set_default_headers(
        {{"Authorization", absl::StrCat("Bearer ", token_)}});
    return client;
  }

 private:
  Head() : token_(NewToken()) {}

  // What it prints behind these words.
  absl::StatusOr<std::string> ReadPast(const std::string& words) {
    while (true) {
      MR_ASSIGN_OR_RETURN(const std::string line, process_->Receive());
      const size_t found = line.find(words);
      if (found != std::string::npos) return line.substr(found + words.size());
    }
  }

  const std::string token_;
  std::string address_;
  std::string dashboard_;  // "http://127.0.0.1:PORT"
  std::unique_ptr<Child> process_;
};

// Errors: INTERNAL, it was not answered with 200.
absl::StatusOr<std::string> Get(httplib::Client* client,
                                const std::string& path) {
  const httplib::Result answer = client->Get(path);
  if (!answer) {
    return absl::InternalError(
        absl::StrCat("GET ", path, ": ", httplib::to_string(answer.error())));
  }
  if (answer->status != 200) {
    return absl::InternalError(absl::StrCat("GET ", path, ": ", answer->status,
                                            " ", answer->body.substr(0, 200)));
  }
  return answer->body;
}

// What an open page does: follows the news, and asks once a second.
class Watcher {
 public:
  // Returns once the first news have come. paths: what it asks for.
  static absl::StatusOr<std::unique_ptr<Watcher>> Start(
      const Head& head, std::vector<std::string> paths) {
    std::unique_ptr<Watcher> watcher =
        absl::WrapUnique(new Watcher(head, std::move(paths)));
    if (watcher->heard_.WaitForNotificationWithTimeout(kPatience)) {
      return watcher;
    }
    return absl::DeadlineExceededError("the dashboard sends no news");
  }

  ~Watcher() {
    stop_.Notify();
    // Else it waits for the next news.
    news_client_->stop();
    news_thread_.join();
    look_thread_.join();
  }

  // How often it has asked. Errors: of a question that was not answered.
  absl::StatusOr<int64_t> looks() const {
    const absl::MutexLock lock(&mu_);
    if (!status_.ok()) return status_;
    return looks_;
  }

 private:
  static constexpr absl::Duration kPatience = absl::Seconds(30);
  static constexpr absl::Duration kPeriod = absl::Seconds(1);

  Watcher(const Head& head, std::vector<std::string> paths)
      : paths_(std::move(paths)),
        news_client_(head.Dial()),
        look_client_(head.Dial()),
        news_thread_([this] { Follow(); }),
        look_thread_([this] { Look(); }) {}

  void Follow() {
    news_client_->Get("/api/v1/events", [this](const char*, size_t) {
      if (!heard_.HasBeenNotified()) heard_.Notify();
      return !stop_.HasBeenNotified();
    });
    if (stop_.HasBeenNotified()) return;
    const absl::MutexLock lock(&mu_);
    status_.Update(absl::InternalError("the dashboard's news have ended"));
  }

  void Look() {
    do {
      for (const std::string& path : paths_) {
        const absl::Status status = Get(look_client_.get(), path).status();
        const absl::MutexLock lock(&mu_);
        status_.Update(status);
        ++looks_;
      }
    } while (!stop_.WaitForNotificationWithTimeout(kPeriod));
  }

  const std::vector<std::string> paths_;
  const std::unique_ptr<httplib::Client> news_client_;
  const std::unique_ptr<httplib::Client> look_client_;
  absl::Notification heard_;
  absl::Notification stop_;
  mutable absl::Mutex mu_;
  int64_t looks_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::thread news_thread_;  // Last: they use the others.
  std::thread look_thread_;
};

// --- Answers.

struct Page {
  std::string what;
  std::vector<std::string> paths;  // Asked for one behind the other.
  bool has_target = true;
  // Of the page, once it was asked for.
  std::vector<double> ms;
  size_t bytes = 0;
};

std::vector<Page> AllPages() {
  const int middle = absl::GetFlag(FLAGS_actors) / 2;
  return {
      {.what = "the page of actors",
       .paths = {"/", "/api/v1/actors?limit=100&offset=0"}},
      {.what = "1,000 of them, from the middle",
       .paths = {absl::StrCat("/api/v1/actors?limit=1000&offset=", middle)}},
      {.what = "100 of those that live, by class",
       .paths = {"/api/v1/actors?limit=100&state=living&class=bench"}},
      {.what = "the overview",
       .paths = {"/api/v1/nodes?limit=1000", "/api/v1/actors?limit=0",
                 "/api/v1/jobs?limit=5", "/api/v1/runs"}},
      {.what = "all tables", .paths = {"/api/v1/state"}, .has_target = false}};
}

absl::Status TimePage(Page* page, httplib::Client* client) {
  page->bytes = 0;
  const absl::Time start = absl::Now();
  for (const std::string& path : page->paths) {
    MR_ASSIGN_OR_RETURN(const std::string body, Get(client, path));
    page->bytes += body.size();
  }
  page->ms.push_back(1000 * SecondsSince(start));
  return absl::OkStatus();
}

// All actors are in the list that is measured.
absl::Status CheckTotal(httplib::Client* client) {
  MR_ASSIGN_OR_RETURN(const std::string body,
                      Get(client, "/api/v1/actors?limit=1"));
  const Json answer = Json::parse(body, nullptr, false);
  if (answer.is_object() && answer.contains("total") &&
      answer["total"] == absl::GetFlag(FLAGS_actors)) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrCat("not all actors are in the list: ", body.substr(0, 200)));
}

absl::Status MeasureAnswers(Table* table) {
  RaiseFileLimit();
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Head> head, Head::Start({}));
  SimulatedDaemons daemons(head->address(), head->token(),
                           absl::GetFlag(FLAGS_daemons));
  MR_RETURN_IF_ERROR(daemons.Attach());
  SimulatedDriver driver(head->address(), head->token(), kInFlight);
  MR_RETURN_IF_ERROR(driver.Upload());
  MR_RETURN_IF_ERROR(driver.Create(absl::GetFlag(FLAGS_actors)));
  MR_RETURN_IF_ERROR(driver.WaitUntilUp());
  MR_RETURN_IF_ERROR(driver.ExpectAlive(absl::GetFlag(FLAGS_actors)));

  const std::unique_ptr<httplib::Client> client = head->Dial();
  MR_RETURN_IF_ERROR(CheckTotal(client.get()));
  MR_ASSIGN_OR_RETURN(
      const std::unique_ptr<Watcher> watcher,
      Watcher::Start(*head, {"/api/v1/actors?limit=100&offset=0"}));
  std::vector<Page> pages = AllPages();
  // In turn, as everywhere; the first turn does not count.
  for (int i = 0; i <= absl::GetFlag(FLAGS_requests); ++i) {
    for (Page& page : pages) {
      // What is large and has no target takes most of the time.
      if (!page.has_target && i % 10 > 1) continue;
      MR_RETURN_IF_ERROR(TimePage(&page, client.get()));
      if (i == 0) page.ms.clear();
    }
  }
  MR_RETURN_IF_ERROR(watcher->looks().status());
  const std::string count =
      absl::StrCat(absl::GetFlag(FLAGS_actors), " actors: ");
  for (Page& page : pages) {
    Row row = {.what = count + page.what,
               .unit = "ms",
               .ours = Quantile(page.ms, 0.99),
               .note = absl::StrFormat(
                   "99 of 100; median %.1f ms, %d KiB, %d times",
                   Median(page.ms), page.bytes / 1024, page.ms.size())};
    if (page.has_target) row.at_most = kMaxAnswerMs;
    table->Add(std::move(row));
  }
  return absl::OkStatus();
}

// --- Training.

absl::StatusOr<std::unique_ptr<TrainTeam>> StartTeam(const Cluster& cluster,
                                                     bool report) {
  train::TrainerOptions options;
  options.num_workers = 2;
  options.sync_interval = 1;
  options.cluster = cluster;
  options.report = report;
  if (report) options.run_id = kRun;
  return TrainTeam::Start(std::move(options),
                          absl::GetFlag(FLAGS_epoch_samples),
                          absl::GetFlag(FLAGS_batch));
}

// How many points of the loss the head has.
// Errors: UNAVAILABLE, it does not know the run, or no point of it, yet.
// INTERNAL, it was not told all of it.
absl::StatusOr<int64_t> CountPoints(httplib::Client* client) {
  const absl::StatusOr<std::string> body =
      Get(client, absl::StrCat("/api/v1/runs/", kRun));
  if (!body.ok()) return absl::UnavailableError(body.status().message());
  const Json answer = Json::parse(*body, nullptr, false);
  if (!answer.is_object() || !answer.contains("run") ||
      !answer.contains("curves")) {
    return absl::InternalError("no run: " + body->substr(0, 200));
  }
  if (answer["run"].value("dropped_events", "") != "0") {
    return absl::InternalError("the head was not told all of the run: " +
                               answer["run"].dump());
  }
  int64_t points = 0;
  for (const Json& curve : answer["curves"]) {
    if (curve.value("metric", "") != "loss" || !curve.contains("epochs")) {
      continue;
    }
    points += static_cast<int64_t>(curve["epochs"].size());
  }
  if (points > 0) return points;
  return absl::UnavailableError("the head has no curve of the loss");
}

// Reporters send a few times a second.
absl::StatusOr<int64_t> AwaitPoints(const Head& head) {
  constexpr absl::Duration kReportTimeout = absl::Seconds(30);
  const std::unique_ptr<httplib::Client> client = head.Dial();
  const absl::Time deadline = absl::Now() + kReportTimeout;
  absl::StatusOr<int64_t> points = CountPoints(client.get());
  while (absl::IsUnavailable(points.status()) && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(20));
    points = CountPoints(client.get());
  }
  return points;
}

absl::Status MeasureTraining(Table* table) {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Head> head,
                      Head::Start({"--num_cpus=8"}));
  MR_ASSIGN_OR_RETURN(
      const Cluster cluster,
      Cluster::Connect({.address = head->address(), .token = head->token()}));
  // With new processes each time: how fast one is hangs on where its memory
  // happens to lie, for all of its life.
  const auto train_alone = [&]() -> absl::StatusOr<double> {
    MR_ASSIGN_OR_RETURN(const auto team, StartTeam(cluster, /*report=*/false));
    MR_RETURN_IF_ERROR(team->TrainEpochs(1).status());
    return team->TrainEpochs(kEpochs);
  };
  int64_t looks = 0;
  int64_t points = 0;
  const auto train_watched = [&]() -> absl::StatusOr<double> {
    MR_ASSIGN_OR_RETURN(const auto team, StartTeam(cluster, /*report=*/true));
    // What an epoch's end reports comes once the next one begins.
    MR_RETURN_IF_ERROR(team->TrainEpochs(1).status());
    MR_RETURN_IF_ERROR(AwaitPoints(*head).status());
    MR_ASSIGN_OR_RETURN(
        const std::unique_ptr<Watcher> watcher,
        Watcher::Start(*head,
                       {absl::StrCat("/api/v1/runs/", kRun, "?points=500"),
                        "/api/v1/runs"}));
    MR_ASSIGN_OR_RETURN(const double rate, team->TrainEpochs(kEpochs));
    MR_ASSIGN_OR_RETURN(const int64_t more, watcher->looks());
    looks += more;
    MR_ASSIGN_OR_RETURN(points, AwaitPoints(*head));
    return rate;
  };
  MR_ASSIGN_OR_RETURN(const std::vector<double> medians,
                      MeasureInTurn({{"not watched", train_alone},
                                     {"watched", train_watched},
                                     {"not watched, again", train_alone}},
                                    table));
  table->Add({.what = "training, 2 workers, watched",
              .unit = "images/s",
              .ours = medians[1],
              .peer_name = "not watched",
              .peer = (medians[0] + medians[2]) / 2,
              .note = absl::StrFormat(
                  "%d points of a training's loss at the head, asked %d times",
                  points, looks),
              .at_least = kMinShare});
  table->Add({.what = "training, 2 workers, not watched",
              .unit = "images/s",
              .ours = medians[2],
              .peer_name = "the same, the other time",
              .peer = medians[0],
              .note = "what chance does"});
  return absl::OkStatus();
}

absl::Status Measure(Table* table) {
  MR_RETURN_IF_ERROR(CheckFlags());
  MR_RETURN_IF_ERROR(Annotate(MeasureAnswers(table), "answers"));
  return Annotate(MeasureTraining(table), "training");
}

}  // namespace
}  // namespace miniray::bench

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  namespace bench = miniray::bench;
  return bench::Main(
      argc, argv,
      {.name = "dashboard", .help = bench::kHelp, .measure = bench::Measure});
}
