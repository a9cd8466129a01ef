// How objects leave memory for others, and come back.

#include <glog/logging.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"
#include "runtime/objects/object_table.h"

namespace miniray {
namespace {

// What is being sent ends without a word.
constexpr absl::Duration kLook = absl::Milliseconds(20);

absl::Status GivenUp() { return absl::CancelledError("the caller is gone"); }

}  // namespace

absl::Status ObjectTable::Reserve(int64_t bytes, const GiveUp& give_up) {
  if (bytes > options_.max_bytes) return NoRoom(bytes, absl::OkStatus());
  const absl::Time deadline = absl::Now() + options_.patience;
  absl::Status disk;  // Why nothing can be spilled.
  auto too_many = [this] {
    mu_.AssertHeld();
    return objects_.size() + incoming_.size() > options_.max_objects;
  };
  while (bytes > options_.max_bytes - bytes_ || too_many()) {
    // Spilled ones are open files as well.
    const bool copies_only =
        options_.spill == nullptr || !disk.ok() || too_many();
    const auto it = Oldest(copies_only);
    if (it != objects_.end()) {
      if (!it->second.source.empty()) {
        Copies ignored;  // They have copies of what another store has.
        Erase(it, &ignored);
      } else if (it->second.disk != nullptr) {
        LeaveMemory(it);
      } else {
        disk = Spill(it->first);
      }
      continue;
    }
    if (!MemoryIsInUse() || absl::Now() >= deadline) {
      return NoRoom(bytes, disk);
    }
    if (give_up()) return GivenUp();
    changed_.WaitWithTimeout(&mu_, kLook);
  }
  bytes_ += bytes;
  return absl::OkStatus();
}

ObjectTable::Objects::iterator ObjectTable::Oldest(bool copies_only) {
  for (const auto& [use, id] : in_memory_) {
    const auto it = objects_.find(id);
    const Object& object = it->second;
    if (object.moving || object.memory.use_count() > 1) continue;
    if (copies_only && object.source.empty() && object.disk == nullptr) {
      continue;
    }
    return it;
  }
  return objects_.end();
}

bool ObjectTable::MemoryIsInUse() {
  for (const auto& [id, coming] : incoming_) {
    if (coming.file != nullptr) return true;
  }
  for (const auto& [use, id] : in_memory_) {
    const Object& object = objects_.find(id)->second;
    if (object.moving || object.memory.use_count() > 1) return true;
  }
  return false;
}

absl::Status ObjectTable::Spill(const std::string& name) {
  const std::string id = name;  // It may be freed meanwhile.
  auto it = objects_.find(id);
  const std::shared_ptr<const MemoryFile> memory = it->second.memory;
  it->second.moving = true;
  if (spilled_objects_ == 0) {
    LOG(INFO) << "the object store is full (" << bytes_ << " of "
              << options_.max_bytes << " bytes): objects go to the folder "
              << options_.spill->path();
  }
  mu_.Unlock();
  auto file = options_.spill->Write(*memory);
  mu_.Lock();
  changed_.SignalAll();
  it = objects_.find(id);
  const bool here = it != objects_.end() && it->second.memory == memory;
  if (here) it->second.moving = false;
  if (!file.ok()) {
    LOG(WARNING) << file.status().message();
    return file.status();
  }
  if (!here) return absl::OkStatus();
  it->second.disk = *std::move(file);
  ++spilled_objects_;
  spilled_bytes_ += it->second.size;
  // Ours, and the table's: if somebody reads it by now, it stays.
  if (memory.use_count() == 2) LeaveMemory(it);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const MemoryFile>> ObjectTable::FindInMemory(
    const std::string& id, const GiveUp& give_up) {
  absl::MutexLock lock(&mu_);
  while (true) {
    const auto it = objects_.find(id);
    if (it == objects_.end()) {
      return absl::NotFoundError(absl::StrCat("the object ", id, " was freed"));
    }
    Use(it);
    if (it->second.memory != nullptr) return it->second.memory;
    if (it->second.moving) {
      changed_.WaitWithTimeout(&mu_, kLook);
      if (give_up()) return GivenUp();
      continue;
    }
    MR_RETURN_IF_ERROR(Restore(id, give_up));
  }
}

absl::Status ObjectTable::Restore(const std::string& id,
                                  const GiveUp& give_up) {
  auto it = objects_.find(id);
  const std::shared_ptr<const SpillFile> disk = it->second.disk;
  it->second.moving = true;
  absl::Status status = Reserve(disk->size(), give_up);
  std::shared_ptr<MemoryFile> memory;
  if (status.ok()) {
    mu_.Unlock();
    absl::StatusOr<std::shared_ptr<MemoryFile>> created =
        MemoryFile::Create(disk->size());
    status = created.status();
    if (status.ok()) {
      memory = *std::move(created);
      status = disk->CopyTo(memory.get());
    }
    if (status.ok()) status = memory->Seal();
    mu_.Lock();
    it = objects_.find(id);
    if (!status.ok() || it == objects_.end() || it->second.disk != disk) {
      bytes_ -= disk->size();
    }
  }
  changed_.SignalAll();
  it = objects_.find(id);
  if (it == objects_.end() || it->second.disk != disk) {
    return absl::OkStatus();  // Freed meanwhile; the caller will see.
  }
  it->second.moving = false;
  MR_RETURN_IF_ERROR(status);
  it->second.memory = std::move(memory);
  Use(it);
  return absl::OkStatus();
}

void ObjectTable::LeaveMemory(Objects::iterator it) {
  bytes_ -= it->second.size;
  in_memory_.erase(it->second.last_use);
  it->second.memory.reset();
  changed_.SignalAll();
}

void ObjectTable::LeaveDisk(Object* object) {
  if (object->disk == nullptr) return;
  --spilled_objects_;
  spilled_bytes_ -= object->size;
  object->disk.reset();
}

absl::Status ObjectTable::NoRoom(int64_t bytes, const absl::Status& why) const {
  std::string text = absl::StrCat(
      "the node's object store has no room for ", bytes, " bytes: it holds ",
      bytes_, " of ", options_.max_bytes, " bytes in ", objects_.size(), " of ",
      options_.max_objects, " objects");
  if (options_.spill != nullptr) {
    absl::StrAppend(&text, ", and ", spilled_bytes_, " bytes in its folder ",
                    options_.spill->path());
  }
  if (!why.ok()) absl::StrAppend(&text, "; ", why.message());
  absl::StrAppend(&text,
                  "; drop references to objects that are needed no more, or "
                  "start the node with a larger --object_store_bytes");
  if (options_.spill != nullptr) {
    absl::StrAppend(&text, ", or an --object_spill_dir with more space");
  }
  return absl::ResourceExhaustedError(text);
}

}  // namespace miniray
