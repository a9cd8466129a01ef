#include "runtime/objects/object_table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

constexpr size_t kMaxIdBytes = 256;
// Stores that an object remembers to have been copied to.
constexpr size_t kMaxReaders = 16384;
// Jobs of which nothing is taken any more; older ones are forgotten.
constexpr size_t kMaxEndedJobs = 4096;

}  // namespace

absl::StatusOr<std::unique_ptr<ObjectTable::Incoming>> ObjectTable::Begin(
    std::string id, std::string job_id, int64_t total_bytes, bool is_copy) {
  if (id.empty() || id.size() > kMaxIdBytes || job_id.size() > kMaxIdBytes ||
      total_bytes < 0) {
    return absl::InvalidArgumentError(
        "an object needs an id and its size, at the beginning");
  }
  auto incoming = std::make_unique<Incoming>();
  {
    absl::MutexLock lock(&mu_);
    if (ended_jobs_.find(job_id) != ended_jobs_.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the job ", job_id, " has ended"));
    }
    if (objects_.find(id) != objects_.end() ||
        incoming_.find(id) != incoming_.end()) {
      return absl::AlreadyExistsError("the object is here already");
    }
    MakeRoom(total_bytes);
    if (total_bytes > max_bytes_ - bytes_ ||
        objects_.size() + incoming_.size() >= max_objects_) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the node's object store has no room for ", total_bytes,
          " bytes: it holds ", bytes_, " of ", max_bytes_, " bytes in ",
          objects_.size(), " of ", max_objects_,
          " objects; drop references to objects that are needed no more, or "
          "start the node with a larger --object_store_bytes"));
    }
    bytes_ += total_bytes;
    incoming_.emplace(id, false);
  }
  incoming->id = std::move(id);
  incoming->job_id = std::move(job_id);
  incoming->total_bytes = total_bytes;
  incoming->is_copy = is_copy;
  absl::StatusOr<std::unique_ptr<MemoryFile>> file = MemoryFile::Create();
  if (!file.ok()) {
    Abandon(std::move(incoming));
    return file.status();
  }
  incoming->file = *std::move(file);
  return incoming;
}

absl::Status ObjectTable::Append(Incoming* incoming, absl::string_view bytes) {
  if (static_cast<int64_t>(bytes.size()) >
      incoming->total_bytes - incoming->file->size()) {
    return absl::InvalidArgumentError(
        "more bytes of an object came than were announced");
  }
  return incoming->file->Append(bytes);
}

absl::Status ObjectTable::Finish(std::unique_ptr<Incoming> incoming) {
  absl::Status status;
  if (incoming->file->size() != incoming->total_bytes) {
    status = absl::InvalidArgumentError(
        absl::StrCat("of an object of ", incoming->total_bytes, " bytes came ",
                     incoming->file->size()));
  }
  if (status.ok()) status = incoming->file->Seal();
  if (status.ok()) {
    absl::MutexLock lock(&mu_);
    auto it = incoming_.find(incoming->id);
    if (!it->second &&
        ended_jobs_.find(incoming->job_id) == ended_jobs_.end()) {
      incoming_.erase(it);
      Object& object = objects_[incoming->id];
      object.job_id = incoming->job_id;
      object.is_copy = incoming->is_copy;
      object.last_use = ++uses_;
      object.file = std::move(incoming->file);
      return absl::OkStatus();
    }
    status = absl::CancelledError("the object was freed while it came");
  }
  Abandon(std::move(incoming));
  return status;
}

void ObjectTable::Abandon(std::unique_ptr<Incoming> incoming) {
  absl::MutexLock lock(&mu_);
  incoming_.erase(incoming->id);
  bytes_ -= incoming->total_bytes;
}

absl::StatusOr<std::shared_ptr<const MemoryFile>> ObjectTable::Find(
    absl::string_view id, const std::string& reader) {
  absl::MutexLock lock(&mu_);
  auto it = objects_.find(id);
  if (it == objects_.end()) {
    return absl::NotFoundError(
        absl::StrCat("the object ", id,
                     " was freed (the last reference to it in the "
                     "process that put it is gone, or its job has ended)"));
  }
  it->second.last_use = ++uses_;
  if (!reader.empty() && it->second.readers.size() < kMaxReaders) {
    it->second.readers.insert(reader);
  }
  return it->second.file;
}

bool ObjectTable::Await(const std::string& id,
                        const std::function<bool()>& give_up) {
  absl::MutexLock lock(&mu_);
  auto settled = [&] {
    mu_.AssertHeld();
    return awaited_.find(id) == awaited_.end() &&
           incoming_.find(id) == incoming_.end();
  };
  while (!mu_.AwaitWithTimeout(absl::Condition(&settled),
                               absl::Milliseconds(500))) {
    if (give_up()) return true;
  }
  if (objects_.find(id) != objects_.end()) return true;
  awaited_.insert(id);
  return false;
}

void ObjectTable::Settle(const std::string& id) {
  absl::MutexLock lock(&mu_);
  awaited_.erase(id);
}

std::map<std::string, std::vector<std::string>> ObjectTable::Free(
    const std::vector<std::string>& ids) {
  std::map<std::string, std::vector<std::string>> copies;
  absl::MutexLock lock(&mu_);
  for (const std::string& id : ids) {
    if (auto it = incoming_.find(id); it != incoming_.end()) it->second = true;
    auto it = objects_.find(id);
    if (it == objects_.end()) continue;
    for (const std::string& reader : it->second.readers) {
      copies[reader].push_back(id);
    }
    Erase(id);
  }
  return copies;
}

void ObjectTable::EndJob(absl::string_view job_id) {
  absl::MutexLock lock(&mu_);
  if (ended_jobs_.size() >= kMaxEndedJobs) ended_jobs_.clear();
  ended_jobs_.emplace(job_id);
  for (auto it = objects_.begin(); it != objects_.end();) {
    const auto next = std::next(it);
    if (it->second.job_id == job_id) Erase(it->first);
    it = next;
  }
}

void ObjectTable::MakeRoom(int64_t bytes) {
  while (bytes > max_bytes_ - bytes_ ||
         objects_.size() + incoming_.size() >= max_objects_) {
    auto oldest = objects_.end();
    for (auto it = objects_.begin(); it != objects_.end(); ++it) {
      if (it->second.is_copy &&
          (oldest == objects_.end() ||
           it->second.last_use < oldest->second.last_use)) {
        oldest = it;
      }
    }
    if (oldest == objects_.end()) return;
    Erase(std::string(oldest->first));
  }
}

void ObjectTable::Erase(const std::string& id) {
  auto it = objects_.find(id);
  bytes_ -= it->second.file->size();
  objects_.erase(it);
}

int64_t ObjectTable::objects() const {
  absl::MutexLock lock(&mu_);
  return static_cast<int64_t>(objects_.size());
}

int64_t ObjectTable::bytes() const {
  absl::MutexLock lock(&mu_);
  return bytes_;
}

}  // namespace miniray
