#include "ml/gan/generation_run.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "ml/gan/generator_worker.h"
#include "ml/gan/image_generator.h"
#include "ml/image/grid.h"
#include "ml/image/png.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

// A worker computes one batch while the results of the other travel.
constexpr size_t kBatchesPerWorker = 2;

struct Batch {
  int64_t first = 0;
  int64_t count = 0;
};

// Takes batches of images in any order and writes them.
class ImageSink {
 public:
  ImageSink(const GanModel& model, const GenerationRunOptions& options,
            ProgressBar* bar)
      : options_(options),
        bar_(*bar),
        digits_(std::max<int>(
            3, static_cast<int>(absl::StrCat(options.num_images - 1).size()))),
        start_(absl::Now()),
        grid_(at::zeros(
            {std::min(options.num_images, MaxGridImages(options)),
             model.shape.channels, model.shape.height, model.shape.width},
            at::kByte)) {}

  // images: uint8 [n, C, H, W], numbers first to first + n - 1.
  absl::Status Write(int64_t first, const at::Tensor& images) {
    for (int64_t i = 0; i < images.size(0); ++i) {
      MR_RETURN_IF_ERROR(
          WritePng(absl::StrFormat("%s/image_%0*d.png", options_.output,
                                   digits_, first + i),
                   images[i]));
      if (first + i < grid_.size(0)) grid_[first + i].copy_(images[i]);
    }
    done_ += images.size(0);
    const double seconds =
        std::max(absl::ToDoubleSeconds(absl::Now() - start_), 1e-9);
    bar_.Update(
        static_cast<double>(done_) / static_cast<double>(options_.num_images),
        "images",
        absl::StrFormat("%d/%d  %.0f images/s", done_, options_.num_images,
                        static_cast<double>(done_) / seconds));
    return absl::OkStatus();
  }

  absl::Status WriteGrid(const std::string& path) const {
    return SaveImageGrid(path, grid_, options_.columns);
  }

  bool complete() const { return done_ == options_.num_images; }

 private:
  static int64_t MaxGridImages(const GenerationRunOptions& options) {
    return int64_t{options.columns} * options.columns;
  }

  const GenerationRunOptions& options_;
  ProgressBar& bar_;
  const int digits_;
  const absl::Time start_;
  at::Tensor grid_;  // The first images.
  int64_t done_ = 0;
};

std::deque<Batch> MakeBatches(const GenerationRunOptions& options) {
  std::deque<Batch> batches;
  for (int64_t first = 0; first < options.num_images;
       first += options.batch_size) {
    batches.push_back(
        {first, std::min(options.batch_size, options.num_images - first)});
  }
  return batches;
}

absl::Status GenerateHere(const GanModel& model,
                          const GenerationRunOptions& options,
                          ImageSink* sink) {
  // As in a worker, so that the images are the same.
  at::set_num_threads(1);
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<ImageGenerator> generator,
                      ImageGenerator::Create(model, options.label));
  for (const Batch& batch : MakeBatches(options)) {
    MR_RETURN_IF_ERROR(sink->Write(
        batch.first,
        ToUint8(generator->Generate(options.seed, batch.first, batch.count))));
  }
  return absl::OkStatus();
}

class Distributor {
 public:
  Distributor(const GanModel& model, const GenerationRunOptions& options,
              ImageSink* sink)
      : model_(model),
        options_(options),
        sink_(*sink),
        waiting_(MakeBatches(options)) {}

  ~Distributor() {
    for (const auto& worker : workers_) worker.Kill().IgnoreError();
  }

