#include "runtime/runs/run_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"

namespace miniray {
namespace {

constexpr size_t kMaxRunIdBytes = 128;
constexpr absl::string_view kPngBegin("\x89PNG\r\n\x1a\n", 8);
// Nobody trains for so long, and no sum of two overflows.
constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 4;

bool IsIdCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' ||
         c == '_' || c == '-';
}

// A step between folders: no address of the dashboard could end with it.
bool IsStep(absl::string_view run_id) {
  return run_id == "." || run_id == "..";
}

// The same in all processes and on all machines (FNV-1a, folded).
uint32_t HashOf(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return static_cast<uint32_t>(hash ^ (hash >> 32));
}

absl::Status Invalid(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, " ", what));
}

absl::Status CheckText(absl::string_view field, absl::string_view text,
                       size_t max_bytes = kMaxRunNameBytes) {
  if (text.size() > max_bytes) {
    return Invalid(field, absl::StrCat("has ", text.size(), " bytes; at most ",
                                       max_bytes));
  }
  if (!IsUtf8(text)) return Invalid(field, "is not UTF-8");
  return absl::OkStatus();
}

absl::Status CheckName(absl::string_view field, absl::string_view text) {
  if (text.empty()) return Invalid(field, "is empty");
  return CheckText(field, text);
}

absl::Status CheckCount(absl::string_view field, int64_t value) {
  if (value >= 0 && value <= kMost) return absl::OkStatus();
  return Invalid(field, absl::StrCat("is ", value, "; expected 0 or more"));
}

absl::Status CheckNumber(absl::string_view field, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return Invalid(field, absl::StrCat("is ", value, "; expected 0 or more"));
}

absl::Status CheckWorker(int worker) {
  if (worker >= -1 && worker < kMaxRunWorkers) return absl::OkStatus();
  return Invalid("worker", absl::StrCat("is ", worker, "; expected -1 to ",
                                        kMaxRunWorkers - 1));
}

absl::Status Check(const v1::RunStarted& started) {
  MR_RETURN_IF_ERROR(CheckText("kind", started.kind()));
  MR_RETURN_IF_ERROR(CheckText("job_id", started.job_id()));
  MR_RETURN_IF_ERROR(CheckText("hostname", started.hostname()));
  MR_RETURN_IF_ERROR(CheckText("folder", started.folder(), kMaxRunTextBytes));
  MR_RETURN_IF_ERROR(CheckCount("epochs", started.epochs()));
  MR_RETURN_IF_ERROR(CheckCount("first_epoch", started.first_epoch()));
  return CheckCount("num_workers", started.num_workers());
}

absl::Status Check(const v1::RunProgress& progress) {
  MR_RETURN_IF_ERROR(CheckWorker(progress.worker()));
  MR_RETURN_IF_ERROR(CheckCount("epoch", progress.epoch()));
  MR_RETURN_IF_ERROR(CheckCount("step", progress.step()));
  MR_RETURN_IF_ERROR(CheckCount("steps", progress.steps()));
  return CheckCount("samples", progress.samples());
}

absl::Status Check(const v1::RunPoint& point) {
  MR_RETURN_IF_ERROR(CheckName("metric", point.metric()));
  MR_RETURN_IF_ERROR(CheckWorker(point.worker()));
  // It becomes a count of epochs.
  if (point.epoch() > static_cast<double>(kMost)) {
    return Invalid("epoch", absl::StrCat("is ", point.epoch(), "; at most ",
                                         static_cast<double>(kMost)));
  }
  return CheckNumber("epoch", point.epoch());
}

absl::Status Check(const v1::RunSync& sync) {
  MR_RETURN_IF_ERROR(CheckCount("epoch", sync.epoch()));
  MR_RETURN_IF_ERROR(CheckNumber("seconds_pull", sync.seconds_pull()));
  MR_RETURN_IF_ERROR(
      CheckNumber("seconds_aggregate", sync.seconds_aggregate()));
  return CheckNumber("seconds_push", sync.seconds_push());
}

absl::Status Check(const v1::RunServer& server) {
  MR_RETURN_IF_ERROR(CheckName("name", server.name()));
  MR_RETURN_IF_ERROR(CheckText("actor_id", server.actor_id()));
  return CheckText("strategy", server.strategy(), kMaxRunTextBytes);
}

