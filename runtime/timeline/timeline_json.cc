#include "runtime/timeline/timeline_json.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/utf8.h"
#include "runtime/timeline/clocks.h"
#include "runtime/timeline/nesting.h"

namespace miniray {
namespace {

constexpr size_t kPieceBytes = 64 << 10;
// Threads of one track; more spans than that at a time are no picture any more.
constexpr int kMaxRowsOfTrack = 8;

// As a JSON string, with its quotes.
std::string Quoted(absl::string_view text) {
  std::string valid;
  if (!IsUtf8(text)) {
    valid = ToUtf8(text);
    text = valid;
  }
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted.push_back('\\');
      quoted.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&quoted, "\\u%04x", static_cast<int>(c));
    } else {
      quoted.push_back(c);
    }
  }
  quoted.push_back('"');
  return quoted;
}

// No two are alike in either number, and none is 0: viewers may take them for a
// machine's.
struct ThreadId {
  int process = 0;
  int thread = 0;
};

// Puts events behind one another.
class TraceWriter {
 public:
  explicit TraceWriter(absl::FunctionRef<void(absl::string_view)> write)
      : write_(write) {}

  void Begin(const v1::GetCallRecordsResponse& calls) {
    absl::StrAppend(&text_,
                    "{\"displayTimeUnit\":\"ms\",\"otherData\":{"
                    "\"dropped_calls\":",
                    calls.dropped(), ",\"clocks\":[");
    const char* separator = "";
    for (const v1::NodeClock& clock : calls.clocks()) {
      absl::StrAppend(&text_, separator, "{\"node\":", Quoted(clock.node_id()),
                      ",\"host\":", Quoted(clock.hostname()),
                      ",\"ahead_us\":", clock.reading().ahead_us(),
                      ",\"error_us\":", clock.reading().error_us(), "}");
      separator = ",";
    }
    text_ += "]},\"traceEvents\":[";
  }

  // Processes, and threads within one, stand in the order of their numbers.
  void NameProcess(int process, absl::string_view name) {
    const ThreadId main = {process, process};
    Metadata("process_name", main, "name", Quoted(name));
    Metadata("process_sort_index", main, "sort_index", absl::StrCat(process));
  }

  void NameThread(const ThreadId& thread, absl::string_view name) {
    Metadata("thread_name", thread, "name", Quoted(name));
    Metadata("thread_sort_index", thread, "sort_index",
             absl::StrCat(thread.thread));
  }

  // args: the members of a JSON object.
  void Add(const ThreadId& thread, absl::string_view name,
           absl::string_view category, int64_t start_us, int64_t length_us,
           absl::string_view args) {
    NewEvent();
    absl::StrAppend(&text_, "{\"ph\":\"X\",\"name\":", Quoted(name),
                    ",\"cat\":\"", category, "\",\"pid\":", thread.process,
                    ",\"tid\":", thread.thread, ",\"ts\":", start_us);
    absl::StrAppend(&text_, ",\"dur\":", std::max<int64_t>(length_us, 0),
                    ",\"args\":{", args, "}}");
  }

  void End() {
    text_ += "\n]}\n";
    write_(text_);
  }

 private:
  void NewEvent() {
    if (text_.size() >= kPieceBytes) {
      write_(text_);
      text_.clear();
    }
    text_ += std::exchange(first_, false) ? "\n" : ",\n";
  }

  void Metadata(const char* what, const ThreadId& thread, const char* key,
                absl::string_view value) {
    NewEvent();
    absl::StrAppend(&text_, "{\"ph\":\"M\",\"name\":\"", what,
                    "\",\"pid\":", thread.process, ",\"tid\":", thread.thread,
                    ",\"ts\":0,\"args\":{\"");
    absl::StrAppend(&text_, key, "\":", value, "}}");
  }

  const absl::FunctionRef<void(absl::string_view)> write_;
  std::string text_;
  bool first_ = true;
};

// "trainer" first, then by name, "worker 2" before "worker 10".
std::tuple<bool, std::string, int64_t, std::string> TrackOrder(
    const std::string& track) {
  size_t digits = track.size();
  while (digits > 0 && absl::ascii_isdigit(track[digits - 1])) --digits;
  int64_t number = -1;
  if (!absl::SimpleAtoi(track.substr(digits), &number)) number = -1;
  return {track != "trainer", track.substr(0, digits), number, track};
}

struct LessTrack {
  bool operator()(const std::string& a, const std::string& b) const {
    return TrackOrder(a) < TrackOrder(b);
  }
};

using Tracks = std::map<std::string, std::vector<Slice>, LessTrack>;

