#include "runtime/objects/object_holds.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

constexpr size_t kMaxNameBytes = 256;
// Objects that are held here or from here.
constexpr size_t kMaxEntries = 1 << 20;
// Jobs and processes of which nothing is taken any more; older ones are
// forgotten.
constexpr size_t kMaxEnded = 4096;

void Remember(absl::string_view name,
              std::set<std::string, std::less<>>* ended) {
  if (ended->size() >= kMaxEnded) ended->clear();
  ended->emplace(name);
}

}  // namespace

absl::Status ObjectHolds::CheckHolder(const ObjectHolder& holder) const {
  if (holder.owner.size() > kMaxNameBytes ||
      holder.job_id.size() > kMaxNameBytes ||
      holder.store_id.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError("a holder with too long a name");
  }
  if (ended_jobs_.contains(holder.job_id) ||
      ended_owners_.contains(holder.owner)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the job ", holder.job_id, " has ended, or the process that asks"));
  }
  return absl::OkStatus();
}

absl::Status ObjectHolds::Put(const std::string& id,
                              const ObjectHolder& holder) {
  absl::MutexLock lock(&mu_);
  MR_RETURN_IF_ERROR(CheckHolder(holder));
  const auto [it, is_new] = entries_.try_emplace(id);
  if (!is_new && !it->second.source.empty()) {
    return absl::InvalidArgumentError("an object of another store is put");
  }
  it->second.holders.try_emplace(holder);
  return absl::OkStatus();
}

void ObjectHolds::Drop(const std::vector<std::string>& ids) {
  absl::MutexLock lock(&mu_);
  for (const std::string& id : ids) {
    const auto it = entries_.find(id);
    if (it != entries_.end() && it->second.source.empty()) entries_.erase(it);
  }
}

bool ObjectHolds::IsHeld(const std::string& id) const {
  absl::MutexLock lock(&mu_);
  const auto it = entries_.find(id);
  return it != entries_.end() && it->second.source.empty();
}

absl::StatusOr<ObjectHolds::Answer> ObjectHolds::Hold(
    const ObjectHolder& holder, const std::vector<Wanted>& wanted) {
  Answer answer;
  absl::MutexLock lock(&mu_);
  MR_RETURN_IF_ERROR(CheckHolder(holder));
  for (const Wanted& want : wanted) {
    const std::string& id = want.claim.object_id;
    auto it = entries_.find(id);
    if (it == entries_.end()) {
      if (want.source.empty()) {
        answer.missing.push_back(id);
        continue;
      }
      if (entries_.size() >= kMaxEntries || id.size() > kMaxNameBytes ||
          want.source.size() > kMaxNameBytes) {
        return absl::ResourceExhaustedError(
            absl::StrCat("the node's object store holds ", entries_.size(),
                         " objects for its processes, which is the limit"));
      }
      it = entries_.try_emplace(id).first;
      it->second.source = want.source;
      it->second.turn = ++turns_;
    }
    Entry& entry = it->second;
    if (want.source.empty() && !entry.source.empty()) {
      answer.missing.push_back(id);
      continue;
    }
    Held& held = entry.holders[holder];
    held.turn = std::max(held.turn, want.claim.turn);
    held.age = 0;
    // Also where another process of this node waits for the answer: it may not
    // come.
    if (!entry.source.empty() && !entry.claimed) {
      answer.to_claim[entry.source].push_back({id, entry.turn});
    }
  }
  return answer;
}

std::vector<ObjectClaim> ObjectHolds::Settle(
    const std::string& source, const std::vector<ObjectClaim>& claims,
    const std::vector<std::string>& missing) {
  const std::set<std::string> gone(missing.begin(), missing.end());
  std::vector<ObjectClaim> unwanted;
  absl::MutexLock lock(&mu_);
  for (const ObjectClaim& claim : claims) {
    const auto it = entries_.find(claim.object_id);
    const bool current = it != entries_.end() && it->second.source == source &&
                         it->second.turn == claim.turn;
    const bool is_gone = gone.contains(claim.object_id);
    if (current && is_gone) {
      entries_.erase(it);
    } else if (current) {
      it->second.claimed = true;
    } else if (!is_gone) {
      unwanted.push_back(claim);
    }
  }
  return unwanted;
}

