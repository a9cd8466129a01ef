#include "runtime/runs/collected_run.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace miniray {
namespace {

constexpr int64_t kMicrosInMilli = 1000;
// The curves that have max_points each.
constexpr size_t kFullCurves = 100;
// Of all curves of an answer together, and what each has in any case.
constexpr size_t kMaxAnswerPoints = 40'000;
constexpr size_t kMinAnswerPoints = 20;
// What an entry of a container takes besides what is in it; about.
constexpr size_t kEntryBytes = 128;
// Of a worker since the run's last start; sums over workers and starts stay in
// an int64.
constexpr int64_t kMaxSamples = 1'000'000'000'000'000;

// 0.999999 of an epoch is all of it: fractions are sums.
double Whole(double position) { return std::floor(position + 1e-9); }

double Fraction(const v1::RunProgress& progress) {
  if (progress.steps() <= 0) return 0;
  return std::min(1.0, static_cast<double>(progress.step()) /
                           static_cast<double>(progress.steps()));
}

}  // namespace

CollectedRun::CollectedRun(std::string id, const RunLimits& limits,
                           int64_t now_us)
    : limits_(limits), position_us_(now_us), start_us_(now_us) {
  info_.set_run_id(std::move(id));
  info_.set_state(v1::RUN_STATE_RUNNING);
  info_.set_start_unix_ms(now_us / kMicrosInMilli);
}

// --- What is told.

CollectedRun::Applied CollectedRun::Apply(v1::ReportRunRequest* request,
                                          int64_t order) {
  Applied applied;
  const int64_t lost_before = Lost();
  const bool is_known = reporters_.contains(request->reporter_id());
  TakeNew(request);
  if (order_ == 0) order_ = order;  // Its beginning never came.
  // A sign of life of another, which is about to go on with it, is none of its.
  if (info_.state() == v1::RUN_STATE_LOST &&
      (is_known || request->events_size() > 0)) {
    info_.set_state(v1::RUN_STATE_RUNNING);
    info_.clear_error();
    info_.clear_end_unix_ms();
    applied.changed = applied.turned = true;
  }
  for (v1::RunEvent& event : *request->mutable_events()) {
    ApplyEvent(&event, request->reporter_id(), order, &applied);
  }
  lost_events_ += applied.too_many;
  applied.changed |= request->events_size() > 0 || Lost() != lost_before;
  return applied;
}

void CollectedRun::TakeNew(v1::ReportRunRequest* request) {
  auto it = reporters_.find(request->reporter_id());
  if (it == reporters_.end()) {
    if (reporters_.size() >= limits_.max_reporters) {
      // Any but the one whose end is still to come; what it lost stays lost.
      auto oldest = reporters_.begin();
      if (oldest->first == starter_) ++oldest;
      if (oldest != reporters_.end()) {
        lost_events_ +=
            std::max(oldest->second.missing, oldest->second.dropped);
        reporters_.erase(oldest);
      }
    }
    it = reporters_.emplace(request->reporter_id(), Reporter()).first;
  }
  Reporter& reporter = it->second;
  const int64_t first = request->first_sequence();
  if (first > reporter.next_sequence) {
    reporter.missing += first - reporter.next_sequence;
    reporter.next_sequence = first;
  }
  const int64_t had =
      std::min<int64_t>(reporter.next_sequence - first, request->events_size());
  request->mutable_events()->DeleteSubrange(0, static_cast<int>(had));
  request->set_first_sequence(first + had);
  reporter.next_sequence += request->events_size();
  reporter.dropped = std::max(reporter.dropped, request->dropped());
}

void CollectedRun::ApplyEvent(v1::RunEvent* event,
                              const std::string& reporter_id, int64_t order,
                              Applied* applied) {
  const int64_t unix_us = event->unix_us();
  switch (event->kind_case()) {
    case v1::RunEvent::kStarted:
      Start(event->started(), unix_us, reporter_id, order, applied);
      applied->turned = true;
      break;
    case v1::RunEvent::kProgress:
      Progress(event->progress(), unix_us, applied);
      break;
    case v1::RunEvent::kPoint:
      Point(event->point(), unix_us, applied);
      break;
    case v1::RunEvent::kSync:
      Sync(event->sync(), unix_us);
      break;
    case v1::RunEvent::kServer:
      Server(event->server(), applied);
      break;
    case v1::RunEvent::kImage:
      Picture(event->mutable_image(), unix_us, applied);
      break;
    case v1::RunEvent::kSpan:
      Span(event->span());
      break;
    case v1::RunEvent::kEnded:
      End(event->ended(), unix_us);
      applied->turned = true;
      break;
    case v1::RunEvent::KIND_NOT_SET:
      break;
  }
}

