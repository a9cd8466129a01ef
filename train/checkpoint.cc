#include "train/checkpoint.h"

#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "train/crc32c.h"

namespace miniray::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr char kPrefix[] = "checkpoint_";
constexpr char kManifest[] = "manifest.json";
constexpr char kHistory[] = "history.jsonl";
constexpr char kServer[] = "server.state";
constexpr int kFormat = 1;

std::string WorkerFolder(size_t worker) {
  return absl::StrFormat("worker_%03d", worker);
}

absl::Status Remove(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (!error) return absl::OkStatus();
  return ErrnoStatus(error.value(), absl::StrCat("remove ", path));
}

absl::Status DataLoss(const std::string& path, absl::string_view why) {
  return absl::DataLossError(
      absl::StrCat("the checkpoint ", path, " is damaged: ", why));
}

absl::Status CheckFileName(const std::string& name) {
  const bool fits = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
  });
  if (fits && !name.empty() && name[0] != '.') return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the name of a checkpoint's file must be of letters, digits, '_', '-' "
      "and '.', the last not in front; got '",
      absl::CHexEscape(name), "'"));
}

// All files but the manifest, by their path in the folder. They refer to
// `checkpoint` and `history`.
absl::StatusOr<std::map<std::string, absl::string_view>> FilesOf(
    const Checkpoint& checkpoint, const std::string& history) {
  std::map<std::string, absl::string_view> files;
  files[kHistory] = history;
  if (checkpoint.server.has_value()) files[kServer] = *checkpoint.server;
  for (size_t i = 0; i < checkpoint.workers.size(); ++i) {
    for (const auto& [name, bytes] : checkpoint.workers[i]) {
      MR_RETURN_IF_ERROR(
          Annotate(CheckFileName(name), absl::StrCat("worker ", i)));
      files[absl::StrCat(WorkerFolder(i), "/", name)] = bytes;
    }
  }
  return files;
}

absl::Status WriteFiles(const std::string& folder, size_t num_workers,
                        const std::map<std::string, absl::string_view>& files,
                        const std::string& manifest) {
  MR_RETURN_IF_ERROR(MakeDirectories(folder));
  for (size_t i = 0; i < num_workers; ++i) {
    MR_RETURN_IF_ERROR(
        MakeDirectories(absl::StrCat(folder, "/", WorkerFolder(i))));
  }
  for (const auto& [name, bytes] : files) {
    MR_RETURN_IF_ERROR(WriteToDisk(absl::StrCat(folder, "/", name), {bytes}));
  }
  MR_RETURN_IF_ERROR(
      WriteToDisk(absl::StrCat(folder, "/", kManifest), {manifest}));
  for (size_t i = 0; i < num_workers; ++i) {
    MR_RETURN_IF_ERROR(SyncToDisk(absl::StrCat(folder, "/", WorkerFolder(i))));
  }
  return SyncToDisk(folder);
}

// Throws where it is JSON of another shape.
absl::StatusOr<Json> ReadManifest(const std::string& path) {
  absl::StatusOr<std::string> text =
      ReadFile(absl::StrCat(path, "/", kManifest));
  if (!text.ok()) {
    if (absl::IsNotFound(text.status()) && fs::is_directory(path)) {
      return DataLoss(path, "it has no manifest.json");
    }
    return text.status();
  }
  Json manifest = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object()) {
    return DataLoss(path, "manifest.json is no JSON object");
  }
  if (const int format = manifest.value("format", 0); format != kFormat) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the checkpoint ", path, " is of format ", format,
        ", of another version than this; it reads format ", kFormat));
  }
  return manifest;
}

absl::StatusOr<CheckpointInfo> Describe(const std::string& path) {
  MR_ASSIGN_OR_RETURN(const Json manifest, ReadManifest(path));
  CheckpointInfo info{.path = path, .epochs = manifest.at("epochs").get<int>()};
  if (const Json& last = manifest.at("last_epoch"); !last.is_null()) {
    MR_ASSIGN_OR_RETURN(EpochResult epoch, EpochResult::FromJson(last.dump()));
    info.metrics = std::move(epoch.metrics);
  }
  for (const auto& [name, file] : manifest.at("files").items()) {
    info.bytes += file.at("bytes").get<int64_t>();
  }
  return info;
}