  absl::Status Run() {
    MR_RETURN_IF_ERROR(StartWorkers());
    while (!sink_.complete()) {
      Deal();
      if (running_.empty()) return last_error_;
      std::vector<ObjectRef<at::Tensor>> refs;
      for (const Running& running : running_) refs.push_back(running.images);
      const std::vector<size_t> ready = Wait(refs, 1);
      // From the back, so that the indices stay right.
      for (size_t i = ready.size(); i-- > 0;) {
        const Running done = running_[ready[i]];
        running_.erase(running_.begin() + static_cast<int64_t>(ready[i]));
        MR_RETURN_IF_ERROR(Take(done));
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Running {
    size_t worker = 0;
    Batch batch;
    ObjectRef<at::Tensor> images;
  };

  absl::Status StartWorkers() {
    // No more than there is work for.
    const size_t count =
        std::min(static_cast<size_t>(options_.workers), waiting_.size());
    std::vector<ObjectRef<void>> loading;
    for (size_t i = 0; i < count; ++i) {
      ActorOptions actor;
      actor.resources.cpu = options_.cpus_per_worker;
      actor.num_threads = 1;
      MR_ASSIGN_OR_RETURN(
          ActorHandle<GeneratorWorker> worker,
          options_.cluster->CreateActor<GeneratorWorker>(actor));
      loading.push_back(worker.Call<&GeneratorWorker::Load>(
          model_.sizes(), options_.label, model_.weights));
      workers_.push_back(std::move(worker));
    }
    alive_.assign(workers_.size(), true);
    for (size_t i = 0; i < workers_.size(); ++i) {
      const absl::Status started =
          workers_[i].WaitReady(options_.start_timeout);
      MR_RETURN_IF_ERROR(Annotate(started, absl::StrCat("worker ", i)));
      MR_RETURN_IF_ERROR(
          Annotate(loading[i].Get(), absl::StrCat("worker ", i)));
    }
    return absl::OkStatus();
  }

  // Gives batches to the workers that have room, one round at a time.
  void Deal() {
    std::vector<size_t> load(workers_.size());
    for (const Running& running : running_) ++load[running.worker];
    for (size_t room = 0; room < kBatchesPerWorker; ++room) {
      for (size_t i = 0; i < workers_.size() && !waiting_.empty(); ++i) {
        if (!alive_[i] || load[i] > room) continue;
        ++load[i];
        const Batch batch = waiting_.front();
        waiting_.pop_front();
        running_.push_back(
            {.worker = i,
             .batch = batch,
             .images = workers_[i].Call<&GeneratorWorker::Generate>(
                 options_.seed, batch.first, batch.count)});
      }
    }
  }

  absl::Status Take(const Running& done) {
    const absl::StatusOr<at::Tensor> images = done.images.Get();
    if (absl::IsUnavailable(images.status())) {
      alive_[done.worker] = false;
      waiting_.push_front(done.batch);
      last_error_ = Annotate(
          images.status(),
          absl::StrCat("worker ", done.worker, ", the last one alive"));
      return absl::OkStatus();
    }
    MR_RETURN_IF_ERROR(
        Annotate(images.status(), absl::StrCat("worker ", done.worker)));
    MR_RETURN_IF_ERROR(CheckImages(*images, done.batch));
    return sink_.Write(done.batch.first, *images);
  }

  absl::Status CheckImages(const at::Tensor& images, const Batch& batch) const {
    const ImageShape& shape = model_.shape;
    if (images.scalar_type() == at::kByte &&
        images.sizes() == at::IntArrayRef({batch.count, shape.channels,
                                           shape.height, shape.width})) {
      return absl::OkStatus();
    }
    return absl::InternalError("a worker returned images of another shape");
  }

  const GanModel& model_;
  const GenerationRunOptions& options_;
  ImageSink& sink_;
  std::deque<Batch> waiting_;
  std::vector<ActorHandle<GeneratorWorker>> workers_;
  std::vector<bool> alive_;  // By worker.
  std::vector<Running> running_;
  absl::Status last_error_ = absl::InternalError("no worker");
};

absl::Status Generate(const GanModel& model,
                      const GenerationRunOptions& options, ProgressBar* bar) {
  MR_RETURN_IF_ERROR(Annotate(MakeDirectories(options.output),
                              "--output: cannot make the folder"));
  const absl::Time start = absl::Now();
  ImageSink sink(model, options, bar);
  if (options.cluster.has_value()) {
    MR_RETURN_IF_ERROR(Distributor(model, options, &sink).Run());
  } else {
    MR_RETURN_IF_ERROR(GenerateHere(model, options, &sink));
  }
  const std::string grid = options.output + "/grid.png";
  MR_RETURN_IF_ERROR(sink.WriteGrid(grid));
  bar->Print(absl::StrFormat("Images: %d in %s, %.1f s", options.num_images,
                             options.output,
                             absl::ToDoubleSeconds(absl::Now() - start)));
  bar->Print(absl::StrCat("Picture: ", grid));
  return absl::OkStatus();
}

}  // namespace

absl::Status RunGeneration(const GanModel& model,
                           const GenerationRunOptions& options,
                           ProgressBar* bar) {
  try {
    return Generate(model, options, bar);
  } catch (const std::exception& error) {
    // LibTorch adds a backtrace.
    const std::string text = error.what();
    return absl::InternalError(text.substr(0, text.find('\n')));
  }
}

}  // namespace miniray::ml