ObjectHolds::LetGo ObjectHolds::Release(
    const ObjectHolder& holder, const std::vector<ObjectClaim>& claims) {
  LetGo let_go;
  absl::MutexLock lock(&mu_);
  for (const ObjectClaim& claim : claims) {
    const auto it = entries_.find(claim.object_id);
    if (it == entries_.end()) continue;
    const auto held = it->second.holders.find(holder);
    // It may hold the object anew, and this have come late.
    if (held == it->second.holders.end() || held->second.turn > claim.turn) {
      continue;
    }
    it->second.holders.erase(held);
    if (it->second.holders.empty()) LetGoOf(it, &let_go);
  }
  return let_go;
}

ObjectHolds::Entries::iterator ObjectHolds::LetGoOf(Entries::iterator it,
                                                    LetGo* let_go) {
  if (it->second.source.empty()) {
    let_go->here.push_back(it->first);
  } else {
    let_go->elsewhere[it->second.source].push_back(
        {it->first, it->second.turn});
  }
  return entries_.erase(it);
}

ObjectHolds::LetGo ObjectHolds::EndIf(
    const std::function<bool(const ObjectHolder&, Held*)>& ended) {
  LetGo let_go;
  for (auto it = entries_.begin(); it != entries_.end();) {
    auto& holders = it->second.holders;
    for (auto held = holders.begin(); held != holders.end();) {
      held = ended(held->first, &held->second) ? holders.erase(held)
                                               : std::next(held);
    }
    if (holders.empty()) {
      it = LetGoOf(it, &let_go);
    } else {
      ++it;
    }
  }
  return let_go;
}

ObjectHolds::LetGo ObjectHolds::EndJob(absl::string_view job_id) {
  if (job_id.empty()) return {};
  absl::MutexLock lock(&mu_);
  Remember(job_id, &ended_jobs_);
  return EndIf([&](const ObjectHolder& holder, Held*) {
    return holder.job_id == job_id;
  });
}

ObjectHolds::LetGo ObjectHolds::EndOwner(absl::string_view owner) {
  if (owner.empty()) return {};
  absl::MutexLock lock(&mu_);
  Remember(owner, &ended_owners_);
  return EndIf(
      [&](const ObjectHolder& holder, Held*) { return holder.owner == owner; });
}

void ObjectHolds::BeginJob(absl::string_view job_id) {
  absl::MutexLock lock(&mu_);
  const auto it = ended_jobs_.find(job_id);
  if (it != ended_jobs_.end()) ended_jobs_.erase(it);
}

std::set<std::string> ObjectHolds::Jobs() const {
  absl::MutexLock lock(&mu_);
  std::set<std::string> jobs;
  for (const auto& [id, entry] : entries_) {
    for (const auto& [holder, held] : entry.holders) {
      if (!holder.job_id.empty()) jobs.insert(holder.job_id);
    }
  }
  return jobs;
}

ObjectHolds::Claims ObjectHolds::Elsewhere() const {
  Claims claims;
  absl::MutexLock lock(&mu_);
  for (const auto& [id, entry] : entries_) {
    if (entry.source.empty()) continue;
    claims[entry.source].push_back({id, entry.turn});
  }
  return claims;
}

std::vector<std::string> ObjectHolds::Renew(
    const std::string& store_id, const std::vector<ObjectClaim>& claims) {
  std::vector<std::string> missing;
  const ObjectHolder holder = {.store_id = store_id};
  absl::MutexLock lock(&mu_);
  for (const ObjectClaim& claim : claims) {
    const auto it = entries_.find(claim.object_id);
    if (it == entries_.end() || !it->second.source.empty()) {
      missing.push_back(claim.object_id);
      continue;
    }
    Held& held = it->second.holders[holder];
    held.turn = std::max(held.turn, claim.turn);
    held.age = 0;
  }
  return missing;
}

ObjectHolds::LetGo ObjectHolds::AgeStores() {
  absl::MutexLock lock(&mu_);
  return EndIf([](const ObjectHolder& holder, Held* held) {
    return !holder.store_id.empty() && ++held->age > kMaxAge;
  });
}

}  // namespace miniray
