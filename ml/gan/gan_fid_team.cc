#include "ml/gan/gan_fid_team.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "ml/gan/piece_dealer.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {

absl::StatusOr<std::string> LocalGanFidTeam::Identity() {
  return worker_.DescribeData();
}

absl::StatusOr<FeatureStatistics> LocalGanFidTeam::Real(FidProgress* progress) {
  ShowOn(progress);
  return worker_.RealStatistics();
}

absl::StatusOr<FeatureStatistics> LocalGanFidTeam::Generated(
    uint64_t seed, int64_t count, FidProgress* progress) {
  ShowOn(progress);
  MR_RETURN_IF_ERROR(worker_.SnapshotGenerator());
  return worker_.GeneratedStatistics(seed, 0, count);
}

void LocalGanFidTeam::ShowOn(FidProgress* progress) {
  worker_.set_on_images([progress](int64_t done, int64_t of) {
    progress->Show(static_cast<double>(done) / static_cast<double>(of), done);
  });
}

absl::StatusOr<std::string> GanFidTeam::Identity() {
  return workers_[0].Call<&GanWorker::DescribeData>().Get();
}

absl::StatusOr<FeatureStatistics> GanFidTeam::Real(FidProgress* progress) {
  std::vector<ObjectRef<FeatureStatistics>> parts;
  for (const ActorHandle<GanWorker>& worker : workers_) {
    parts.push_back(worker.Call<&GanWorker::RealStatistics>());
  }
  FeatureStatistics merged;
  for (size_t i = 0; i < parts.size(); ++i) {
    absl::StatusOr<FeatureStatistics> part = std::move(parts[i]).Get();
    MR_RETURN_IF_ERROR(Annotate(part.status(), absl::StrCat("worker ", i)));
    MR_RETURN_IF_ERROR(merged.Merge(*part));
    progress->Show(
        static_cast<double>(i + 1) / static_cast<double>(parts.size()),
        merged.count);
  }
  return merged;
}

absl::StatusOr<FeatureStatistics> GanFidTeam::Generated(uint64_t seed,
                                                        int64_t count,
                                                        FidProgress* progress) {
  std::vector<ObjectRef<void>> copies;
  for (const ActorHandle<GanWorker>& worker : workers_) {
    copies.push_back(worker.Call<&GanWorker::SnapshotGenerator>());
  }
  // Without those that have died since the epoch.
  std::vector<ActorHandle<GanWorker>> ready;
  absl::Status failure;
  for (size_t i = 0; i < copies.size(); ++i) {
    const absl::Status copied = copies[i].Get();
    if (copied.ok()) ready.push_back(workers_[i]);
    failure.Update(Annotate(copied, absl::StrCat("worker ", i)));
  }
  if (ready.empty()) return failure;
  return GatherGenerated(count, static_cast<int>(ready.size()), progress,
                         [&ready, seed](int worker, const Piece& piece) {
                           return ready[static_cast<size_t>(worker)]
                               .Call<&GanWorker::GeneratedStatistics>(
                                   seed, piece.first, piece.count);
                         });
}

}  // namespace miniray::ml
