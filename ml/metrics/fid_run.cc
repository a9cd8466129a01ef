#include "ml/metrics/fid_run.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ml/data/exception_text.h"
#include "ml/gan/piece_dealer.h"
#include "ml/metrics/extract_statistics.h"
#include "ml/metrics/feature_statistics.h"
#include "ml/metrics/fid_team.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

// Parts of the real images, where small ones cost no more: enough that progress
// shows, and that slow workers take fewer.
constexpr int64_t kShardsPerWorker = 8;

// This process.
class LocalTeam : public FidTeam {
 public:
  explicit LocalTeam(const FidRunOptions& options) : options_(options) {}

  absl::Status Start(const std::string& generator) {
    MR_RETURN_IF_ERROR(worker_.LoadExtractor(options_.extractor));
    return worker_.LoadGenerator(generator, "the generator");
  }

  absl::StatusOr<std::string> Identity() override {
    return worker_.Identity(options_.data);
  }

  absl::StatusOr<FeatureStatistics> Real(FidProgress* progress) override {
    ShowOn(progress);
    return worker_.RealStatistics(options_.data, 0, 1);
  }

  absl::StatusOr<FeatureStatistics> Generated(uint64_t seed, int64_t count,
                                              FidProgress* progress) override {
    ShowOn(progress);
    return worker_.GeneratedStatistics(seed, 0, count);
  }

 private:
  void ShowOn(FidProgress* progress) {
    worker_.set_on_progress([progress](int64_t done, int64_t of) {
      progress->Show(static_cast<double>(done) / static_cast<double>(of), done);
    });
  }

  const FidRunOptions& options_;
  FidWorker worker_;
};

// Workers on a cluster.
class ClusterTeam : public FidTeam {
 public:
  explicit ClusterTeam(const FidRunOptions& options) : options_(options) {}
  ~ClusterTeam() override {
    for (const auto& worker : workers_) worker.Kill().IgnoreError();
  }

  absl::Status Start(const std::string& generator) {
    // Once, however many workers a machine has.
    const ObjectRef<ExtractorFile> extractor_file =
        options_.cluster->Put(options_.extractor);
    const ObjectRef<std::string> generator_file =
        options_.cluster->Put(generator);
    std::vector<ObjectRef<void>> loading;
    for (int i = 0; i < options_.workers; ++i) {
      ActorOptions actor;
      actor.resources.cpu = options_.cpus_per_worker;
      MR_ASSIGN_OR_RETURN(ActorHandle<FidWorker> worker,
                          options_.cluster->CreateActor<FidWorker>(actor));
      loading.push_back(worker.Call<&FidWorker::LoadExtractor>(extractor_file));
      loading.push_back(worker.Call<&FidWorker::LoadGenerator>(
          generator_file, std::string("the generator")));
      workers_.push_back(std::move(worker));
    }
    for (size_t i = 0; i < workers_.size(); ++i) {
      const std::string name = absl::StrCat("worker ", i);
      MR_RETURN_IF_ERROR(
          Annotate(workers_[i].WaitReady(options_.start_timeout), name));
      MR_RETURN_IF_ERROR(Annotate(loading[2 * i].Get(), name));
      MR_RETURN_IF_ERROR(Annotate(loading[2 * i + 1].Get(), name));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Identity() override {
    return AskAny<&FidWorker::Identity, std::string>();
  }

  absl::StatusOr<FeatureStatistics> Real(FidProgress* progress) override {
    const absl::StatusOr<int64_t> unpacked =
        AskAny<&FidWorker::CountUnpacked, int64_t>();
    MR_RETURN_IF_ERROR(unpacked.status());
    // Of any other data, a worker would read all of it for each part.
    int64_t shards = options_.workers;
    if (*unpacked > 0) {
      shards =
          std::clamp<int64_t>(*unpacked / kFeatureBatch, 1,
                              kShardsPerWorker * int64_t{options_.workers});
    }
    // A piece is a shard, which a worker may hold in memory: one at a time.
    PieceDealer dealer({.items = shards,
                        .workers = options_.workers,
                        .per_worker = 1,
                        .window = kFidWindowPerWorker * options_.workers});
    return GatherStatistics(
        &dealer, progress, [this, shards](int worker, const Piece& piece) {
          return at(worker).Call<&FidWorker::RealStatistics>(
              options_.data, static_cast<int>(piece.index),
              static_cast<int>(shards));
        });
  }

  absl::StatusOr<FeatureStatistics> Generated(uint64_t seed, int64_t count,
                                              FidProgress* progress) override {
    return GatherGenerated(
        count, options_.workers, progress,
        [this, seed](int worker, const Piece& piece) {
          return at(worker).Call<&FidWorker::GeneratedStatistics>(
              seed, piece.first, piece.count);
        });
  }

 private:
  const ActorHandle<FidWorker>& at(int worker) const {
    return workers_[static_cast<size_t>(worker)];
  }

  // What the first living worker says of the data.
  template <auto Method, class Answer>
  absl::StatusOr<Answer> AskAny() const {
    absl::StatusOr<Answer> answer =
        workers_[0].template Call<Method>(options_.data).Get();
    for (size_t i = 1;
         i < workers_.size() && absl::IsUnavailable(answer.status()); ++i) {
      answer = workers_[i].template Call<Method>(options_.data).Get();
    }
    return answer;
  }

  const FidRunOptions& options_;
  std::vector<ActorHandle<FidWorker>> workers_;
};

absl::StatusOr<std::unique_ptr<FidTeam>> StartTeam(
    const GanModel& model, const FidRunOptions& options) {
  MR_ASSIGN_OR_RETURN(const std::string generator, SerializeGanModel(model));
  if (!options.cluster.has_value()) {
    auto team = std::make_unique<LocalTeam>(options);
    MR_RETURN_IF_ERROR(team->Start(generator));
    return team;
  }
  auto team = std::make_unique<ClusterTeam>(options);
  MR_RETURN_IF_ERROR(team->Start(generator));
  return team;
}

absl::StatusOr<FidResult> Run(const GanModel& model,
                              const FidRunOptions& options, ProgressBar* bar) {
  if (options.count < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("a distance of ", options.count,
                     " generated images; expected 2 or more"));
  }
  if (options.cluster.has_value() && options.workers < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.workers, " workers on a cluster; expected 1 or more"));
  }
  MR_ASSIGN_OR_RETURN(
      FidEvaluation evaluation,
      FidEvaluation::Create(options.extractor, model.shape, options.cache_dir));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<FidTeam> team,
                      StartTeam(model, options));
  MR_RETURN_IF_ERROR(evaluation.LoadReal(team.get(), bar));
  MR_ASSIGN_OR_RETURN(
      FidResult result,
      evaluation.Compare(team.get(), options.seed, options.count, bar));
  bar->Print(absl::StrFormat("Generated images: %d, %.1f s",
                             result.generated_images, result.seconds));
  if (const std::string warning = FewImagesWarning(result); !warning.empty()) {
    bar->Print(warning);
  }
  return result;
}

}  // namespace

absl::StatusOr<FidResult> RunFid(const GanModel& model,
                                 const FidRunOptions& options,
                                 ProgressBar* bar) {
  try {
    return Run(model, options, bar);
  } catch (const std::exception& error) {
    return absl::InternalError(FirstLine(error));
  }
}

}  // namespace miniray::ml
