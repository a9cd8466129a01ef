#include "ml/gan/generation_run.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "ml/data/exception_text.h"
#include "ml/gan/deal_out.h"
#include "ml/gan/generator_worker.h"
#include "ml/gan/image_generator.h"
#include "ml/gan/piece_dealer.h"
#include "ml/image/grid.h"
#include "ml/image/png.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

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
      ++done_;
    }
    const double seconds =
        std::max(absl::ToDoubleSeconds(absl::Now() - start_), 1e-9);
    const double fraction =
        static_cast<double>(done_) / static_cast<double>(options_.num_images);
    bar_.Update(
        fraction, "images",
        absl::StrFormat("%d/%d  %.0f images/s  %s", done_, options_.num_images,
                        static_cast<double>(done_) / seconds,
                        time_left_.Text(fraction, absl::Now())));
    return absl::OkStatus();
  }

  absl::Status WriteGrid(const std::string& path) const {
    return SaveImageGrid(path, grid_, options_.columns);
  }

  int64_t done() const { return done_; }

 private:
  static int64_t MaxGridImages(const GenerationRunOptions& options) {
    return int64_t{options.columns} * options.columns;
  }

  const GenerationRunOptions& options_;
  ProgressBar& bar_;
  const int digits_;
  const absl::Time start_;
  TimeLeft time_left_;
  at::Tensor grid_;  // The first images.
  int64_t done_ = 0;
};

absl::Status GenerateHere(const GanModel& model,
                          const GenerationRunOptions& options,
                          ImageSink* sink) {
  // As in a worker, so that the images are the same.
  at::set_num_threads(1);
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<ImageGenerator> generator,
                      ImageGenerator::Create(model, options.label));
  for (int64_t first = 0; first < options.num_images;
       first += options.batch_size) {
    const int64_t count =
        std::min(options.batch_size, options.num_images - first);
    MR_RETURN_IF_ERROR(sink->Write(
        first, ToUint8(generator->Generate(options.seed, first, count))));
  }
  return absl::OkStatus();
}

class Distributor {
 public:
  Distributor(const GanModel& model, const GenerationRunOptions& options,
              ImageSink* sink)
      : model_(model), options_(options), sink_(*sink) {}

  ~Distributor() {
    for (const auto& worker : workers_) worker.Kill().IgnoreError();
  }

  absl::Status Run() {
    // No more workers than there is work for.
    const int64_t pieces =
        (options_.num_images + options_.batch_size - 1) / options_.batch_size;
    const int count =
        static_cast<int>(std::min<int64_t>(options_.workers, pieces));
    MR_RETURN_IF_ERROR(StartWorkers(count));
    PieceDealer dealer({.items = options_.num_images,
                        .piece_size = options_.batch_size,
                        .workers = count});
    return DealOut<at::Tensor>(
        &dealer,
        [this](int worker, const Piece& piece) {
          return workers_[static_cast<size_t>(worker)]
              .Call<&GeneratorWorker::Generate>(options_.seed, piece.first,
                                                piece.count);
        },
        [this](const Piece& piece, const at::Tensor& images) {
          return Take(piece, images);
        });
  }

 private:
  absl::Status StartWorkers(int count) {
    std::vector<ObjectRef<void>> loading;
    for (int i = 0; i < count; ++i) {
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
    for (size_t i = 0; i < workers_.size(); ++i) {
      const absl::Status started =
          workers_[i].WaitReady(options_.start_timeout);
      MR_RETURN_IF_ERROR(Annotate(started, absl::StrCat("worker ", i)));
      MR_RETURN_IF_ERROR(
          Annotate(loading[i].Get(), absl::StrCat("worker ", i)));
    }
    return absl::OkStatus();
  }

  absl::Status Take(const Piece& piece, const at::Tensor& images) {
    const ImageShape& shape = model_.shape;
    if (images.scalar_type() != at::kByte ||
        images.sizes() != at::IntArrayRef({piece.count, shape.channels,
                                           shape.height, shape.width})) {
      return absl::InternalError("a worker returned images of another shape");
    }
    return sink_.Write(piece.first, images);
  }

  const GanModel& model_;
  const GenerationRunOptions& options_;
  ImageSink& sink_;
  std::vector<ActorHandle<GeneratorWorker>> workers_;
};

absl::Status LibTorchError(const std::exception& error) {
  return absl::InternalError(FirstLine(error));
}

// Writes all images, and the grid.
absl::Status MakeImages(const GanModel& model,
                        const GenerationRunOptions& options,
                        const std::string& grid, ImageSink* sink) {
  try {
    MR_RETURN_IF_ERROR(options.cluster.has_value()
                           ? Distributor(model, options, sink).Run()
                           : GenerateHere(model, options, sink));
    return sink->WriteGrid(grid);
  } catch (const std::exception& error) {
    return LibTorchError(error);
  }
}

absl::Status Generate(const GanModel& model,
                      const GenerationRunOptions& options, ProgressBar* bar) {
  MR_RETURN_IF_ERROR(Annotate(MakeDirectories(options.output),
                              "--output: cannot make the folder"));
  const absl::Time start = absl::Now();
  ImageSink sink(model, options, bar);
  const std::string grid = options.output + "/grid.png";
  const absl::Status made = MakeImages(model, options, grid, &sink);
  // They stay, whatever has gone wrong: a full disk, a worker.
  if (!made.ok()) {
    return Annotate(made, absl::StrCat(sink.done(), " of ", options.num_images,
                                       " images are in ", options.output));
  }
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
    return LibTorchError(error);
  }
}

}  // namespace miniray::ml
