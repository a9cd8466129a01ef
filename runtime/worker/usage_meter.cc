#include "runtime/worker/usage_meter.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "runtime/base/files.h"
#include "runtime/base/proc_stat.h"

namespace miniray {
namespace {

using Words = std::vector<absl::string_view>;

double NumberAt(const Words& words, size_t i) {
  double number = 0;
  if (i < words.size() && absl::SimpleAtod(words[i], &number)) return number;
  return 0;
}

}  // namespace

UsageMeter::UsageMeter(Options options)
    : options_(std::move(options)),
      ticks_per_second_(
          static_cast<double>(std::max<long>(sysconf(_SC_CLK_TCK), 1))) {}

void UsageMeter::Measure(std::vector<ActorProcess> actors,
                         v1::NodeStats* stats) {
  MeasureMachine(stats);
  std::sort(actors.begin(), actors.end(),
            [](const ActorProcess& a, const ActorProcess& b) {
              return a.actor_id < b.actor_id;
            });
  if (actors.size() > options_.max_actors) {
    const auto next = std::find_if(
        actors.begin(), actors.end(),
        [this](const auto& actor) { return actor.actor_id > last_actor_; });
    std::rotate(actors.begin(), next, actors.end());
    last_actor_ = actors[options_.max_actors - 1].actor_id;
  }
  // Of those whose turn it is not, what was read last stays.
  std::map<pid_t, ProcessTime> read;
  for (const ActorProcess& actor : actors) {
    const auto before = last_.find(actor.pid);
    if (before != last_.end()) read.insert(*before);
  }
  const size_t count = std::min(actors.size(), options_.max_actors);
  std::map<pid_t, v1::ActorUsage> measured;  // Shared processes once.
  for (size_t i = 0; i < count; ++i) {
    const ActorProcess& actor = actors[i];
    auto usage = measured.find(actor.pid);
    if (usage == measured.end()) {
      const std::optional<ProcessTime> now = ReadProcessTime(actor.pid);
      if (!now.has_value()) continue;
      ProcessTime before = {
          now->start_ticks, absl::ZeroDuration(),
          absl::Seconds(static_cast<double>(now->start_ticks) /
                        ticks_per_second_)};
      const auto last = last_.find(actor.pid);
      if (last != last_.end() && last->second.start_ticks == now->start_ticks) {
        before = last->second;
      }
      usage = measured.try_emplace(actor.pid).first;
      const double seconds = absl::ToDoubleSeconds(now->at - before.at);
      usage->second.set_cpus(
          seconds > 0 ? absl::ToDoubleSeconds(now->busy - before.busy) / seconds
                      : 0);
      usage->second.set_memory_bytes(ReadMemory(actor.pid));
      read[actor.pid] = *now;
    }
    v1::ActorUsage* const told = stats->add_actors();
    *told = usage->second;
    told->set_actor_id(actor.actor_id);
    told->set_incarnation(actor.incarnation);
    told->set_calls_done(actor.calls.done);
    told->set_calls_waiting(actor.calls.waiting);
    told->set_calls_running(actor.calls.running);
  }
  last_ = std::move(read);
}

void UsageMeter::MeasureMachine(v1::NodeStats* stats) {
  const std::optional<CpuTime> now = ReadCpuTime();
  if (!now.has_value()) return;
  if (last_machine_.has_value() && now->total > last_machine_->total) {
    // A share of the time of all CPUs, whatever their number was meanwhile.
    const double share =
        (now->busy - last_machine_->busy) / (now->total - last_machine_->total);
    stats->set_cpus_busy(std::clamp(share, 0.0, 1.0) * now->cpus);
    stats->set_cpus(now->cpus);
  }
  last_machine_ = now;
}

absl::Duration UsageMeter::Uptime() {
  timespec now = {};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return absl::DurationFromTimespec(now);
}

// "cpu  USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL ...", then a line like
// it for each CPU. Time of guests is in USER and NICE already.
std::optional<UsageMeter::CpuTime> UsageMeter::ReadCpuTime() const {
  const std::string text = ReadFile(options_.proc + "/stat").value_or("");
  CpuTime time;
  bool known = false;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, "cpu")) break;
    const Words words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (line.empty() || line[0] != ' ') {
      ++time.cpus;
      continue;
    }
    known = true;
    for (size_t i = 0; i < 8; ++i) time.total += NumberAt(words, i);
    time.busy = time.total - NumberAt(words, 3) - NumberAt(words, 4);
  }
  if (!known || time.cpus == 0) return std::nullopt;
  return time;
}

std::optional<UsageMeter::ProcessTime> UsageMeter::ReadProcessTime(
    pid_t pid) const {
  const std::string stat =
      ReadFile(absl::StrCat(options_.proc, "/", pid, "/stat")).value_or("");
  const Words words = ProcStatFields(stat);  // Word 0 is field 3.
  ProcessTime time;
  if (words.size() < 20 || !absl::SimpleAtoi(words[19], &time.start_ticks)) {
    return std::nullopt;
  }
  time.busy = absl::Seconds((NumberAt(words, 11) + NumberAt(words, 12)) /
                            ticks_per_second_);
  time.at = options_.uptime();
  return time;
}

int64_t UsageMeter::ReadMemory(pid_t pid) const {
  const std::string status =
      ReadFile(absl::StrCat(options_.proc, "/", pid, "/status")).value_or("");
  int64_t bytes = 0;
  for (absl::string_view line : absl::StrSplit(status, '\n')) {
    if (!absl::ConsumePrefix(&line, "RssAnon:") &&
        !absl::ConsumePrefix(&line, "RssShmem:")) {
      continue;
    }
    const Words words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    bytes += static_cast<int64_t>(NumberAt(words, 0)) * 1024;
  }
  return bytes;
}

}  // namespace miniray
