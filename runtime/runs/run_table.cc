#include "runtime/runs/run_table.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/runs/run_checks.h"

namespace miniray {
namespace {

constexpr int kDefaultMaxPoints = 500;
// Of what waits for the disk, of one run; beyond, all of the run is written
// anew in its place.
constexpr size_t kMaxUnsavedBytes = size_t{4} << 20;
// Reports that are written behind a snapshot, before there is another: as much
// as the snapshot, but no less than this.
constexpr size_t kMinTailBytes = size_t{256} << 10;

absl::Status NoSuchRun(absl::string_view run_id) {
  return absl::NotFoundError(absl::StrCat(
      "the head knows no run '", absl::CHexEscape(run_id),
      "': it was never told of it, or has forgotten it for newer ones"));
}

}  // namespace

RunTable::RunTable(Options options)
    : options_(std::move(options)),
      version_(absl::ToUnixMicros(options_.clock())) {}

// --- The service's calls.

absl::StatusOr<v1::ReportRunResponse> RunTable::Report(
    v1::ReportRunRequest request) {
  MR_RETURN_IF_ERROR(CheckReport(request));
  const absl::Time now = options_.clock();
  for (v1::RunEvent& event : *request.mutable_events()) {
    if (event.unix_us() == 0) event.set_unix_us(absl::ToUnixMicros(now));
  }
  absl::MutexLock lock(&mu_);
  // A sign of life alone makes no run: its trainer has not begun yet.
  if (request.events_size() == 0 && Find(request.run_id()) == nullptr) {
    return v1::ReportRunResponse();
  }
  MR_ASSIGN_OR_RETURN(Entry* const entry, FindOrAdd(request.run_id()));
  entry->heard = now;
  const size_t bytes = entry->run.bytes();
  const CollectedRun::Applied applied =
      entry->run.Apply(&request, next_order_++);
  bytes_ += entry->run.bytes() - bytes;
  if (applied.changed) {
    Changed(entry);
    KeepReport(request, applied, entry);
  }
  MakeRoom(entry);
  if (applied.too_many > 0) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "run ", entry->run.id(), " has more ", applied.what,
        " than the head keeps: ", applied.too_many,
        applied.too_many == 1 ? " event was" : " events were", " left out"));
  }
  v1::ReportRunResponse response;
  response.set_stop_requested(entry->run.stop_requested());
  return response;
}

absl::StatusOr<v1::ListRunsResponse> RunTable::List(
    const v1::ListRunsRequest& request) const {
  v1::ListRunsResponse response;
  absl::ReaderMutexLock lock(&mu_);
  std::vector<const CollectedRun*> runs;
  for (const auto& [id, entry] : runs_) runs.push_back(&entry.run);
  std::sort(runs.begin(), runs.end(),
            [](const CollectedRun* a, const CollectedRun* b) {
              return a->order() > b->order();
            });
  for (const CollectedRun* run : runs) *response.add_runs() = run->Info();
  return response;
}

absl::StatusOr<v1::GetRunResponse> RunTable::Get(
    const v1::GetRunRequest& request) const {
  if (request.max_points() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_points is ", request.max_points(),
                     "; expected 0, for ", kDefaultMaxPoints, ", or more"));
  }
  const int max_points =
      request.max_points() == 0 ? kDefaultMaxPoints : request.max_points();
  absl::ReaderMutexLock lock(&mu_);
  const Entry* const entry = Find(request.run_id());
  if (entry == nullptr) return NoSuchRun(request.run_id());
  return entry->run.Describe(static_cast<size_t>(max_points),
                             request.with_spans());
}

absl::StatusOr<v1::GetRunImageResponse> RunTable::GetImage(
    const v1::GetRunImageRequest& request) const {
  PngBytes png;
  {
    absl::ReaderMutexLock lock(&mu_);
    const Entry* const entry = Find(request.run_id());
    if (entry == nullptr) return NoSuchRun(request.run_id());
    png = entry->run.FindImage(request.image_id());
  }
  if (png == nullptr) {
    return absl::NotFoundError(absl::StrCat(
        "run ", absl::CHexEscape(request.run_id()), " has no picture ",
        request.image_id(), ", or none any more"));
  }
  v1::GetRunImageResponse response;
  response.set_png(*png);
  return response;
}

absl::StatusOr<v1::StopRunResponse> RunTable::Stop(
    const v1::StopRunRequest& request) {
  absl::MutexLock lock(&mu_);
  const auto it = runs_.find(request.run_id());
  if (it == runs_.end()) return NoSuchRun(request.run_id());
  Entry& entry = it->second;
  if (!entry.run.running()) {
    return absl::FailedPreconditionError(
        absl::StrCat("run ", entry.run.id(), " has ended"));
  }
  if (!entry.run.stop_requested()) {
    entry.run.RequestStop();
    Changed(&entry);
    KeepSnapshot(&entry);
  }
  return v1::StopRunResponse();
}