void CollectedRun::NoRoom(const char* what, Applied* applied) {
  if (applied->too_many++ == 0) applied->what = what;
}

void CollectedRun::Start(const v1::RunStarted& started, int64_t unix_us,
                         const std::string& reporter_id, int64_t order,
                         Applied* applied) {
  const int64_t first_epoch = started.first_epoch();
  const bool anew = info_.num_starts() == 0 || first_epoch == 0;
  ForgetFrom(first_epoch, applied);
  if (anew) info_.set_start_unix_ms(unix_us / kMicrosInMilli);
  info_.set_kind(started.kind());
  info_.set_job_id(started.job_id());
  info_.set_state(v1::RUN_STATE_RUNNING);
  info_.clear_error();
  info_.clear_end_unix_ms();
  info_.set_num_workers(started.num_workers());
  info_.set_epochs(started.epochs());
  info_.set_hostname(started.hostname());
  info_.set_folder(started.folder());
  info_.set_num_starts(info_.num_starts() + 1);
  // The same process goes on, and is still to hear of it.
  if (reporter_id != starter_) info_.clear_stop_requested();
  starter_ = reporter_id;
  order_ = order;
  info_.set_samples(std::min(1000 * kMaxSamples, info_.samples() + Samples()));
  workers_.clear();
  position_ = start_position_ = static_cast<double>(first_epoch);
  position_us_ = start_us_ = unix_us;
}

void CollectedRun::ForgetFrom(int64_t first_epoch, Applied* applied) {
  const auto epoch = static_cast<double>(first_epoch);
  num_points_ = 0;
  for (auto it = curves_.begin(); it != curves_.end();) {
    it->second.Truncate(epoch);
    // A point at 0 is of the training that is begun anew.
    if (first_epoch == 0 || it->second.empty()) {
      if (it->first.second == -1)
        info_.mutable_metrics()->erase(it->first.first);
      it = curves_.erase(it);
      continue;
    }
    if (it->first.second == -1) {
      (*info_.mutable_metrics())[it->first.first] = it->second.last().value;
    }
    num_points_ += it->second.size();
    ++it;
  }
  for (size_t i = images_.size(); i-- > 0;) {
    if (images_[i].info.epoch() >= first_epoch) RemoveImage(i, applied);
  }
  if (first_epoch > 0) return;
  syncs_.clear();
  servers_.clear();
  spans_.clear();
  info_.clear_num_syncs();
  info_.clear_num_images();
}

void CollectedRun::MoveTo(double position, int64_t unix_us) {
  if (position == position_) return;
  position_ = position;
  position_us_ = unix_us;
}

void CollectedRun::SeeWorker(int worker) {
  info_.set_num_workers(std::max(info_.num_workers(), worker + 1));
}

void CollectedRun::Progress(const v1::RunProgress& progress, int64_t unix_us,
                            Applied* applied) {
  if (!running()) return;
  auto it = workers_.find(progress.worker());
  if (it == workers_.end()) {
    if (workers_.size() >= limits_.max_workers) {
      return NoRoom("workers", applied);
    }
    it = workers_.emplace(progress.worker(), Worker()).first;
    it->second.progress.set_epoch(-1);
  }
  Worker& worker = it->second;
  // Within the same epoch the count goes on, else it begins at 0.
  const bool goes_on = progress.epoch() == worker.progress.epoch() &&
                       progress.samples() >= worker.progress.samples();
  worker.samples =
      std::min(kMaxSamples, worker.samples + progress.samples() -
                                (goes_on ? worker.progress.samples() : 0));
  if (progress.epoch() != worker.progress.epoch() ||
      progress.samples() < worker.base_samples) {
    worker.base_us = unix_us;
    worker.base_samples = progress.samples();
  } else if (unix_us > worker.base_us &&
             progress.samples() > worker.base_samples) {
    worker.rate =
        1e6 * static_cast<double>(progress.samples() - worker.base_samples) /
        static_cast<double>(unix_us - worker.base_us);
  }
  worker.progress = progress;
  SeeWorker(progress.worker());
  if (progress.worker() == -1) {
    MoveTo(static_cast<double>(progress.epoch()) + Fraction(progress), unix_us);
  } else if (!workers_.contains(-1)) {
    double sum = 0;
    for (const auto& [id, one] : workers_) {
      sum += static_cast<double>(one.progress.epoch()) + Fraction(one.progress);
    }
    MoveTo(sum / static_cast<double>(workers_.size()), unix_us);
  }
}

