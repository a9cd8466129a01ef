#include "runtime/client/program_packages.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/actor/plugins.h"
#include "runtime/base/backoff.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"
#include "runtime/packages/upload.h"

namespace miniray {
namespace internal {
namespace {

// Not by its path: the file may have been rebuilt since the program started.
constexpr char kProgram[] = "/proc/self/exe";
constexpr char kWhat[] = "this program";

}  // namespace

absl::Status ProgramPackages::AddTo(v1::ActorSpec* spec) {
  absl::MutexLock lock(&mu_);
  MR_ASSIGN_OR_RETURN(const std::string name, Name());
  if (package_id_.empty()) {
    MR_ASSIGN_OR_RETURN(const std::string id, Sha256OfFile(kProgram));
    MR_RETURN_IF_ERROR(Upload(kProgram, kWhat, id));
    package_id_ = id;
  }
  spec->set_package_id(package_id_);
  spec->set_package_name(name);
  for (const PluginFile& plugin : ProgramPlugins()) {
    std::string id = plugin.package_id;
    if (id.empty()) {
      id = plugin_ids_[plugin.path];
      if (id.empty()) {
        MR_ASSIGN_OR_RETURN(id, Sha256OfFile(plugin.path));
        MR_RETURN_IF_ERROR(Upload(plugin.path, plugin.name, id));
        plugin_ids_[plugin.path] = id;
      }
    }
    v1::Plugin* const added = spec->add_plugins();
    added->set_package_id(std::move(id));
    added->set_name(ToUtf8(plugin.name));
  }
  return absl::OkStatus();
}

absl::Status ProgramPackages::SendAgain(const v1::ActorSpec& spec) {
  return Upload(kProgram, kWhat, spec.package_id());
}

absl::StatusOr<std::string> ProgramPackages::ProgramName() {
  absl::MutexLock lock(&mu_);
  return Name();
}

absl::StatusOr<std::string> ProgramPackages::Name() {
  if (name_.empty()) {
    MR_ASSIGN_OR_RETURN(const std::string path, ExecutablePath());
    name_ = std::filesystem::path(path).filename().string();
  }
  return name_;
}

absl::Status ProgramPackages::Upload(const std::string& path,
                                     const std::string& what,
                                     const std::string& id) {
  v1::HasPackageRequest request;
  request.set_package_id(id);
  v1::HasPackageResponse response;
  const absl::Time deadline = absl::Now() + head_->reconnect_timeout();
  Backoff backoff(kFirstHeadPause, kMaxHeadPause);
  absl::Status status;
  bool again = true;
  while (again) {
    MR_RETURN_IF_ERROR(
        head_->Ask(&v1::Head::Stub::HasPackage, request, &response));
    if (response.present()) return absl::OkStatus();
    status = UploadPackage(head_->stub(), head_->token(), path, id);
    again = false;
    // What a head had of it when it was killed counts for nothing.
    if (absl::IsUnavailable(status)) {
      MR_ASSIGN_OR_RETURN(again, head_->Pause(&backoff, deadline));
    }
  }
  return Annotate(status, absl::StrCat("send ", what, " to the head at ",
                                       head_->address()));
}

}  // namespace internal
}  // namespace miniray
