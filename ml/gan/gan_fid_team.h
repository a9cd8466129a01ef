// The workers of a GAN as those who compute how far its images are from the
// real ones: each has its own images and the generator already.

#ifndef MINIRAY_ML_GAN_GAN_FID_TEAM_H_
#define MINIRAY_ML_GAN_GAN_FID_TEAM_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ml/gan/gan_worker.h"
#include "ml/metrics/feature_statistics.h"
#include "ml/metrics/fid_team.h"
#include "runtime/api/miniray.h"

namespace miniray::ml {

// One worker, in this process.
class LocalGanFidTeam : public FidTeam {
 public:
  // worker: has its data and an extractor; outlives the team.
  explicit LocalGanFidTeam(GanWorker* worker) : worker_(*worker) {}

  absl::StatusOr<std::string> Identity() override;
  absl::StatusOr<FeatureStatistics> Real(FidProgress* progress) override;
  absl::StatusOr<FeatureStatistics> Generated(uint64_t seed, int64_t count,
                                              FidProgress* progress) override;

 private:
  void ShowOn(FidProgress* progress);

  GanWorker& worker_;
};

// Workers of a trainer, between epochs. Those that generate have the same
// generator, as after a synchronisation. The images of one that dies are made
// by the others; its real ones are lost.
class GanFidTeam : public FidTeam {
 public:
  // workers: at least one; each has its data and an extractor.
  explicit GanFidTeam(std::vector<ActorHandle<GanWorker>> workers)
      : workers_(std::move(workers)) {}

  absl::StatusOr<std::string> Identity() override;
  absl::StatusOr<FeatureStatistics> Real(FidProgress* progress) override;
  absl::StatusOr<FeatureStatistics> Generated(uint64_t seed, int64_t count,
                                              FidProgress* progress) override;

 private:
  const std::vector<ActorHandle<GanWorker>> workers_;
};

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_GAN_FID_TEAM_H_