Tracks TracksOf(const v1::GetRunResponse& run, const Clocks& clocks) {
  const int64_t shift = clocks.OfHost(run.run().hostname());
  Tracks tracks;
  for (const v1::RunSpan& span : run.spans()) {
    tracks[span.track().empty() ? "run" : span.track()].push_back(
        {span.name(), Minus(span.start_unix_us(), shift),
         Minus(span.end_unix_us(), shift)});
  }
  for (auto& [name, slices] : tracks) Nest(kMaxRowsOfTrack, &slices);
  return tracks;
}

// Gives threads their numbers: above those of all processes.
class ThreadNumbers {
 public:
  explicit ThreadNumbers(int processes) : last_(processes) {}
  int Next() { return ++last_; }

 private:
  int last_;
};

void WriteRun(const v1::RunInfo& run, int process, const Tracks& tracks,
              ThreadNumbers* numbers, TraceWriter* out) {
  out->NameProcess(process,
                   absl::StrCat("run '", run.run_id(), "' (", run.kind(), ", ",
                                run.hostname(), ")"));
  const std::string args = absl::StrCat("\"run\":", Quoted(run.run_id()),
                                        ",\"job\":", Quoted(run.job_id()));
  for (const auto& [track, slices] : tracks) {
    std::vector<ThreadId> threads;
    for (const Slice& slice : slices) {
      // Rows begin in order.
      if (slice.row == static_cast<int>(threads.size())) {
        threads.push_back({process, numbers->Next()});
        out->NameThread(threads.back(),
                        slice.row == 0
                            ? track
                            : absl::StrCat(track, " (", slice.row + 1, ")"));
      }
      out->Add(threads[slice.row], slice.name, "run", slice.start,
               Minus(slice.end, slice.start), args);
    }
  }
}

// A process of an actor.
struct ActorProcess {
  const v1::CallRecord* first = nullptr;
  std::map<int32_t, ThreadId> lanes;
};

std::string NameOf(const v1::CallRecord& call) {
  return absl::StrCat(call.class_name(), " ",
                      call.actor_name().empty()
                          ? call.actor_id()
                          : absl::StrCat("'", call.actor_name(), "'"),
                      " (pid ", call.pid(), ", ", call.node_id(), ")");
}

void WriteCall(const v1::CallRecord& call, const ThreadId& thread,
               int64_t shift, TraceWriter* out) {
  const int64_t waited =
      std::max<int64_t>(Minus(call.start_unix_us(), call.queued_unix_us()), 0);
  out->Add(thread, call.method(), call.failed() ? "failed call" : "call",
           Minus(call.start_unix_us(), shift),
           Minus(call.end_unix_us(), call.start_unix_us()),
           absl::StrCat("\"actor\":", Quoted(call.actor_id()),
                        ",\"job\":", Quoted(call.job_id()), ",\"node\":",
                        Quoted(call.node_id()), ",\"waited_us\":", waited,
                        ",\"failed\":", call.failed() ? "true" : "false"));
}

}  // namespace

void WriteTimeline(const v1::GetCallRecordsResponse& calls,
                   const std::vector<v1::GetRunResponse>& runs,
                   absl::FunctionRef<void(absl::string_view)> write) {
  const Clocks clocks(calls.clocks());
  // In the order in which they first come; and of each call, whose it is.
  std::vector<ActorProcess> actors;
  std::vector<int> owners;
  owners.reserve(calls.records_size());
  std::map<std::pair<std::string, int64_t>, int> known;
  for (const v1::CallRecord& call : calls.records()) {
    const auto [it, is_new] = known.try_emplace(
        {call.actor_id(), call.pid()}, static_cast<int>(actors.size()));
    if (is_new) actors.push_back({.first = &call});
    owners.push_back(it->second);
    actors[it->second].lanes.try_emplace(call.lane());
  }

  TraceWriter out(write);
  out.Begin(calls);
  ThreadNumbers numbers(static_cast<int>(runs.size() + actors.size()));
  int process = 0;
  for (const v1::GetRunResponse& run : runs) {
    const Tracks tracks = TracksOf(run, clocks);
    if (!tracks.empty()) {
      WriteRun(run.run(), ++process, tracks, &numbers, &out);
    }
  }
  for (ActorProcess& actor : actors) {
    out.NameProcess(++process, NameOf(*actor.first));
    for (auto& [lane, thread] : actor.lanes) {
      thread = {process, numbers.Next()};
      out.NameThread(thread, absl::StrCat("lane ", lane));
    }
  }
  for (int i = 0; i < calls.records_size(); ++i) {
    const v1::CallRecord& call = calls.records(i);
    WriteCall(call, actors[owners[i]].lanes[call.lane()],
              clocks.OfNode(call.node_id()), &out);
  }
  out.End();
}

std::string TimelineJson(const v1::GetCallRecordsResponse& calls,
                         const std::vector<v1::GetRunResponse>& runs) {
  std::string text;
  WriteTimeline(calls, runs, [&text](absl::string_view piece) {
    text.append(piece.data(), piece.size());
  });
  return text;
}

}  // namespace miniray
