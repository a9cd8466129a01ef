#include "tools/havoc/workload.h"

#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "tools/havoc/process.h"

namespace miniray::havoc {
namespace {

// Complaints beyond tell nothing new.
constexpr size_t kMaxComplaints = 20;

}  // namespace

CountReply CallCounter::Add(int64_t caller, int64_t sequence) {
  // Calls of one caller come in order, so what is not above the last ran
  // before.
  int64_t& last = last_[caller];
  if (sequence > last) {
    last = sequence;
    ++count_;
  } else {
    ++again_;
  }
  return {count_, getpid(), again_};
}

void CallCounter::RestoreState(const State& state) {
  if (std::getenv(kForgetVariable) != nullptr) return;
  std::tie(count_, again_, last_) = state;
}

CountReply CallCounter::Get() const { return {count_, getpid(), again_}; }

struct Workload::Call {
  int actor = 0;
  int64_t sequence = 0;
  absl::Time made;
  bool is_late = false;  // Made since StopCalls.
  ObjectRef<CountReply> ref;
};

Workload::Workload(Cluster cluster, Options options)
    : options_(std::move(options)), cluster_(std::move(cluster)) {}

Workload::~Workload() {
  stopping_ = true;
  abandoned_ = true;
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

absl::Status Workload::CreateActors() {
  std::map<std::string, std::string> env;
  if (options_.forget) env.emplace(kForgetVariable, "1");
  for (int i = 0; i < options_.actors; ++i) {
    auto actor = std::make_unique<Actor>();
    actor->retries = i % 2 == 1;
    MR_ASSIGN_OR_RETURN(actor->handle,
                        cluster_.CreateActor<CallCounter>(
                            {.name = absl::StrCat("counter-", i),
                             .resources = {.cpu = 1},
                             .max_restarts = -1,
                             .env = env,
                             .max_retries = actor->retries ? -1 : 0}));
    actors_.push_back(std::move(actor));
  }
  for (const auto& actor : actors_) {
    MR_ASSIGN_OR_RETURN(
        const CountReply reply,
        actor->handle.Call<&CallCounter::Get>().Get(absl::Seconds(60)));
    actor->pid = static_cast<pid_t>(std::get<1>(reply));
  }
  return absl::OkStatus();
}

void Workload::StartCalls() {
  running_ = options_.threads;
  for (int caller = 0; caller < options_.threads; ++caller) {
    threads_.emplace_back([this, caller] {
      CallerLoop(caller);
      --running_;
    });
  }
}

void Workload::CallerLoop(int caller) {
  std::vector<std::deque<Call>> pending(actors_.size());
  std::vector<int64_t> sequence(actors_.size(), 0);
  std::vector<int64_t> last_count(actors_.size(), 0);
  std::vector<bool> heard(actors_.size(), false);  // Since StopCalls.
  while (!abandoned_) {
    bool any = false;
    for (size_t i = 0; i < actors_.size(); ++i) {
      Actor& actor = *actors_[i];
      std::deque<Call>& calls = pending[i];
      // In order: replies of one caller come in the order of its calls.
      while (!calls.empty() && calls.front().ref.ready()) {
        const bool answered = Settle(caller, calls.front(), &last_count[i]);
        if (answered && calls.front().is_late && !heard[i]) {
          heard[i] = true;
          ++actor.heard;
        }
        calls.pop_front();
      }
      const bool stopping = stopping_;
      if ((!stopping || !heard[i]) &&
          calls.size() < static_cast<size_t>(options_.window)) {
        Call call;
        call.is_late = stopping;
        call.actor = static_cast<int>(i);
        call.sequence = ++sequence[i];
        call.made = absl::Now();
        ++actor.made;
        call.ref = actor.handle.Call<&CallCounter::Add>(
            static_cast<int64_t>(caller), call.sequence);
        call.ref.state()->OnDone([&actor] { ++actor.completions; });
        calls.push_back(std::move(call));
      }
      any = any || !calls.empty();
    }
    if (stopping_ && !any) return;
    absl::SleepFor(options_.pause);
  }
}

bool Workload::Settle(int caller, const Call& call, int64_t* last_count) {
  Actor& actor = *actors_[static_cast<size_t>(call.actor)];
  const absl::StatusOr<CountReply> reply = call.ref.Get(absl::ZeroDuration());
  const absl::Duration took = absl::Now() - call.made;
  const std::string name = absl::StrCat("call ", call.sequence, " of caller ",
                                        caller, " to actor ", call.actor);
  {
    absl::MutexLock lock(&mu_);
    ++outcomes_[absl::StatusCodeToString(reply.status().code())];
    longest_ = std::max(longest_, took);
  }
  if (!reply.ok()) {
    ++actor.failed;
    if (options_.on_failure) {
      options_.on_failure(absl::StrCat(name, " after ",
                                       absl::FormatDuration(took), ": ",
                                       reply.status().ToString()));
    }
    // Whatever happens to an actor, its node, the head or the network is
    // UNAVAILABLE to a caller.
    if (reply.status().code() != absl::StatusCode::kUnavailable) {
      Complain(absl::StrCat(name, " failed with ", reply.status().ToString()));
    }
    return false;
  }
  ++actor.acknowledged;
  const auto& [count, pid, again] = *reply;
  actor.pid = static_cast<pid_t>(pid);
  // Other callers count too, so it may grow by more than one, but never
  // shrinks.
  if (count < *last_count || (count == *last_count && !actor.retries)) {
    Complain(absl::StrCat(name, " was told the count ", count, " after ",
                          *last_count));
  }
  *last_count = std::max(*last_count, count);
  if (again > 0 && !actor.retries) {
    Complain(absl::StrCat(name, ": actor ", call.actor, " ran ", again,
                          " calls that were not to be retried again"));
  }
  return true;
}

void Workload::Complain(const std::string& what) {
  absl::MutexLock lock(&mu_);
  if (complaints_.size() < kMaxComplaints) complaints_.push_back(what);
}

absl::Status Workload::StopCalls(absl::Duration timeout,
                                 const std::function<absl::Status()>& watch) {
  stopping_ = true;
  absl::Status watched;
  const bool all = WaitUntil(timeout, [&] {
    if (watched.ok()) watched = watch();
    return running_ == 0 || !watched.ok();
  });
  abandoned_ = true;
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  MR_RETURN_IF_ERROR(watched);
  if (all) return absl::OkStatus();
  std::string missing;
  for (size_t i = 0; i < actors_.size(); ++i) {
    const Actor& actor = *actors_[i];
    const int64_t open = actor.made - actor.acknowledged - actor.failed;
    if (open > 0) {
      absl::StrAppend(&missing, " ", open, " calls to actor ", i,
                      " without an outcome,");
    }
    if (actor.heard < options_.threads) {
      absl::StrAppend(&missing, " no answer of actor ", i, " to ",
                      options_.threads - actor.heard, " callers,");
    }
  }
  if (!missing.empty()) missing.pop_back();
  return absl::InternalError(
      absl::StrCat(absl::FormatDuration(timeout),
                   " after everything was healed there are", missing));
}

absl::Status Workload::CheckCounts(absl::Duration timeout,
                                   const std::function<absl::Status()>& watch) {
  const absl::Time deadline = absl::Now() + timeout;
  for (size_t i = 0; i < actors_.size(); ++i) {
    Actor& actor = *actors_[i];
    absl::StatusOr<CountReply> reply;
    do {
      MR_RETURN_IF_ERROR(watch());
      // Not longer: what it waits for may be a daemon that gave up.
      reply = actor.handle.Call<&CallCounter::Get>().Get(absl::Seconds(5));
      if (!reply.ok()) absl::SleepFor(absl::Milliseconds(100));
    } while (!reply.ok() && absl::Now() < deadline);
    if (!reply.ok()) {
      Complain(absl::StrCat(
          "actor ", i, " does not answer ", absl::FormatDuration(timeout),
          " after everything was healed: ", reply.status().ToString()));
      continue;
    }
    const auto& [count, pid, again] = *reply;
    if (count < actor.acknowledged) {
      Complain(absl::StrCat("actor ", i, " lost ", actor.acknowledged - count,
                            " acknowledged calls: it counts ", count, " of ",
                            actor.acknowledged.load()));
    }
    if (count > actor.made) {
      Complain(absl::StrCat("actor ", i, " counts ", count, " calls, but only ",
                            actor.made.load(), " were made"));
    }
    if (again > 0 && !actor.retries) {
      Complain(absl::StrCat("actor ", i, " ran ", again, " calls twice"));
    }
    if (actor.completions != actor.made) {
      Complain(absl::StrCat("actor ", i, ": ", actor.made.load(), " calls had ",
                            actor.completions.load(), " outcomes"));
    }
  }
  absl::MutexLock lock(&mu_);
  if (complaints_.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrJoin(complaints_, "\n  "));
}

std::string Workload::Summary() const {
  int64_t made = 0;
  for (const auto& actor : actors_) made += actor->made;
  absl::MutexLock lock(&mu_);
  std::vector<std::string> parts;
  for (const auto& [code, count] : outcomes_) {
    parts.push_back(absl::StrCat(count, " ", code));
  }
  return absl::StrCat(
      made, " calls: ", absl::StrJoin(parts, ", "), "; the longest took ",
      absl::FormatDuration(absl::Trunc(longest_, absl::Milliseconds(1))));
}

}  // namespace miniray::havoc