size_t CollectedRun::PointsOfEach(size_t num_curves) const {
  const size_t share =
      limits_.max_points /
      std::max<size_t>(1, (num_curves + kFullCurves - 1) / kFullCurves);
  return std::max(share - share % 4, limits_.min_points);
}

void CollectedRun::Point(const v1::RunPoint& point, int64_t unix_us,
                         Applied* applied) {
  const CurveKey key(point.metric(), point.worker());
  auto it = curves_.find(key);
  if (it == curves_.end()) {
    if (curves_.size() >= limits_.max_curves) return NoRoom("curves", applied);
    const size_t max_points = PointsOfEach(curves_.size() + 1);
    if (max_points != PointsOfEach(curves_.size())) {
      for (auto& [other, curve] : curves_) {
        num_points_ -= curve.size();
        curve.SetMaxPoints(max_points);
        num_points_ += curve.size();
      }
    }
    it = curves_.emplace(key, Curve(max_points)).first;
  }
  Curve& curve = it->second;
  num_points_ -= curve.size();
  curve.Add({point.epoch(), point.value()});
  num_points_ += curve.size();
  if (point.worker() >= 0) return SeeWorker(point.worker());
  (*info_.mutable_metrics())[point.metric()] = point.value();
  if (running() && point.epoch() > position_) MoveTo(point.epoch(), unix_us);
}

void CollectedRun::Sync(const v1::RunSync& sync, int64_t unix_us) {
  v1::RunSyncPoint& point = syncs_.emplace_back();
  point.set_unix_ms(unix_us / kMicrosInMilli);
  *point.mutable_sync() = sync;
  info_.set_num_syncs(info_.num_syncs() + 1);
  if (syncs_.size() > limits_.max_syncs) syncs_.pop_front();
}

void CollectedRun::Server(const v1::RunServer& server, Applied* applied) {
  if (!servers_.contains(server.name()) &&
      servers_.size() >= limits_.max_servers) {
    return NoRoom("parameter servers", applied);
  }
  servers_[server.name()] = server;
}

void CollectedRun::Picture(v1::RunImage* image, int64_t unix_us,
                           Applied* applied) {
  Image& added = images_.emplace_back();
  added.info.set_image_id(next_image_id_++);
  added.info.set_name(image->name());
  added.info.set_epoch(image->epoch());
  added.info.set_width(image->width());
  added.info.set_height(image->height());
  added.info.set_unix_ms(unix_us / kMicrosInMilli);
  info_.set_num_images(info_.num_images() + 1);
  // Empty in what was stored: see SetImage.
  if (!image->png().empty()) {
    added.png =
        std::make_shared<const std::string>(std::move(*image->mutable_png()));
    image->clear_png();
    image_bytes_ += added.png->size();
    applied->new_images.emplace_back(added.info.image_id(), added.png);
  }
  while (images_.size() > limits_.max_images ||
         (images_.size() > 1 && image_bytes_ > limits_.max_image_bytes)) {
    RemoveImage(0, applied);
  }
}

void CollectedRun::RemoveImage(size_t index, Applied* applied) {
  const Image& image = images_[index];
  const int64_t id = image.info.image_id();
  if (image.png != nullptr) image_bytes_ -= image.png->size();
  images_.erase(images_.begin() + static_cast<std::ptrdiff_t>(index));
  // It may have come with the same report.
  std::erase_if(applied->new_images,
                [id](const auto& added) { return added.first == id; });
  applied->removed_images.push_back(id);
}

void CollectedRun::Span(const v1::RunSpan& span) {
  spans_.push_back(span);
  if (spans_.size() > limits_.max_spans) spans_.pop_front();
}

