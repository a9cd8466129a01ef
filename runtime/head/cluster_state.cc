#include "runtime/head/cluster_state.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"
#include "runtime/base/version.h"

namespace miniray {
namespace {

// Records of dead actors that are kept for `status` and for late callers.
constexpr size_t kMaxDeadActors = 10000;
constexpr size_t kMaxDeadNodes = 1000;
constexpr size_t kMaxEndedJobs = 10000;
// Of one question that waits for news; its caller asks again. Internal.
constexpr absl::Duration kMaxWait = absl::Minutes(1);
// Between two tries to reach a head.
constexpr absl::Duration kLeastPause = absl::Milliseconds(10);
// Of an actor's record in wire format, for making room.
constexpr size_t kUsualActorBytes = 320;

bool IsWanted(const std::set<v1::Table>& tables, v1::Table table) {
  return tables.empty() || tables.contains(table);
}

// Adds the record to a serialised GetClusterStateResponse: in wire format a
// repeated field's elements stand behind each other, in any place.
void AppendActor(const v1::ActorInfo& info, std::string* response) {
  using ::google::protobuf::internal::WireFormatLite;
  using ::google::protobuf::io::CodedOutputStream;
  constexpr uint32_t kTag =
      WireFormatLite::MakeTag(v1::GetClusterStateResponse::kActorsFieldNumber,
                              WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  const auto bytes = static_cast<uint32_t>(info.ByteSizeLong());
  const size_t begin = response->size();
  response->resize(begin + CodedOutputStream::VarintSize32(kTag) +
                   CodedOutputStream::VarintSize32(bytes) + bytes);
  auto* to = reinterpret_cast<uint8_t*>(response->data()) + begin;
  to = CodedOutputStream::WriteVarint32ToArray(kTag, to);
  to = CodedOutputStream::WriteVarint32ToArray(bytes, to);
  info.SerializeWithCachedSizesToArray(to);
}

}  // namespace

v1::ClusterPeriods ClusterState::PeriodsFor(absl::Duration grace) const {
  v1::ClusterPeriods periods;
  periods.set_reconnect_timeout_ms(
      absl::ToInt64Milliseconds(options_.reconnect_timeout));
  periods.set_session_life_ms(absl::ToInt64Milliseconds(options_.session_life));
  periods.set_max_reconnect_pause_ms(absl::ToInt64Milliseconds(
      std::clamp(grace / 4, kLeastPause,
                 std::max(kLeastPause, options_.max_reconnect_pause))));
  return periods;
}

void ClusterState::GetActor(const v1::GetActorRequest& request,
                            ActorCallback done) {
  Turn turn(this);
  const Actor* actor =
      request.actor_id().empty()
          ? FindByName(request.name(), request.actor_namespace())
          : FindActor(request.actor_id());
  if (actor == nullptr) {
    absl::Status status = absl::NotFoundError(
        request.actor_id().empty()
            ? absl::StrCat("no living actor has the name '", request.name(),
                           "' in the namespace '", request.actor_namespace(),
                           "'")
            : absl::StrCat("the head knows no actor ", request.actor_id()));
    return Reply([done = std::move(done), status] { done(status); });
  }
  if (actor->info.version() >= request.min_version() ||
      request.wait_ms() <= 0 || !IsLive(actor->info) || stop_waiting_) {
    return ReplyActor(*actor, std::move(done));
  }
  const std::string id = actor->info.actor_id();
  actor_waiters_.Add(
      id, request.min_version(),
      options_.clock() + std::min<absl::Duration>(
                             absl::Milliseconds(request.wait_ms()), kMaxWait),
      [this, id, done = std::move(done)]() mutable {
        mu_.AssertHeld();
        if (const Actor* actor = FindActor(id); actor != nullptr) {
          return ReplyActor(*actor, std::move(done));
        }
        Reply([done = std::move(done)] {
          done(absl::NotFoundError("the head forgot this actor"));
        });
      });
}

ClusterState::Actor* ClusterState::FindActor(
    const std::string& actor_id) const {
  auto it = actors_.find(actor_id);
  return it == actors_.end() ? nullptr : it->second.get();
}

ClusterState::Actor* ClusterState::FindByName(const std::string& name,
                                              const std::string& space) const {
  auto it = names_.find({space, name});
  return it == names_.end() ? nullptr : FindActor(it->second);
}

void ClusterState::ForgetActors() {
  while (graveyard_.size() > kMaxDeadActors) {
    auto it = actors_.find(graveyard_.front());
    // One whose process has not ended yet stays until the next time.
    if (it != actors_.end() && it->second->holds_resources) return;
    if (it != actors_.end()) {
      touched_actors_.insert(it->first);
      EraseRow(StateStore::Table::kActors, it->second->key);
      actors_.erase(it);
    }
    graveyard_.pop_front();
  }
}

void ClusterState::ForgetNodesAndJobs() {
  while (dead_nodes_.size() > kMaxDeadNodes) {
    const auto it = nodes_.find(dead_nodes_.front());
    if (it != nodes_.end()) {
      EraseRow(StateStore::Table::kNodes, it->second.key);
      nodes_.erase(it);
    }
    dead_nodes_.pop_front();
  }
  while (ended_jobs_.size() > kMaxEndedJobs) {
    auto it = jobs_.find(ended_jobs_.front());
    // An id may have been used again.
    if (it != jobs_.end() && HasEnded(it->second.info)) {
      touched_jobs_.insert(it->first);
      EraseRow(StateStore::Table::kJobs, it->second.key);
      jobs_.erase(it);
    }
    ended_jobs_.pop_front();
  }
}

void ClusterState::Tick() {
  Turn turn(this);
  const absl::Time now = options_.clock();
  if (now >= first_lease_end_) EndLeases(now);
  for (auto& [id, job] : jobs_) {
    if (now >= job.grace_end) {
      EndJob(&job, v1::JOB_STATE_FAILED, "its driver vanished");
    }
    if (now >= job.leaving_end) EndDriverLink(&job);
  }
  EnqueueDelayed(now);
  FailInfeasible(now);
  FailInfeasibleJobs(now);
  TickGroups(now);
  Schedule();
  ForgetNodesAndJobs();
  ForgetGroups();
  for (WaitList::Answer& answer : actor_waiters_.TakeExpired(now)) answer();
  for (WaitList::Answer& answer : job_waiters_.TakeExpired(now)) answer();
  for (WaitList::Answer& answer : group_waiters_.TakeExpired(now)) answer();
}

void ClusterState::EndLeases(absl::Time now) {
  first_lease_end_ = absl::InfiniteFuture();
  for (auto& [id, node] : nodes_) {
    if (node.info.state() == v1::NODE_STATE_DEAD) continue;
    if (now < node.lease_end) {
      first_lease_end_ = std::min(first_lease_end_, node.lease_end);
      if (node.info.state() == v1::NODE_STATE_DISCONNECTED) {
        TellOfNoStream(now, &node);
      }
      continue;
    }
    ++nodes_lost_;
    LoseNode(&node,
             node.info.state() == v1::NODE_STATE_DISCONNECTED
                 ? "its connection to the head broke and did not come back"
                 : absl::StrCat("no sign of life for ",
                                absl::FormatDuration(options_.lease)));
  }
}

std::set<std::string> ClusterState::PackagesInUse() const {
  absl::MutexLock lock(&mu_);
  std::set<std::string> in_use;
  for (const auto& [id, actor] : actors_) {
    if (!IsLive(actor->info)) continue;
    in_use.insert(actor->spec->package_id());
    for (const v1::Plugin& plugin : actor->spec->plugins()) {
      in_use.insert(plugin.package_id());
    }
  }
  for (const auto& [id, job] : jobs_) {
    if (job.spec == nullptr || HasEnded(job.info)) continue;
    in_use.insert(job.spec->package_id());
    in_use.insert(job.spec->folder_id());
  }
  return in_use;
}

void ClusterState::StopWaiting() {
  Turn turn(this);
  stop_waiting_ = true;
  for (WaitList::Answer& answer : actor_waiters_.TakeAll()) answer();
  for (WaitList::Answer& answer : job_waiters_.TakeAll()) answer();
  for (WaitList::Answer& answer : group_waiters_.TakeAll()) answer();
}

v1::GetClusterStateResponse ClusterState::Snapshot(
    const std::set<v1::Table>& tables,
    const std::function<bool(const v1::ActorInfo&)>& keep_actor) const {
  absl::MutexLock lock(&mu_);
  v1::GetClusterStateResponse response = SnapshotWithoutActors(tables);
  if (!IsWanted(tables, v1::TABLE_ACTORS)) return response;
  if (keep_actor == nullptr) {
    response.mutable_actors()->Reserve(static_cast<int>(actors_.size()));
  }
  for (const auto& [id, actor] : actors_) {
    if (keep_actor == nullptr) {
      *response.add_actors() = Told(*actor);
    } else if (IsToldAsKept(*actor)) {
      if (keep_actor(actor->info)) *response.add_actors() = actor->info;
    } else if (v1::ActorInfo told = Told(*actor); keep_actor(told)) {
      *response.add_actors() = std::move(told);
    }
  }
  return response;
}

std::string ClusterState::SerializedSnapshot(
    const std::set<v1::Table>& tables) const {
  absl::MutexLock lock(&mu_);
  std::string bytes = SnapshotWithoutActors(tables).SerializeAsString();
  if (!IsWanted(tables, v1::TABLE_ACTORS)) return bytes;
  bytes.reserve(bytes.size() + actors_.size() * kUsualActorBytes);
  for (const auto& [id, actor] : actors_) {
    if (IsToldAsKept(*actor)) {
      AppendActor(actor->info, &bytes);
    } else {
      AppendActor(Told(*actor), &bytes);
    }
  }
  return bytes;
}

uint64_t ClusterState::Fingerprint() const {
  using ::google::protobuf::io::CodedOutputStream;
  using ::google::protobuf::io::StringOutputStream;
  absl::MutexLock lock(&mu_);
  // Nodes have no version, and are few. Maps need one order.
  std::string bytes;
  {
    StringOutputStream to(&bytes);
    CodedOutputStream coded(&to);
    coded.SetSerializationDeterministic(true);
    SnapshotWithoutActors({v1::TABLE_NODES}).SerializeToCodedStream(&coded);
    // What they use is shown with them; it has no map.
    for (const auto& [id, node] : nodes_) {
      node.usage.SerializeToCodedStream(&coded);
    }
  }
  uint64_t print = absl::Hash<std::string>()(bytes);
  const auto add = [&print](int64_t version, int64_t birth) {
    print = absl::Hash<std::pair<uint64_t, std::pair<int64_t, int64_t>>>()(
        {print, {version, birth}});
  };
  for (const auto& [id, actor] : actors_) {
    add(actor->info.version(), actor->info.create_unix_ms());
  }
  add(-1, 0);  // Between two tables.
  for (const auto& [id, job] : jobs_) {
    add(job.info.version(), job.info.start_unix_ms());
  }
  add(-1, 0);
  for (const auto& [id, group] : groups_) {
    add(group.info.version(), group.info.create_unix_ms());
  }
  return print;
}

v1::GetClusterStateResponse ClusterState::SnapshotWithoutActors(
    const std::set<v1::Table>& tables) const {
  v1::GetClusterStateResponse response;
  response.set_head_version(kVersion);
  if (IsWanted(tables, v1::TABLE_NODES)) {
    for (const auto& [id, node] : nodes_) {
      v1::NodeInfo* info = response.add_nodes();
      *info = node.info;
      *info->mutable_total() = node.total.ToProto();
      *info->mutable_available() = node.available.ToProto();
    }
  }
  if (IsWanted(tables, v1::TABLE_JOBS)) {
    for (const auto& [id, job] : jobs_) *response.add_jobs() = job.info;
  }
  if (IsWanted(tables, v1::TABLE_PLACEMENT_GROUPS)) {
    for (const auto& [id, group] : groups_) {
      *response.add_placement_groups() = Told(group);
    }
  }
  return response;
}

}  // namespace miniray