absl::Status Check(const v1::RunImage& image) {
  MR_RETURN_IF_ERROR(CheckName("name", image.name()));
  MR_RETURN_IF_ERROR(CheckCount("epoch", image.epoch()));
  MR_RETURN_IF_ERROR(CheckCount("width", image.width()));
  MR_RETURN_IF_ERROR(CheckCount("height", image.height()));
  if (image.png().size() > kMaxImageBytes) {
    return Invalid("png", absl::StrCat("has ", image.png().size(),
                                       " bytes; at most ", kMaxImageBytes));
  }
  if (!absl::StartsWith(image.png(), kPngBegin)) {
    return Invalid("png", "is no PNG");
  }
  return absl::OkStatus();
}

absl::Status Check(const v1::RunSpan& span) {
  MR_RETURN_IF_ERROR(CheckName("name", span.name()));
  MR_RETURN_IF_ERROR(CheckName("track", span.track()));
  MR_RETURN_IF_ERROR(CheckCount("start_unix_us", span.start_unix_us()));
  MR_RETURN_IF_ERROR(CheckCount("end_unix_us", span.end_unix_us()));
  if (span.end_unix_us() >= span.start_unix_us()) return absl::OkStatus();
  return Invalid("end_unix_us", "is before start_unix_us");
}

absl::Status Check(const v1::RunEnded& ended) {
  return CheckText("error", ended.error(), kMaxRunTextBytes);
}

absl::Status CheckKind(const v1::RunEvent& event) {
  switch (event.kind_case()) {
    case v1::RunEvent::kStarted:
      return Annotate(Check(event.started()), "started");
    case v1::RunEvent::kProgress:
      return Annotate(Check(event.progress()), "progress");
    case v1::RunEvent::kPoint:
      return Annotate(Check(event.point()), "point");
    case v1::RunEvent::kSync:
      return Annotate(Check(event.sync()), "sync");
    case v1::RunEvent::kServer:
      return Annotate(Check(event.server()), "server");
    case v1::RunEvent::kImage:
      return Annotate(Check(event.image()), "image");
    case v1::RunEvent::kSpan:
      return Annotate(Check(event.span()), "span");
    case v1::RunEvent::kEnded:
      return Annotate(Check(event.ended()), "ended");
    case v1::RunEvent::KIND_NOT_SET:
      return absl::OkStatus();  // Of a newer version: passed over.
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRunId(absl::string_view run_id) {
  if (IsStep(run_id)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", run_id,
                     "' cannot name a run: in an address it is a step between "
                     "folders; choose another name"));
  }
  if (!run_id.empty() && run_id.size() <= kMaxRunIdBytes &&
      std::all_of(run_id.begin(), run_id.end(), IsIdCharacter)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", absl::CHexEscape(run_id.substr(0, 2 * kMaxRunIdBytes)),
                   "' cannot name a run: 1 to ", kMaxRunIdBytes,
                   " letters, digits, '.', '_' and '-'"));
}

std::string RunIdFrom(absl::string_view name) {
  if (name.empty() || CheckRunId(name).ok()) return std::string(name);
  const std::string end =
      absl::StrCat("-", absl::Hex(HashOf(name), absl::kZeroPad8));
  std::string id(name.substr(0, kMaxRunIdBytes - end.size()));
  for (char& c : id) {
    if (!IsIdCharacter(c)) c = '-';
  }
  return id + end;
}

absl::Status CheckRunEvent(const v1::RunEvent& event) {
  MR_RETURN_IF_ERROR(CheckCount("unix_us", event.unix_us()));
  return CheckKind(event);
}

absl::Status CheckReport(const v1::ReportRunRequest& request) {
  MR_RETURN_IF_ERROR(Annotate(CheckRunId(request.run_id()), "run_id"));
  MR_RETURN_IF_ERROR(CheckName("reporter_id", request.reporter_id()));
  MR_RETURN_IF_ERROR(CheckCount("dropped", request.dropped()));
  if (request.first_sequence() < 1 || request.first_sequence() > kMost) {
    return Invalid("first_sequence",
                   absl::StrCat("is ", request.first_sequence(),
                                "; they count up from 1"));
  }
  for (int i = 0; i < request.events_size(); ++i) {
    MR_RETURN_IF_ERROR(Annotate(CheckRunEvent(request.events(i)),
                                absl::StrCat("events[", i, "]")));
  }
  return absl::OkStatus();
}

}  // namespace miniray
