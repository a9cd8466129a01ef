// Events of a run, for tests.

#ifndef MINIRAY_TESTS_RUNTIME_RUNS_RUN_EVENTS_H_
#define MINIRAY_TESTS_RUNTIME_RUNS_RUN_EVENTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/run.pb.h"

namespace miniray {

// When the first thing happens.
inline constexpr int64_t kRunBegin = 1'700'000'000;  // Unix seconds.

// at: seconds behind kRunBegin.
inline v1::RunEvent EventAt(double at) {
  v1::RunEvent event;
  event.set_unix_us(kRunBegin * 1'000'000 + static_cast<int64_t>(at * 1e6));
  return event;
}

inline v1::RunEvent Started(int64_t epochs, int64_t first_epoch = 0,
                            double at = 0) {
  v1::RunEvent event = EventAt(at);
  v1::RunStarted& started = *event.mutable_started();
  started.set_kind("DataParallelTrainer");
  started.set_job_id("job-1");
  started.set_num_workers(2);
  started.set_epochs(epochs);
  started.set_first_epoch(first_epoch);
  started.set_hostname("host");
  started.set_folder("/runs/a");
  return event;
}

// Of the run as a whole, unless a worker is given.
inline v1::RunEvent ProgressAt(double at, int64_t epoch, int64_t step,
                               int64_t steps, int64_t samples,
                               int worker = -1) {
  v1::RunEvent event = EventAt(at);
  v1::RunProgress& progress = *event.mutable_progress();
  progress.set_worker(worker);
  progress.set_epoch(epoch);
  progress.set_step(step);
  progress.set_steps(steps);
  progress.set_samples(samples);
  return event;
}

inline v1::RunEvent Point(double epoch, double value, int worker = -1,
                          const std::string& metric = "loss") {
  v1::RunEvent event = EventAt(epoch);
  v1::RunPoint& point = *event.mutable_point();
  point.set_metric(metric);
  point.set_worker(worker);
  point.set_epoch(epoch);
  point.set_value(value);
  return event;
}

inline v1::RunEvent Sync(int64_t epoch, int64_t version) {
  v1::RunEvent event = EventAt(static_cast<double>(epoch));
  v1::RunSync& sync = *event.mutable_sync();
  sync.set_epoch(epoch);
  sync.set_version(version);
  sync.set_num_workers(2);
  sync.set_seconds_pull(0.25);
  sync.set_bytes(1000);
  return event;
}

inline v1::RunEvent Server(const std::string& name, int64_t version) {
  v1::RunEvent event = EventAt(0);
  event.mutable_server()->set_name(name);
  event.mutable_server()->set_strategy("average");
  event.mutable_server()->set_version(version);
  return event;
}

// What begins as a PNG does, and has so many bytes; no two are alike.
inline std::string PngOf(size_t bytes, int number = 0) {
  std::string png = "\x89PNG\r\n\x1a\n" + std::to_string(number);
  png.resize(bytes, 'x');
  return png;
}

inline v1::RunEvent Image(int64_t epoch, std::string png) {
  v1::RunEvent event = EventAt(static_cast<double>(epoch));
  v1::RunImage& image = *event.mutable_image();
  image.set_name("samples");
  image.set_epoch(epoch);
  image.set_png(std::move(png));
  image.set_width(242);
  image.set_height(242);
  return event;
}

inline v1::RunEvent Span(const std::string& name, double begin, double end) {
  v1::RunEvent event = EventAt(end);
  v1::RunSpan& span = *event.mutable_span();
  span.set_name(name);
  span.set_track("trainer");
  span.set_start_unix_us(EventAt(begin).unix_us());
  span.set_end_unix_us(event.unix_us());
  return event;
}

inline v1::RunEvent Ended(const std::string& error = "", bool stopped = false,
                          double at = 0) {
  v1::RunEvent event = EventAt(at);
  event.mutable_ended()->set_error(error);
  event.mutable_ended()->set_stopped(stopped);
  return event;
}

inline v1::ReportRunRequest ReportOf(const std::string& run_id,
                                     int64_t first_sequence,
                                     const std::vector<v1::RunEvent>& events,
                                     const std::string& reporter = "reporter") {
  v1::ReportRunRequest request;
  request.set_run_id(run_id);
  request.set_reporter_id(reporter);
  request.set_first_sequence(first_sequence);
  for (const v1::RunEvent& event : events) *request.add_events() = event;
  return request;
}

inline v1::GetRunRequest GetOf(const std::string& run_id, int max_points = 0,
                               bool with_spans = false) {
  v1::GetRunRequest request;
  request.set_run_id(run_id);
  request.set_max_points(max_points);
  request.set_with_spans(with_spans);
  return request;
}

}  // namespace miniray

#endif  // MINIRAY_TESTS_RUNTIME_RUNS_RUN_EVENTS_H_