void CollectedRun::End(const v1::RunEnded& ended, int64_t unix_us) {
  info_.set_state(!ended.error().empty() ? v1::RUN_STATE_FAILED
                  : ended.stopped()      ? v1::RUN_STATE_STOPPED
                                         : v1::RUN_STATE_FINISHED);
  info_.set_error(ended.error());
  info_.set_end_unix_ms(unix_us / kMicrosInMilli);
}

void CollectedRun::Lose(const std::string& cause, int64_t now_ms) {
  info_.set_state(v1::RUN_STATE_LOST);
  info_.set_error(cause);
  info_.set_end_unix_ms(now_ms);
}

void CollectedRun::RequestStop() { info_.set_stop_requested(true); }

// --- What is answered.

size_t CollectedRun::bytes() const {
  return 1024 + num_points_ * sizeof(CurvePoint) + image_bytes_ +
         kEntryBytes * (curves_.size() + workers_.size() + syncs_.size() +
                        images_.size() + spans_.size() + reporters_.size());
}

int64_t CollectedRun::Samples() const {
  if (const auto all = workers_.find(-1); all != workers_.end()) {
    return all->second.samples;
  }
  int64_t samples = 0;
  for (const auto& [id, worker] : workers_) samples += worker.samples;
  return samples;
}

int64_t CollectedRun::Lost() const {
  int64_t lost = lost_events_;
  for (const auto& [id, reporter] : reporters_) {
    lost += std::max(reporter.missing, reporter.dropped);
  }
  return lost;
}

v1::RunInfo CollectedRun::Info() const {
  v1::RunInfo info = info_;
  const auto epochs = static_cast<double>(info.epochs());
  info.set_epoch(static_cast<int64_t>(Whole(position_)));
  // All are trained, and the last synchronisation runs: it is in the last one.
  if (running() && info.epochs() > 0) {
    info.set_epoch(std::min(info.epoch(), info.epochs() - 1));
  }
  if (info.epochs() > 0) {
    info.set_progress(std::min(1.0, position_ / epochs));
  }
  info.set_eta_seconds(-1);
  if (running()) {
    const double done = position_ - start_position_;
    if (info.epochs() > 0 && done > 0) {
      const double seconds =
          static_cast<double>(position_us_ - start_us_) / 1e6;
      info.set_eta_seconds(
          std::max(0.0, (epochs - position_) / done * seconds));
    }
    double rate = 0;
    if (const auto all = workers_.find(-1);
        all != workers_.end() && all->second.rate > 0) {
      rate = all->second.rate;
    } else {
      for (const auto& [id, worker] : workers_) rate += worker.rate;
    }
    info.set_samples_per_second(rate);
  }
  info.set_samples(info.samples() + Samples());
  info.set_num_starts(std::max(1, info.num_starts()));
  info.set_dropped_events(Lost());
  return info;
}

v1::GetRunResponse CollectedRun::Describe(size_t max_points,
                                          bool with_spans) const {
  v1::GetRunResponse response;
  *response.mutable_run() = Info();
  max_points = std::min(
      max_points,
      std::max(kMinAnswerPoints,
               kMaxAnswerPoints / std::max<size_t>(1, curves_.size())));
  for (const auto& [key, curve] : curves_) {
    v1::RunCurve* const told = response.add_curves();
    told->set_metric(key.first);
    told->set_worker(key.second);
    told->set_num_points(curve.num_points());
    for (const CurvePoint& point : ThinPoints(curve.Points(), max_points)) {
      told->add_epochs(point.epoch);
      told->add_values(point.value);
    }
  }
  for (const auto& [id, worker] : workers_) {
    *response.add_workers() = worker.progress;
  }
  for (const v1::RunSyncPoint& sync : syncs_) *response.add_syncs() = sync;
  for (const auto& [name, server] : servers_) *response.add_servers() = server;
  for (const Image& image : images_) *response.add_images() = image.info;
  if (with_spans) {
    for (const v1::RunSpan& span : spans_) *response.add_spans() = span;
  }
  return response;
}

PngBytes CollectedRun::FindImage(int64_t image_id) const {
  for (const Image& image : images_) {
    if (image.info.image_id() == image_id) return image.png;
  }
  return nullptr;
}

