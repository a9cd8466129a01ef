#include "ps/pull_pieces.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ps/check_weights.h"
#include "ps/weight_view.h"

namespace miniray::ps {
namespace {

PullRequest Stoppable(PullRequest request) {
  request.stop = std::make_shared<miniray::internal::CallState>(
      "a synchronisation in pieces");
  return request;
}

}  // namespace

PullPieces::PullPieces(PullRequest request, const NamedTensors* model,
                       const std::vector<ModelPart>* pieces, std::string id)
    : request_(Stoppable(std::move(request))),
      model_(*model),
      pieces_(*pieces),
      id_(std::move(id)) {
  const size_t wanted = std::min(kPiecesUnderWay, pieces_.size());
  for (size_t i = 0; i < wanted; ++i) {
    try {
      threads_.emplace_back([this] { Run(); });
    } catch (const std::system_error& error) {
      if (!threads_.empty()) break;  // No more threads: the others do it.
      absl::MutexLock lock(&mu_);
      error_ = absl::ResourceExhaustedError(
          absl::StrCat("no thread to pull weights with: ", error.what()));
    }
  }
}

PullPieces::~PullPieces() {
  {
    absl::MutexLock lock(&mu_);
    Stop();
  }
  for (std::thread& thread : threads_) thread.join();
}

void PullPieces::Stop() {
  stopped_ = true;
  request_.stop->Complete(absl::Cord());
}

absl::StatusOr<PulledWeights> PullPieces::Next() {
  absl::MutexLock lock(&mu_);
  const auto there = [this] {
    mu_.AssertHeld();
    return !error_.ok() || ready_.contains(taken_);
  };
  mu_.Await(absl::Condition(&there));
  if (!error_.ok()) return error_;
  return std::move(ready_.extract(taken_++).mapped());
}

void PullPieces::Run() {
  while (true) {
    size_t piece;
    {
      absl::MutexLock lock(&mu_);
      const auto may_go_on = [this] {
        mu_.AssertHeld();
        return stopped_ || next_ == pieces_.size() ||
               next_ < taken_ + kPiecesUnderWay;
      };
      mu_.Await(absl::Condition(&may_go_on));
      if (stopped_ || next_ == pieces_.size()) return;
      piece = next_++;
    }
    absl::StatusOr<PulledWeights> pulled;
    try {
      pulled = Pull(piece);
    } catch (const std::exception& error) {  // c10::Error, out of memory
      pulled = absl::InternalError(error.what());
    }
    absl::MutexLock lock(&mu_);
    if (pulled.ok()) {
      ready_.emplace(piece, *std::move(pulled));
    } else {
      error_.Update(pulled.status());
      Stop();
    }
  }
}

absl::StatusOr<PulledWeights> PullPieces::Pull(size_t piece) const {
  const NamedTensors tensors = TensorsOfPart(model_, pieces_[piece]);
  const ModelLayout layout = ModelLayout::Of(tensors);
  WeightView view({.part = static_cast<int64_t>(piece),
                   .num_parts = static_cast<int64_t>(pieces_.size())});
  view.Restore(tensors, std::vector<TensorInfo>(tensors.size()), {}, id_);
  view.set_places(PlacesOfPart(model_, pieces_[piece]));
  PullRequest request = request_;
  request.view = &view;
  request.weights = &tensors;
  request.layout = &layout;
  if (piece > 0) request.wants_samples = request.wants_buffers = false;
  return PullWeightsOf(request);
}

}  // namespace miniray::ps
