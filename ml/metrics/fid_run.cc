#include "ml/metrics/fid_run.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "ATen/ops/zeros.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "ml/gan/architecture.h"
#include "ml/gan/deal_out.h"
#include "ml/gan/piece_dealer.h"
#include "ml/metrics/feature_statistics.h"
#include "ml/metrics/frechet_distance.h"
#include "ml/metrics/statistics_cache.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

// Generated images in a call: enough that what a result costs does not matter,
// few enough that slow workers do not keep others waiting at the end.
constexpr int64_t kPiece = 8 * FidWorker::kBatch;
// How far workers may be ahead of the piece that is to be merged next.
constexpr int64_t kWindowPerWorker = 2;
// Parts of the real images, where small ones cost no more: enough that progress
// shows, and that slow workers take fewer.
constexpr int64_t kShardsPerWorker = 8;

// Shows how many images are done.
class Progress {
 public:
  Progress(ProgressBar* bar, std::string what)
      : bar_(*bar), what_(std::move(what)), start_(absl::Now()) {}

  // fraction: of all of them. images: so many.
  void Show(double fraction, int64_t images) {
    bar_.Update(
        fraction, what_,
        absl::StrFormat("%d  %.0f/s  %s", images,
                        static_cast<double>(images) / std::max(seconds(), 1e-9),
                        time_left_.Text(fraction, absl::Now())));
  }

  double seconds() const { return absl::ToDoubleSeconds(absl::Now() - start_); }

 private:
  ProgressBar& bar_;
  const std::string what_;
  const absl::Time start_;
  TimeLeft time_left_;
};

// Who computes statistics.
class Team {
 public:
  virtual ~Team() = default;

  virtual absl::StatusOr<std::string> Identity() = 0;
  virtual absl::StatusOr<FeatureStatistics> Real(Progress* progress) = 0;
  virtual absl::StatusOr<FeatureStatistics> Generated(Progress* progress) = 0;
};

// This process.
class LocalTeam : public Team {
 public:
  explicit LocalTeam(const FidRunOptions& options) : options_(options) {}

  absl::Status Start(const std::string& generator) {
    MR_RETURN_IF_ERROR(worker_.LoadExtractor(options_.extractor));
    return worker_.LoadGenerator(generator, "the generator");
  }

  absl::StatusOr<std::string> Identity() override {
    return worker_.Identity(options_.data);
  }

  absl::StatusOr<FeatureStatistics> Real(Progress* progress) override {
    ShowOn(progress);
    return worker_.RealStatistics(options_.data, 0, 1);
  }

  absl::StatusOr<FeatureStatistics> Generated(Progress* progress) override {
    ShowOn(progress);
    return worker_.GeneratedStatistics(options_.seed, 0, options_.count);
  }

 private:
  void ShowOn(Progress* progress) {
    worker_.set_on_progress([progress](int64_t done, int64_t of) {
      progress->Show(static_cast<double>(done) / static_cast<double>(of), done);
    });
  }

  const FidRunOptions& options_;
  FidWorker worker_;
};

// Merges statistics in the order of their pieces, so that rounding does not
// depend on who is done first.
class OrderedMerge {
 public:
  absl::Status Add(int64_t index, FeatureStatistics statistics) {
    early_.emplace(index, std::move(statistics));
    while (!early_.empty() && early_.begin()->first == next_) {
      MR_RETURN_IF_ERROR(merged_.Merge(early_.begin()->second));
      early_.erase(early_.begin());
      ++next_;
    }
    return absl::OkStatus();
  }

  const FeatureStatistics& merged() const { return merged_; }

 private:
  FeatureStatistics merged_;
  int64_t next_ = 0;
  std::map<int64_t, FeatureStatistics> early_;
};

// Workers on a cluster.
class ClusterTeam : public Team {
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

  absl::StatusOr<FeatureStatistics> Real(Progress* progress) override {
    const absl::StatusOr<int64_t> unpacked =
        AskAny<&FidWorker::CountUnpacked, int64_t>();
    MR_RETURN_IF_ERROR(unpacked.status());
    // Of any other data, a worker would read all of it for each part.
    int64_t shards = options_.workers;
    if (*unpacked > 0) {
      shards =
          std::clamp<int64_t>(*unpacked / FidWorker::kBatch, 1,
                              kShardsPerWorker * int64_t{options_.workers});
    }
    // A piece is a shard, which a worker may hold in memory: one at a time.
    PieceDealer dealer({.items = shards,
                        .workers = options_.workers,
                        .per_worker = 1,
                        .window = kWindowPerWorker * options_.workers});
    return Gather(&dealer, progress,
                  [this, shards](int worker, const Piece& piece) {
                    return at(worker).Call<&FidWorker::RealStatistics>(
                        options_.data, static_cast<int>(piece.index),
                        static_cast<int>(shards));
                  });
  }