bool CollectedRun::DropOldestImage(int64_t* image_id) {
  if (images_.empty()) return false;
  *image_id = images_.front().info.image_id();
  Applied ignored;
  RemoveImage(0, &ignored);
  return true;
}

// --- What is stored.

v1::StoredRun CollectedRun::Store() const {
  v1::StoredRun stored;
  *stored.mutable_info() = info_;
  for (const auto& [key, curve] : curves_) {
    v1::StoredCurve* const row = stored.add_curves();
    row->set_metric(key.first);
    row->set_worker(key.second);
    curve.Store(row);
  }
  for (const auto& [id, worker] : workers_) {
    v1::StoredWorker* const row = stored.add_workers();
    *row->mutable_progress() = worker.progress;
    row->set_base_us(worker.base_us);
    row->set_base_samples(worker.base_samples);
    row->set_rate(worker.rate);
    row->set_samples(worker.samples);
  }
  for (const v1::RunSyncPoint& sync : syncs_) *stored.add_syncs() = sync;
  for (const auto& [name, server] : servers_) *stored.add_servers() = server;
  for (const Image& image : images_) *stored.add_images() = image.info;
  for (const v1::RunSpan& span : spans_) *stored.add_spans() = span;
  for (const auto& [id, reporter] : reporters_) {
    v1::StoredReporter* const row = stored.add_reporters();
    row->set_reporter_id(id);
    row->set_next_sequence(reporter.next_sequence);
    row->set_missing(reporter.missing);
    row->set_dropped(reporter.dropped);
  }
  stored.set_next_image_id(next_image_id_);
  stored.set_order(order_);
  stored.set_starter(starter_);
  stored.set_position(position_);
  stored.set_position_us(position_us_);
  stored.set_start_position(start_position_);
  stored.set_start_us(start_us_);
  stored.set_lost_events(lost_events_);
  return stored;
}

CollectedRun CollectedRun::Load(const v1::StoredRun& stored,
                                const RunLimits& limits) {
  CollectedRun run(stored.info().run_id(), limits, stored.start_us());
  run.info_ = stored.info();
  const size_t max_points =
      run.PointsOfEach(static_cast<size_t>(stored.curves_size()));
  for (const v1::StoredCurve& row : stored.curves()) {
    const auto it = run.curves_.emplace(CurveKey(row.metric(), row.worker()),
                                        Curve::Load(row, max_points));
    run.num_points_ += it.first->second.size();
  }
  for (const v1::StoredWorker& row : stored.workers()) {
    run.workers_[row.progress().worker()] = {.progress = row.progress(),
                                             .base_us = row.base_us(),
                                             .base_samples = row.base_samples(),
                                             .rate = row.rate(),
                                             .samples = row.samples()};
  }
  run.syncs_.assign(stored.syncs().begin(), stored.syncs().end());
  for (const v1::RunServer& row : stored.servers()) {
    run.servers_[row.name()] = row;
  }
  for (const v1::RunImageInfo& row : stored.images()) {
    run.images_.push_back({.info = row, .png = nullptr});
  }
  run.spans_.assign(stored.spans().begin(), stored.spans().end());
  for (const v1::StoredReporter& row : stored.reporters()) {
    run.reporters_[row.reporter_id()] = {.next_sequence = row.next_sequence(),
                                         .missing = row.missing(),
                                         .dropped = row.dropped()};
  }
  run.next_image_id_ = stored.next_image_id();
  run.order_ = stored.order();
  run.starter_ = stored.starter();
  run.position_ = stored.position();
  run.position_us_ = stored.position_us();
  run.start_position_ = stored.start_position();
  run.start_us_ = stored.start_us();
  run.lost_events_ = stored.lost_events();
  return run;
}

bool CollectedRun::SetImage(int64_t image_id, std::string png) {
  for (Image& image : images_) {
    if (image.info.image_id() != image_id) continue;
    if (image.png != nullptr || png.empty()) return image.png != nullptr;
    image.png = std::make_shared<const std::string>(std::move(png));
    image_bytes_ += image.png->size();
    return true;
  }
  return false;
}

void CollectedRun::DropEmptyImages() {
  std::erase_if(images_,
                [](const Image& image) { return image.png == nullptr; });
}

}  // namespace miniray
