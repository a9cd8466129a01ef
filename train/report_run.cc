#include "train/report_run.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "proto/run.pb.h"
#include "runtime/base/ids.h"
#include "runtime/base/net.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"
#include "runtime/client/head_requests.h"
#include "runtime/runs/run_checks.h"
#include "train/merge_metrics.h"

namespace miniray::train {
namespace {

// What the end of training waits for the head.
constexpr absl::Duration kEndFlush = absl::Seconds(2);
// And before that, for what the parameter server has come to.
constexpr absl::Duration kServerPatience = absl::Milliseconds(500);
// So many workers are asked in one turn, of a second.
constexpr size_t kMaxAsked = 64;
constexpr absl::Duration kServerPeriod = absl::Seconds(5);
constexpr int kAll = -1;  // The worker that stands for all.

// A text from outside, in the head's limits; a byte may become three.
std::string Text(absl::string_view text, size_t max_bytes) {
  return ToUtf8(text.substr(0, max_bytes / 3));
}

// What a worker reports of how much it has trained on; GANs count images.
double SamplesOf(const Metrics& metrics) {
  for (const char* name : {kSamplesMetric, "images"}) {
    const auto it = metrics.find(name);
    if (it != metrics.end()) return std::max(0.0, it->second);
  }
  return 0;
}

double FractionOf(const Progress& progress) {
  if (progress.done) return 1;
  return std::min(1.0, static_cast<double>(progress.samples_done) /
                           static_cast<double>(progress.samples));
}

// The mean age of gradients, by how many were how old.
double MeanOf(const std::vector<int64_t>& histogram) {
  double sum = 0;
  double count = 0;
  for (size_t s = 0; s < histogram.size(); ++s) {
    sum += static_cast<double>(s) * static_cast<double>(histogram[s]);
    count += static_cast<double>(histogram[s]);
  }
  return count > 0 ? sum / count : 0;
}

v1::RunEvent ServerEvent(const std::string& actor_id,
                         const ps::SyncStats& stats) {
  v1::RunEvent event;
  v1::RunServer& server = *event.mutable_server();
  server.set_name("parameter server");
  server.set_actor_id(actor_id);
  server.set_strategy(Text(stats.strategy, kMaxRunTextBytes));
  server.set_version(stats.version);
  server.set_num_syncs(stats.num_syncs);
  server.set_bytes_pulled(stats.bytes_pulled);
  server.set_bytes_pushed(stats.bytes_pushed);
  server.set_staleness(MeanOf(stats.gradients.staleness));
  server.set_num_restarts(stats.num_restarts);
  return event;
}

}  // namespace

std::shared_ptr<ReportRun> ReportRun::Start(const Cluster& cluster,
                                            Options options) {
  std::string id = options.run_id;
  if (id.empty()) id = RunIdFrom(options.name);
  if (id.empty()) id = NewId("train");
  std::shared_ptr<ReportRun> report(
      new ReportRun(cluster.job_id(), std::move(options)));
  const absl::Status started = report->StartReporter(cluster, std::move(id));
  if (started.ok()) return report;
  LOG(WARNING) << "the training is not shown: " << started.message();
  return nullptr;
}

absl::Status ReportRun::StartReporter(const Cluster& cluster,
                                      std::string run_id) {
  const miniray::internal::HeadAccess head =
      miniray::internal::HeadAccessOf(*cluster.client());
  RunReporter::Options reporter;
  reporter.head_address = head.address;
  reporter.token = head.token;
  reporter.run_id = std::move(run_id);
  reporter.poll = [this] { Poll(); };
  absl::MutexLock lock(&mu_);
  MR_ASSIGN_OR_RETURN(reporter_, RunReporter::Start(std::move(reporter)));
  return absl::OkStatus();
}

ReportRun::ReportRun(std::string job_id, Options options)
    : job_id_(std::move(job_id)), options_(std::move(options)) {}

// --- What there is to tell.

void ReportRun::TellPoint(const std::string& metric, int worker, double epoch,
                          double value) {
  v1::RunEvent event;
  v1::RunPoint& point = *event.mutable_point();
  point.set_metric(metric);
  point.set_worker(worker);
  point.set_epoch(epoch);
  point.set_value(value);
  reporter_->Report(std::move(event));
}

void ReportRun::TellProgressOf(int worker, int64_t epoch, int64_t step,
                               int64_t steps, int64_t samples) {
  v1::RunEvent event;
  v1::RunProgress& progress = *event.mutable_progress();
  progress.set_worker(worker);
  progress.set_epoch(epoch);
  progress.set_step(step);
  progress.set_steps(steps);
  progress.set_samples(samples);
  reporter_->Report(std::move(event));
}

void ReportRun::TellSpan(const std::string& name, const std::string& track,
                         double seconds) {
  const absl::Time end = absl::Now();
  v1::RunEvent event;
  v1::RunSpan& span = *event.mutable_span();
  span.set_name(name);
  span.set_track(track);
  span.set_start_unix_us(
      absl::ToUnixMicros(end - absl::Seconds(std::max(0.0, seconds))));
  span.set_end_unix_us(absl::ToUnixMicros(end));
  reporter_->Report(std::move(event));
}

void ReportRun::Image(const std::string& name, int epoch, std::string png,
                      int width, int height) {
  v1::RunEvent event;
  v1::RunImage& image = *event.mutable_image();
  image.set_name(name);
  image.set_epoch(epoch);
  image.set_png(std::move(png));
  image.set_width(width);
  image.set_height(height);
  reporter_->Report(std::move(event));
}

void ReportRun::Begin(const TrainContext& context, int64_t first_epoch) {
  begun_ = true;
  v1::RunEvent event;
  v1::RunStarted& started = *event.mutable_started();
  started.set_kind(options_.kind);
  started.set_job_id(job_id_);
  started.set_num_workers(context.num_workers());
  started.set_epochs(context.epochs());
  started.set_first_epoch(first_epoch);
  started.set_hostname(Text(Hostname(), kMaxRunNameBytes));
  started.set_pid(getpid());
  started.set_folder(Text(options_.folder, kMaxRunTextBytes));
  reporter_->Report(std::move(event));
}

void ReportRun::HonourStop(TrainContext& context) const {
  if (reporter_->stop_requested()) context.RequestStop();
}

// --- The hooks.

void ReportRun::OnResume(TrainContext& context,
                         const std::vector<EpochResult>& history) {
  Begin(context, static_cast<int64_t>(history.size()));
}

void ReportRun::OnEpochStart(TrainContext& context, int epoch) {
  if (!begun_) Begin(context, epoch);
  HonourStop(context);
  TellProgressOf(kAll, epoch, 0, 0, 0);
  absl::MutexLock lock(&mu_);
  epoch_ = epoch;
  watched_.clear();  // Until Watch.
}

void ReportRun::OnSync(TrainContext& context, int epoch,
                       const ps::SyncResult& result) {
  HonourStop(context);
  ++num_syncs_;
  v1::RunEvent event;
  v1::RunSync& sync = *event.mutable_sync();
  sync.set_epoch(epoch);
  sync.set_version(result.version);
  sync.set_num_workers(result.num_workers);
  sync.set_seconds_pull(result.seconds_pull);
  sync.set_seconds_aggregate(result.seconds_aggregate);
  sync.set_seconds_push(result.seconds_push);
  sync.set_bytes(result.bytes);
  reporter_->Report(std::move(event));
  TellSpan(
      absl::StrCat("sync ", result.version), "parameter server",
      result.seconds_pull + result.seconds_aggregate + result.seconds_push);
  absl::MutexLock lock(&mu_);
  server_changed_ = true;
}

void ReportRun::OnEpochEnd(TrainContext& context, const EpochResult& result) {
  if (!begun_) Begin(context, result.epoch);
  {
    absl::MutexLock lock(&mu_);
    epoch_ = -1;  // Answers that come later are of no use.
  }
  const double end = result.epoch + 1;
  for (const auto& [name, value] : result.metrics) {
    TellPoint(name, kAll, end, value);
  }
  double samples = 0;
  for (size_t i = 0; i < result.per_worker.size(); ++i) {
    for (const auto& [name, value] : result.per_worker[i]) {
      TellPoint(name, static_cast<int>(i), end, value);
    }
    samples += SamplesOf(result.per_worker[i]);
  }
  TellProgressOf(kAll, result.epoch, 1, 1, static_cast<int64_t>(samples));
  // For people, who count from 1.
  TellSpan(absl::StrCat("epoch ", result.epoch + 1), "trainer", result.seconds);
  HonourStop(context);
}

void ReportRun::OnEvaluation(TrainContext& context, const EpochResult& result) {
  HonourStop(context);
  for (const auto& [name, value] : EvaluationOf(result.metrics)) {
    TellPoint(name, kAll, result.epoch + 1, value);
  }
}

void ReportRun::OnCheckpoint(TrainContext& context,
                             const CheckpointInfo& info) {
  TellSpan(absl::StrCat("checkpoint ", info.epochs), "checkpoints",
           info.seconds);
}

void ReportRun::OnTrainEnd(TrainContext& context, const Result& result) {
  AnyActorHandle server;
  {
    absl::MutexLock lock(&mu_);
    epoch_ = -1;
    watched_.clear();
    // What was told of it last is older than its last synchronisation.
    if (server_changed_ || server_question_.state() != nullptr) {
      server = server_;
    }
    server_question_ = {};
    server_ = AnyActorHandle();
  }
  if (!begun_) Begin(context, 0);
  if (!server.empty()) {
    const absl::StatusOr<ps::SyncStats> stats =
        server.CallByName<ps::SyncStats>("GetStats").Get(kServerPatience);
    if (stats.ok()) reporter_->Report(ServerEvent(server.actor_id(), *stats));
  }
  v1::RunEvent event;
  v1::RunEnded& ended = *event.mutable_ended();
  const bool by_signal = !result.stopped_by.empty();
  const bool fewer =
      context.epochs() == 0 ||
      result.history.size() < static_cast<size_t>(context.epochs());
  ended.set_stopped(fewer && (by_signal || context.stop_requested()));
  if (!result.error.ok() && !(by_signal && absl::IsCancelled(result.error))) {
    ended.set_error(Text(result.error.message(), kMaxRunTextBytes));
    if (ended.error().empty()) ended.set_error("it failed");
  }
  reporter_->Report(std::move(event));
  reporter_->Flush(kEndFlush);
}

// --- What is asked.

void ReportRun::Watch(const std::vector<AnyActorHandle>& workers,
                      AnyActorHandle server) {
  absl::MutexLock lock(&mu_);
  server_ = std::move(server);
  watched_.resize(workers.size());
  for (size_t i = 0; i < workers.size(); ++i) {
    if (watched_[i].worker.actor_id() == workers[i].actor_id()) continue;
    watched_[i] = {.worker = workers[i]};
  }
}

void ReportRun::Poll() {
  absl::MutexLock lock(&mu_);
  if (reporter_ == nullptr) return;
  AskServer();
  if (epoch_ < 0) return;
  AskWorkers();
  TellProgress();
}

void ReportRun::AskWorkers() {
  for (Watched& watched : watched_) {
    if (!watched.question.ready()) continue;
    const absl::StatusOr<Progress> answer = watched.question.Get();
    watched.question = {};
    // How far it is counts only where it goes on; without a total it is not
    // known how far that is.
    if (!answer.ok() || answer->epoch != epoch_ || answer->samples <= 0 ||
        (watched.last.has_value() &&
         FractionOf(*answer) <= FractionOf(*watched.last))) {
      continue;
    }
    watched.last = *answer;
    watched.is_new = true;
  }
  const size_t num_asked = std::min(watched_.size(), kMaxAsked);
  for (size_t i = 0; i < num_asked; ++i) {
    Watched& watched = watched_[next_asked_++ % watched_.size()];
    if (watched.question.state() != nullptr) continue;
    if (watched.last.has_value() && watched.last->done) continue;
    watched.question = watched.worker.CallByName<Progress>("GetProgress");
  }
}

void ReportRun::TellProgress() {
  bool any_new = false;
  bool all_known = true;
  int64_t done = 0;
  int64_t samples = 0;
  double fraction = 0;
  std::map<std::string, double> sums;
  std::map<std::string, size_t> counts;
  for (size_t i = 0; i < watched_.size(); ++i) {
    Watched& watched = watched_[i];
    if (!watched.last.has_value()) {
      all_known = false;
      continue;
    }
    const Progress& progress = *watched.last;
    done += progress.samples_done;
    samples += progress.samples;
    fraction += FractionOf(progress);
    for (const auto& [name, value] : progress.metrics) {
      sums[name] += value;
      ++counts[name];
    }
    if (!std::exchange(watched.is_new, false)) continue;
    any_new = true;
    TellProgressOf(static_cast<int>(i), epoch_, progress.samples_done,
                   progress.samples, progress.samples_done);
    // The end of the epoch has its own.
    if (progress.done) continue;
    for (const auto& [name, value] : progress.metrics) {
      TellPoint(name, static_cast<int>(i), epoch_ + FractionOf(progress),
                value);
    }
  }
  if (!any_new || !all_known) return;
  TellProgressOf(kAll, epoch_, done, samples, done);
  fraction /= static_cast<double>(watched_.size());
  if (fraction >= 1) return;
  for (const auto& [name, sum] : sums) {
    if (counts[name] < watched_.size()) continue;
    TellPoint(name, kAll, epoch_ + fraction,
              sum / static_cast<double>(watched_.size()));
  }
}

void ReportRun::AskServer() {
  if (server_question_.ready()) {
    const absl::StatusOr<ps::SyncStats> stats = server_question_.Get();
    server_question_ = {};
    if (stats.ok()) {
      reporter_->Report(ServerEvent(server_.actor_id(), *stats));
    }
  }
  if (!server_changed_ || server_.empty() ||
      server_question_.state() != nullptr ||
      absl::Now() < next_server_question_) {
    return;
  }
  server_changed_ = false;
  next_server_question_ = absl::Now() + kServerPeriod;
  server_question_ = server_.CallByName<ps::SyncStats>("GetStats");
}

}  // namespace miniray::train
