// One run, as its reporters have told it, within bounds.

#ifndef MINIRAY_RUNTIME_RUNS_COLLECTED_RUN_H_
#define MINIRAY_RUNTIME_RUNS_COLLECTED_RUN_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/run.pb.h"
#include "proto/run_state.pb.h"
#include "runtime/runs/curve.h"

namespace miniray {

// How much is kept of a run.
struct RunLimits {
  size_t max_points = 4000;  // Of each curve, as long as there are 100;
  size_t min_points = 200;   // of more curves each has less, but so many.
  size_t max_curves = 2000;
  size_t max_workers = 2000;  // Whose progress is known.
  size_t max_syncs = 500;
  size_t max_servers = 64;
  size_t max_images = 64;
  size_t max_image_bytes = size_t{32} << 20;
  size_t max_spans = 20000;
  size_t max_reporters = 256;
};

using PngBytes = std::shared_ptr<const std::string>;

// Not thread-safe.
class CollectedRun {
 public:
  // What a report has changed besides the run's own state.
  struct Applied {
    bool changed = false;  // Anything at all.
    // It began, ended or came back: worth to be told at once.
    bool turned = false;
    int64_t too_many = 0;  // Events for which there was no room.
    std::string what;      // Of the first of them: "curves".
    std::vector<std::pair<int64_t, PngBytes>> new_images;
    std::vector<int64_t> removed_images;
  };

  // id: of CheckRunId.
  CollectedRun(std::string id, const RunLimits& limits, int64_t now_us);

  // Takes those events of the request that it has not had, and leaves just them
  // in it, without their pictures. request: of CheckReport.
  //
  // order: of this start, if the request begins one; larger than that of
  // others.
  Applied Apply(v1::ReportRunRequest* request, int64_t order);

  // Its job has ended, or nobody tells of it any more.
  void Lose(const std::string& cause, int64_t now_ms);
  void RequestStop();

  bool running() const { return info_.state() == v1::RUN_STATE_RUNNING; }
  bool stop_requested() const { return info_.stop_requested(); }
  const std::string& id() const { return info_.run_id(); }
  const std::string& job_id() const { return info_.job_id(); }
  int64_t order() const { return order_; }
  void set_version(int64_t version) { info_.set_version(version); }
  int64_t version() const { return info_.version(); }
  // What it takes of memory, about.
  size_t bytes() const;

  v1::RunInfo Info() const;
  // max_points: of each curve. With more than 40,000 of all curves together
  // each has its share of these, at least 20.
  v1::GetRunResponse Describe(size_t max_points, bool with_spans) const;
  // Null if there is none.
  PngBytes FindImage(int64_t image_id) const;
  // False if there is none. Returns its id in *image_id.
  bool DropOldestImage(int64_t* image_id);

  v1::StoredRun Store() const;
  // Pictures have their bytes by SetImage only, where they are found.
  static CollectedRun Load(const v1::StoredRun& stored,
                           const RunLimits& limits);
  // False: the run has no such picture, or none any more.
  bool SetImage(int64_t image_id, std::string png);
  // Those that have no bytes.
  void DropEmptyImages();

 private:
  struct Worker {
    v1::RunProgress progress;
    // Since when its rate counts.
    int64_t base_us = 0;
    int64_t base_samples = 0;
    double rate = 0;      // Samples a second.
    int64_t samples = 0;  // Since the last start.
  };
  struct Image {
    v1::RunImageInfo info;
    PngBytes png;
  };
  struct Reporter {
    int64_t next_sequence = 1;
    int64_t missing = 0;
    int64_t dropped = 0;
  };
  using CurveKey = std::pair<std::string, int>;  // Metric and worker.

  // That were trained on, since the last start.
  int64_t Samples() const;
  // Cuts off what came already, and counts what never did.
  void TakeNew(v1::ReportRunRequest* request);
  void ApplyEvent(v1::RunEvent* event, const std::string& reporter_id,
                  int64_t order, Applied* applied);
  void Start(const v1::RunStarted& started, int64_t unix_us,
             const std::string& reporter_id, int64_t order, Applied* applied);
  void Progress(const v1::RunProgress& progress, int64_t unix_us,
                Applied* applied);
  void Point(const v1::RunPoint& point, int64_t unix_us, Applied* applied);
  void Sync(const v1::RunSync& sync, int64_t unix_us);
  void Server(const v1::RunServer& server, Applied* applied);
  void Picture(v1::RunImage* image, int64_t unix_us, Applied* applied);
  void Span(const v1::RunSpan& span);
  void End(const v1::RunEnded& ended, int64_t unix_us);

  // Forgets what was told of epochs from this one on; 0: everything.
  void ForgetFrom(int64_t first_epoch, Applied* applied);
  void RemoveImage(size_t index, Applied* applied);
  void MoveTo(double position, int64_t unix_us);
  void SeeWorker(int worker);
  // Events that are not here, of all reporters.
  int64_t Lost() const;
  // Of each curve where there are so many.
  size_t PointsOfEach(size_t num_curves) const;
  static void NoRoom(const char* what, Applied* applied);

  RunLimits limits_;
  v1::RunInfo info_;  // Without what Info works out.
  std::map<CurveKey, Curve> curves_;
  std::map<int, Worker> workers_;
  std::deque<v1::RunSyncPoint> syncs_;
  std::map<std::string, v1::RunServer> servers_;
  std::deque<Image> images_;
  size_t image_bytes_ = 0;
  int64_t next_image_id_ = 1;
  std::deque<v1::RunSpan> spans_;
  size_t num_points_ = 0;  // That are kept.
  std::map<std::string, Reporter> reporters_;
  std::string starter_;
  int64_t order_ = 0;
  int64_t lost_events_ = 0;
  // Epochs done, with the part of the one that it is in, by the reporters'
  // clock; and the same at the last start.
  double position_ = 0;
  int64_t position_us_ = 0;
  double start_position_ = 0;
  int64_t start_us_ = 0;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_RUNS_COLLECTED_RUN_H_