// --- Those who follow, and the head.

int64_t RunTable::AwaitChange(int64_t version, absl::Duration timeout) const {
  absl::MutexLock lock(&mu_);
  auto is_another = [this, version] {
    mu_.AssertReaderHeld();
    return version_ != version || stop_waiting_;
  };
  mu_.AwaitWithTimeout(absl::Condition(&is_another), timeout);
  return version_;
}

void RunTable::StopWaiting() {
  absl::MutexLock lock(&mu_);
  stop_waiting_ = true;
}

void RunTable::MarkLost(absl::string_view job_id) {
  absl::MutexLock lock(&mu_);
  for (auto& [id, entry] : runs_) {
    if (entry.run.running() && entry.run.job_id() == job_id) {
      Lose(&entry, "its job ended before it did");
    }
  }
}

void RunTable::Tick() {
  absl::MutexLock lock(&mu_);
  const absl::Time now = options_.clock();
  for (auto& [id, entry] : runs_) {
    if (!entry.run.running() || now - entry.heard <= options_.silence) continue;
    Lose(&entry, absl::StrCat("nothing was heard of it for ",
                              absl::FormatDuration(options_.silence)));
  }
}

void RunTable::Lose(Entry* entry, const std::string& cause) {
  entry->run.Lose(cause, absl::ToUnixMillis(options_.clock()));
  Changed(entry);
  KeepSnapshot(entry);
}

// --- Room.

const RunTable::Entry* RunTable::Find(absl::string_view run_id) const {
  const auto it = runs_.find(run_id);
  return it == runs_.end() ? nullptr : &it->second;
}

absl::StatusOr<RunTable::Entry*> RunTable::FindOrAdd(
    const std::string& run_id) {
  const auto it = runs_.find(run_id);
  if (it != runs_.end()) return &it->second;
  while (runs_.size() >= options_.max_runs || bytes_ > options_.max_bytes) {
    if (DropOldestEnded(/*kept=*/nullptr)) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat("the head keeps ", runs_.size(),
                     " runs, of which none has ended, and "
                     "has no room for run ",
                     run_id));
  }
  Entry entry = {.run = CollectedRun(run_id, options_.limits,
                                     absl::ToUnixMicros(options_.clock())),
                 .key = next_key_++};
  // Reports alone are none in the file, and its beginning need not be one: an
  // earlier head may have had it.
  entry.unsaved.snapshot = keeping_;
  bytes_ += entry.run.bytes();
  return &runs_.emplace(run_id, std::move(entry)).first->second;
}

bool RunTable::DropOldestEnded(const Entry* kept) {
  auto oldest = runs_.end();
  for (auto it = runs_.begin(); it != runs_.end(); ++it) {
    if (it->second.run.running() || &it->second == kept) continue;
    if (oldest == runs_.end() ||
        it->second.run.version() < oldest->second.run.version()) {
      oldest = it;
    }
  }
  if (oldest == runs_.end()) return false;
  bytes_ -= oldest->second.run.bytes();
  if (keeping_) erased_.push_back(oldest->second.key);
  runs_.erase(oldest);
  ++version_;
  return true;
}

void RunTable::MakeRoom(Entry* grown) {
  while (bytes_ > options_.max_bytes) {
    if (DropOldestEnded(grown)) continue;
    const size_t bytes = grown->run.bytes();
    int64_t image_id = 0;
    if (!grown->run.DropOldestImage(&image_id)) return;
    bytes_ -= bytes - grown->run.bytes();
    KeepRemoval(image_id, grown);
  }
}

// --- What a store writes.

void RunTable::Changed(Entry* entry) { entry->run.set_version(++version_); }

void RunTable::KeepReport(const v1::ReportRunRequest& request,
                          const CollectedRun::Applied& applied, Entry* entry) {
  if (!keeping_) return;
  Unsaved& unsaved = entry->unsaved;
  for (const auto& [id, png] : applied.new_images) unsaved.new_images[id] = png;
  for (const int64_t id : applied.removed_images) KeepRemoval(id, entry);
  // A snapshot says what no report does: the order of starts.
  if (applied.turned || request.events_size() == 0) return KeepSnapshot(entry);
  if (unsaved.snapshot) return;  // It will have this, too.
  unsaved.reports.push_back(request.SerializeAsString());
  unsaved.report_bytes += unsaved.reports.back().size();
  if (unsaved.report_bytes > kMaxUnsavedBytes ||
      entry->tail_bytes + unsaved.report_bytes >
          std::max(kMinTailBytes, entry->snapshot_bytes)) {
    unsaved.snapshot = true;
    unsaved.reports.clear();
    unsaved.report_bytes = 0;
  }
}