absl::StatusOr<Checkpoint> Read(const std::string& path) {
  MR_ASSIGN_OR_RETURN(const Json manifest, ReadManifest(path));
  Checkpoint checkpoint;
  checkpoint.needs_sync = manifest.at("needs_sync").get<bool>();
  checkpoint.workers.resize(manifest.at("workers").get<size_t>());
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : manifest.at("files").items()) {
    absl::StatusOr<std::string> bytes = ReadFile(absl::StrCat(path, "/", name));
    if (absl::IsNotFound(bytes.status())) {
      return DataLoss(path, bytes.status().message());
    }
    // It may be whole: the disk is away, or not for this user.
    if (!bytes.ok()) return bytes.status();
    if (bytes->size() != file.at("bytes").get<size_t>() ||
        Crc32c(*bytes) != file.at("crc32c").get<uint32_t>()) {
      return DataLoss(path,
                      absl::StrCat(name, " is not what was written there"));
    }
    files[name] = *std::move(bytes);
  }
  if (files.contains(kServer)) checkpoint.server = std::move(files[kServer]);
  for (size_t i = 0; i < checkpoint.workers.size(); ++i) {
    const std::string prefix = WorkerFolder(i) + "/";
    for (auto& [name, bytes] : files) {
      if (!absl::StartsWith(name, prefix)) continue;
      checkpoint.workers[i][name.substr(prefix.size())] = std::move(bytes);
    }
  }
  for (absl::string_view line :
       absl::StrSplit(files[kHistory], '\n', absl::SkipEmpty())) {
    absl::StatusOr<EpochResult> epoch = EpochResult::FromJson(line);
    if (!epoch.ok()) return DataLoss(path, epoch.status().message());
    checkpoint.history.push_back(*std::move(epoch));
  }
  if (checkpoint.epochs() != manifest.at("epochs").get<int>()) {
    return DataLoss(path, "history.jsonl has not all epochs");
  }
  return checkpoint;
}

}  // namespace

std::string CheckpointName(int epochs) {
  return absl::StrFormat("%s%06d", kPrefix, epochs);
}

std::optional<int> EpochsOfCheckpointName(const std::string& name) {
  int epochs = 0;
  if (!absl::StartsWith(name, kPrefix) ||
      !absl::SimpleAtoi(name.substr(sizeof(kPrefix) - 1), &epochs) ||
      epochs < 0 || CheckpointName(epochs) != name) {
    return std::nullopt;
  }
  return epochs;
}

absl::StatusOr<CheckpointInfo> WriteCheckpoint(const std::string& path,
                                               const Checkpoint& checkpoint) {
  const absl::Time start = absl::Now();
  std::string history;
  for (const EpochResult& epoch : checkpoint.history) {
    absl::StrAppend(&history, epoch.ToJson(), "\n");
  }
  MR_ASSIGN_OR_RETURN(const auto files, FilesOf(checkpoint, history));
  CheckpointInfo info{.path = path, .epochs = checkpoint.epochs()};
  Json manifest = {{"format", kFormat},
                   {"epochs", checkpoint.epochs()},
                   {"workers", checkpoint.workers.size()},
                   {"needs_sync", checkpoint.needs_sync},
                   {"last_epoch", nullptr},
                   {"files", Json::object()}};
  if (!checkpoint.history.empty()) {
    const EpochResult& last = checkpoint.history.back();
    info.metrics = last.metrics;
    manifest["last_epoch"] = Json::parse(last.ToJson());
  }
  for (const auto& [name, bytes] : files) {
    manifest["files"][name] = {{"bytes", bytes.size()},
                               {"crc32c", Crc32c(bytes)}};
    info.bytes += static_cast<int64_t>(bytes.size());
  }

  const std::string part = path + ".part";
  MR_RETURN_IF_ERROR(Remove(part));
  absl::Status written = WriteFiles(part, checkpoint.workers.size(), files,
                                    manifest.dump(1) + "\n");
  if (written.ok() && rename(part.c_str(), path.c_str()) != 0) {
    written = ErrnoStatus(errno, absl::StrCat("rename ", part, " to ", path));
  } else if (written.ok()) {
    written = SyncToDisk(fs::path(path).parent_path().string());
    if (!written.ok()) rename(path.c_str(), part.c_str());  // It may get lost.
  }
  if (!written.ok()) {
    Remove(part).IgnoreError();  // What went wrong is told.
    return written;
  }
  info.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  return info;
}

absl::Status CheckFileNames(const Checkpoint& checkpoint) {
  return FilesOf(checkpoint, "").status();
}

absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& path) {
  try {
    return Read(path);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory to read the checkpoint ", path));
  } catch (const std::exception& error) {
    return DataLoss(path, absl::StrCat("manifest.json: ", error.what()));
  }
}

absl::StatusOr<CheckpointInfo> DescribeCheckpoint(const std::string& path) {
  try {
    return Describe(path);
  } catch (const std::exception& error) {
    return DataLoss(path, absl::StrCat("manifest.json: ", error.what()));
  }
}

}  // namespace miniray::train