  absl::StatusOr<FeatureStatistics> Generated(Progress* progress) override {
    PieceDealer dealer({.items = options_.count,
                        .piece_size = kPiece,
                        .workers = options_.workers,
                        .window = kWindowPerWorker * options_.workers});
    return Gather(&dealer, progress, [this](int worker, const Piece& piece) {
      return at(worker).Call<&FidWorker::GeneratedStatistics>(
          options_.seed, piece.first, piece.count);
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

  absl::StatusOr<FeatureStatistics> Gather(
      PieceDealer* dealer, Progress* progress,
      const std::function<ObjectRef<FeatureStatistics>(int, const Piece&)>&
          call) {
    OrderedMerge merge;
    int64_t pieces = 0;
    int64_t images = 0;
    MR_RETURN_IF_ERROR(DealOut<FeatureStatistics>(
        dealer, call,
        [&](const Piece& piece, FeatureStatistics statistics) -> absl::Status {
          images += statistics.count;
          progress->Show(static_cast<double>(++pieces) /
                             static_cast<double>(dealer->num_pieces()),
                         images);
          return merge.Add(piece.index, std::move(statistics));
        }));
    return merge.merged();
  }

  const FidRunOptions& options_;
  std::vector<ActorHandle<FidWorker>> workers_;
};

// Statistics of the real images: those in the cache, or new ones, which go
// there. shape: of generated images.
absl::StatusOr<FeatureStatistics> RealStatistics(const ImageShape& shape,
                                                 const FidRunOptions& options,
                                                 Team* team, ProgressBar* bar,
                                                 bool* from_cache) {
  std::string key;  // Empty: nothing is looked up and nothing kept.
  if (!options.cache_dir.empty()) {
    const absl::StatusOr<std::string> data = team->Identity();
    if (data.ok()) {
      // With the shape, so that those of images of another one are not found.
      key = absl::StrCat(*data, ", images of ", shape.ToString(), "; ",
                         ExtractorIdentity(options.extractor));
    } else {
      bar->Print(absl::StrCat(
          "Warning: statistics of the real images cannot be kept: ",
          data.status().message()));
    }
  }
  if (!key.empty()) {
    absl::StatusOr<FeatureStatistics> cached =
        LoadStatistics(options.cache_dir, key);
    if (cached.ok()) {
      *from_cache = true;
      bar->Print(absl::StrCat("Real images: ", cached->count, ", from ",
                              StatisticsPath(options.cache_dir, key)));
      return cached;
    }
    if (!absl::IsNotFound(cached.status())) {
      bar->Print(absl::StrCat(
          "Warning: statistics of an earlier run: ", cached.status().message(),
          "; they are computed anew"));
    }
  }
  Progress progress(bar, "real images");
  MR_ASSIGN_OR_RETURN(FeatureStatistics statistics, team->Real(&progress));
  bar->Print(absl::StrFormat("Real images: %d, %.1f s", statistics.count,
                             progress.seconds()));
  if (!key.empty()) {
    const absl::Status stored =
        StoreStatistics(options.cache_dir, key, statistics);
    if (!stored.ok()) {
      bar->Print(absl::StrCat("Warning: the statistics cannot be kept: ",
                              stored.message()));
    }
  }
  return statistics;
}

absl::StatusOr<std::unique_ptr<Team>> StartTeam(const GanModel& model,
                                                const FidRunOptions& options) {
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

absl::StatusOr<Gaussian> GaussianOf(const FeatureStatistics& statistics,
                                    absl::string_view whose) {
  absl::StatusOr<at::Tensor> covariance = statistics.Covariance();
  if (!covariance.ok()) return Annotate(covariance.status(), whose);
  return Gaussian{.mean = statistics.mean,
                  .covariance = *std::move(covariance)};
}

// Checks that the extractor takes images of that shape, so that what is wrong
// is known before there are workers. Returns the name of its distance.
absl::StatusOr<std::string> CheckExtractor(const ExtractorFile& file,
                                           const ImageShape& shape) {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<FeatureExtractor> extractor,
                      FeatureExtractor::Create(file));
  const at::Tensor black =
      at::zeros({2, shape.channels, shape.height, shape.width}, at::kByte);
  const absl::Status fits = extractor->Extract(black).status();
  if (!fits.ok()) {
    return Annotate(fits, absl::StrCat(file.name, ": images of the generator"));
  }
  return extractor->DistanceName();
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
  FidResult result;
  MR_ASSIGN_OR_RETURN(result.name,
                      CheckExtractor(options.extractor, model.shape));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Team> team,
                      StartTeam(model, options));
  MR_ASSIGN_OR_RETURN(const FeatureStatistics real,
                      RealStatistics(model.shape, options, team.get(), bar,
                                     &result.from_cache));
  Progress progress(bar, "generated images");
  MR_ASSIGN_OR_RETURN(const FeatureStatistics generated,
                      team->Generated(&progress));
  bar->Print(absl::StrFormat("Generated images: %d, %.1f s", generated.count,
                             progress.seconds()));
  result.real_images = real.count;
  result.generated_images = generated.count;
  result.features = generated.num_features();
  const int64_t fewest = std::min(real.count, generated.count);
  if (fewest <= result.features) {
    bar->Print(absl::StrCat(
        "Warning: ", fewest, " images for ", result.features,
        " features: the distance is too large, and only to be compared with "
        "others of as many images"));
  }
  MR_ASSIGN_OR_RETURN(const Gaussian a, GaussianOf(real, "real images"));
  MR_ASSIGN_OR_RETURN(const Gaussian b,
                      GaussianOf(generated, "generated images"));
  MR_ASSIGN_OR_RETURN(result.distance, FrechetDistance(a, b));
  return result;
}

}  // namespace

absl::StatusOr<FidResult> RunFid(const GanModel& model,
                                 const FidRunOptions& options,
                                 ProgressBar* bar) {
  try {
    return Run(model, options, bar);
  } catch (const std::exception& error) {
    // LibTorch adds a backtrace.
    const std::string text = error.what();
    return absl::InternalError(text.substr(0, text.find('\n')));
  }
}

}  // namespace miniray::ml