void RunTable::KeepSnapshot(Entry* entry) {
  if (!keeping_) return;
  entry->unsaved.snapshot = true;
  entry->unsaved.reports.clear();
  entry->unsaved.report_bytes = 0;
  if (wake_) wake_();
}

void RunTable::KeepRemoval(int64_t image_id, Entry* entry) {
  if (!keeping_) return;
  if (entry->unsaved.new_images.erase(image_id) > 0) return;
  entry->unsaved.removed_images.push_back(image_id);
}

void RunTable::BeginKeeping(std::function<void()> wake) {
  absl::MutexLock lock(&mu_);
  for (auto& [id, entry] : runs_) {
    const size_t bytes = entry.run.bytes();
    entry.run.DropEmptyImages();
    bytes_ += entry.run.bytes() - bytes;
  }
  keeping_ = true;
  wake_ = std::move(wake);
}

void RunTable::EndKeeping() {
  absl::MutexLock lock(&mu_);
  keeping_ = false;
  wake_ = nullptr;
}

std::vector<RunTable::Change> RunTable::TakeChanges() {
  absl::MutexLock lock(&mu_);
  std::vector<Change> changes;
  for (const int64_t key : std::exchange(erased_, {})) {
    changes.push_back({.key = key, .erased = true});
  }
  for (auto& [id, entry] : runs_) {
    if (entry.unsaved.empty()) continue;
    Unsaved unsaved = std::exchange(entry.unsaved, {});
    Change change = {.key = entry.key,
                     .reports = std::move(unsaved.reports),
                     .removed_images = std::move(unsaved.removed_images)};
    for (auto& [image_id, png] : unsaved.new_images) {
      change.new_images.emplace_back(image_id, std::move(png));
    }
    if (unsaved.snapshot) {
      change.snapshot = entry.run.Store();
      entry.tail_bytes = 0;
      entry.snapshot_bytes = change.snapshot->ByteSizeLong();
    } else {
      entry.tail_bytes += unsaved.report_bytes;
    }
    changes.push_back(std::move(change));
  }
  return changes;
}

void RunTable::ReturnChanges(std::vector<Change> changes) {
  absl::MutexLock lock(&mu_);
  if (!keeping_) return;
  std::map<int64_t, Entry*> by_key;
  for (auto& [id, entry] : runs_) by_key[entry.key] = &entry;
  for (Change& change : changes) {
    const auto it = by_key.find(change.key);
    if (change.erased) erased_.push_back(change.key);
    if (it == by_key.end()) continue;  // Erased since, which will be written.
    Unsaved& unsaved = it->second->unsaved;
    unsaved.snapshot = true;
    unsaved.reports.clear();
    unsaved.report_bytes = 0;
    std::vector<int64_t>& removed = unsaved.removed_images;
    for (auto& [image_id, png] : change.new_images) {
      // Removed since: it was never written.
      if (std::erase(removed, image_id) > 0) continue;
      unsaved.new_images.emplace(image_id, std::move(png));
    }
    removed.insert(removed.end(), change.removed_images.begin(),
                   change.removed_images.end());
  }
}

absl::Status RunTable::Restore(int64_t key, const v1::StoredRun& snapshot,
                               std::vector<v1::ReportRunRequest> reports) {
  const absl::Status fine = CheckRunId(snapshot.info().run_id());
  if (!fine.ok() || key < 1) {
    return absl::DataLossError(absl::StrCat("run ", key, ": ", fine.message()));
  }
  absl::MutexLock lock(&mu_);
  Entry entry = {.run = CollectedRun::Load(snapshot, options_.limits),
                 .key = key,
                 .heard = options_.clock()};
  entry.snapshot_bytes = snapshot.ByteSizeLong();
  next_order_ = std::max(next_order_, entry.run.order() + 1);
  for (v1::ReportRunRequest& report : reports) {
    entry.tail_bytes += report.ByteSizeLong();
    entry.run.Apply(&report, next_order_++);
  }
  if (runs_.contains(entry.run.id())) {
    return absl::DataLossError(
        absl::StrCat("run ", key, ": another one is ", entry.run.id(), " too"));
  }
  next_key_ = std::max(next_key_, key + 1);
  version_ = std::max(version_, entry.run.version());
  bytes_ += entry.run.bytes();
  std::string id = entry.run.id();
  runs_.emplace(std::move(id), std::move(entry));
  return absl::OkStatus();
}

bool RunTable::RestoreImage(int64_t key, int64_t image_id, std::string png) {
  absl::MutexLock lock(&mu_);
  for (auto& [id, entry] : runs_) {
    if (entry.key != key) continue;
    const size_t bytes = entry.run.bytes();
    const bool needed = entry.run.SetImage(image_id, std::move(png));
    bytes_ += entry.run.bytes() - bytes;
    return needed;
  }
  return false;
}

}  // namespace miniray
