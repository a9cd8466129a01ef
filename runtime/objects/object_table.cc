#include "runtime/objects/object_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

constexpr size_t kMaxNameBytes = 256;
// Stores that an object remembers to have been copied to.
constexpr size_t kMaxReaders = 16384;
// Smaller ones are sent at once: to find another source would take longer.
constexpr int64_t kMinSharedBytes = 2 << 20;
// For a peer that was told to come here, but asks before the first bytes.
constexpr absl::Duration kCopyBegins = absl::Seconds(3);
constexpr absl::Duration kLook = absl::Milliseconds(500);

}  // namespace

absl::Status ObjectTable::CheckArrival(const Arrival& arrival) const {
  if (arrival.id.empty() || arrival.id.size() > kMaxNameBytes ||
      arrival.job_id.size() > kMaxNameBytes || arrival.total_bytes < 0) {
    return absl::InvalidArgumentError(
        "an object needs an id and its size, at the beginning");
  }
  if (objects_.find(arrival.id) != objects_.end() ||
      incoming_.find(arrival.id) != incoming_.end()) {
    return absl::AlreadyExistsError("the object is here already");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ObjectTable::Incoming>> ObjectTable::Begin(
    Arrival arrival, const GiveUp& give_up) {
  auto incoming = std::make_unique<Incoming>();
  absl::MutexLock lock(&mu_);
  MR_RETURN_IF_ERROR(CheckArrival(arrival));
  // It is coming from here on, also while others make way.
  incoming_[arrival.id];
  absl::Status status = Reserve(arrival.total_bytes, give_up);
  if (status.ok()) {
    absl::StatusOr<std::shared_ptr<MemoryFile>> file =
        MemoryFile::Create(arrival.total_bytes);
    if (!file.ok()) bytes_ -= arrival.total_bytes;
    status = file.status();
    if (file.ok()) incoming->file = *std::move(file);
  }
  if (!status.ok()) {
    incoming_.erase(arrival.id);
    return status;
  }
  incoming_[arrival.id].file = incoming->file;
  incoming->arrival = std::move(arrival);
  changed_.SignalAll();
  return incoming;
}

absl::Status ObjectTable::Adopt(Arrival arrival,
                                std::shared_ptr<MemoryFile> file,
                                const GiveUp& give_up) {
  auto incoming = std::make_unique<Incoming>();
  {
    absl::MutexLock lock(&mu_);
    MR_RETURN_IF_ERROR(CheckArrival(arrival));
    incoming_[arrival.id];
    const absl::Status status = Reserve(arrival.total_bytes, give_up);
    if (!status.ok()) {
      incoming_.erase(arrival.id);
      return status;
    }
  }
  incoming->arrival = std::move(arrival);
  incoming->file = std::move(file);
  return Finish(std::move(incoming));
}

absl::Status ObjectTable::Finish(std::unique_ptr<Incoming> incoming) {
  absl::Status status = incoming->file->Seal();
  if (status.ok()) {
    absl::MutexLock lock(&mu_);
    const Arrival& arrival = incoming->arrival;
    auto it = incoming_.find(arrival.id);
    if (!it->second.freed) {
      incoming_.erase(it);
      Insert(arrival, std::move(incoming->file));
      changed_.SignalAll();
      return absl::OkStatus();
    }
    status = absl::CancelledError("the object was freed while it came");
  }
  Abandon(std::move(incoming));
  return status;
}

void ObjectTable::Abandon(std::unique_ptr<Incoming> incoming) {
  incoming->file->Abandon();
  absl::MutexLock lock(&mu_);
  incoming_.erase(incoming->arrival.id);
  bytes_ -= incoming->arrival.total_bytes;
  changed_.SignalAll();
}

void ObjectTable::Insert(const Arrival& arrival,
                         std::shared_ptr<const MemoryFile> file) {
  auto it = objects_.try_emplace(arrival.id).first;
  Object& object = it->second;
  object.job_id = arrival.job_id;
  object.source = arrival.source;
  object.size = arrival.total_bytes;
  object.memory = std::move(file);
  Use(it);
}

void ObjectTable::Use(Objects::iterator it) {
  Object& object = it->second;
  in_memory_.erase(object.last_use);
  object.last_use = ++uses_;
  if (object.memory != nullptr) in_memory_[object.last_use] = it->first;
}

absl::StatusOr<ObjectTable::Source> ObjectTable::FindSource(
    const std::string& id, const Reader& reader) {
  absl::MutexLock lock(&mu_);
  Source source;
  if (reader.from_copy) {
    const absl::Time deadline = absl::Now() + kCopyBegins;
    auto begins = [&] {
      mu_.AssertHeld();
      const auto coming = incoming_.find(id);
      return coming == incoming_.end() ? awaited_.find(id) == awaited_.end()
                                       : coming->second.file != nullptr;
    };
    while (objects_.find(id) == objects_.end() && !begins() &&
           !changed_.WaitWithDeadline(&mu_, deadline)) {
    }
    const auto coming = incoming_.find(id);
    if (coming != incoming_.end() && coming->second.file != nullptr) {
      source.memory = coming->second.file;
      source.size = source.memory->size();
      return source;
    }
  }
  const auto it = objects_.find(id);
  if (it == objects_.end()) {
    return absl::NotFoundError(
        absl::StrCat("the object ", id,
                     " was freed (no process has an ObjectRef to it any more, "
                     "or those that had one have ended)"));
  }
  Use(it);
  Object& object = it->second;
  source.size = object.size;
  if (!reader.from_copy && !reader.store_address.empty()) {
    source.peer_address = PeerFor(reader, &object);
    if (!source.peer_address.empty()) return source;
    source.turn = object.sending;
  }
  source.memory = object.memory;
  if (source.memory == nullptr) source.disk = object.disk;
  return source;
}

// Each new reader is sent to the one before, so that the object leaves this
// node once however many nodes it goes to at the same time: a chain, through
// which it flows in chunks. One whose peer failed is served from here.
std::string ObjectTable::PeerFor(const Reader& reader, Object* object) {
  if (object->readers.size() < kMaxReaders) {
    object->readers.insert(reader.store_address);
  }
  std::vector<std::string>& chain = object->chain;
  std::erase_if(chain, [&](const std::string& address) {
    return address == reader.store_address ||
           std::find(reader.failed_peers.begin(), reader.failed_peers.end(),
                     address) != reader.failed_peers.end();
  });
  const bool busy = object->sending.use_count() > options_.max_children;
  std::string peer;
  if (busy && !chain.empty() && reader.failed_peers.empty() &&
      object->size >= kMinSharedBytes) {
    peer = chain.back();
  }
  if (chain.size() >= kMaxReaders) chain.clear();
  chain.push_back(reader.store_address);
  return peer;
}

bool ObjectTable::Await(const std::string& id, const GiveUp& give_up) {
  absl::MutexLock lock(&mu_);
  while (awaited_.find(id) != awaited_.end() ||
         incoming_.find(id) != incoming_.end()) {
    changed_.WaitWithTimeout(&mu_, kLook);
    if (give_up()) return true;
  }
  if (objects_.find(id) != objects_.end()) return true;
  awaited_.insert(id);
  return false;
}

void ObjectTable::Settle(const std::string& id) {
  absl::MutexLock lock(&mu_);
  awaited_.erase(id);
  changed_.SignalAll();
}

ObjectTable::Copies ObjectTable::Free(const std::vector<std::string>& ids) {
  Copies copies;
  absl::MutexLock lock(&mu_);
  for (const std::string& id : ids) {
    if (auto it = incoming_.find(id); it != incoming_.end()) {
      it->second.freed = true;
    }
    auto it = objects_.find(id);
    if (it != objects_.end()) Erase(it, &copies);
  }
  return copies;
}

ObjectTable::Copies ObjectTable::EndJob(absl::string_view job_id) {
  Copies copies;
  if (job_id.empty()) return copies;
  absl::MutexLock lock(&mu_);
  for (auto it = objects_.begin(); it != objects_.end();) {
    const auto next = std::next(it);
    if (it->second.job_id == job_id) Erase(it, &copies);
    it = next;
  }
  return copies;
}

std::set<std::string> ObjectTable::Jobs() const {
  absl::MutexLock lock(&mu_);
  std::set<std::string> jobs;
  for (const auto& [id, object] : objects_) {
    if (!object.job_id.empty()) jobs.insert(object.job_id);
  }
  return jobs;
}

void ObjectTable::Erase(Objects::iterator it, Copies* copies) {
  for (const std::string& reader : it->second.readers) {
    (*copies)[reader].push_back(it->first);
  }
  if (it->second.memory != nullptr) LeaveMemory(it);
  LeaveDisk(&it->second);
  objects_.erase(it);
  changed_.SignalAll();
}

ObjectTable::Copies ObjectTable::ListCopies() const {
  Copies copies;
  absl::MutexLock lock(&mu_);
  for (const auto& [id, object] : objects_) {
    if (!object.source.empty()) copies[object.source].push_back(id);
  }
  return copies;
}

std::vector<std::string> ObjectTable::Missing(
    const std::vector<std::string>& ids, const std::string& reader) {
  std::vector<std::string> missing;
  absl::MutexLock lock(&mu_);
  for (const std::string& id : ids) {
    auto it = objects_.find(id);
    if (it == objects_.end()) {
      missing.push_back(id);
    } else if (it->second.readers.size() < kMaxReaders) {
      it->second.readers.insert(reader);
    }
  }
  return missing;
}

ObjectTable::Stats ObjectTable::stats() const {
  absl::MutexLock lock(&mu_);
  return {static_cast<int64_t>(objects_.size()), bytes_, spilled_objects_,
          spilled_bytes_};
}

}  // namespace miniray
