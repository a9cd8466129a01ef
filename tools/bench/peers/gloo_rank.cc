#include "tools/bench/peers/gloo_rank.h"

#include <chrono>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
#include "tools/bench/peers/memory.h"

namespace miniray::bench {
namespace {

// A rank that hangs must not outlast the benchmark's patience by much.
constexpr std::chrono::minutes kTimeout(2);

}  // namespace

struct GlooRank::Group {
  int rank;
  int size;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
  std::vector<at::Tensor> tensors;  // One.
};

GlooRank::GlooRank(int rank, int size, int64_t bytes,
                   const std::string& store_file)
    : group_(std::make_unique<Group>()) {
  auto options = c10d::ProcessGroupGloo::Options::create(kTimeout);
  // Not the default: that resolves the host's name, whatever it is.
  options->devices.push_back(
      c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  group_->rank = rank;
  group_->size = size;
  group_->group = c10::make_intrusive<c10d::ProcessGroupGloo>(
      c10::make_intrusive<c10d::FileStore>(store_file, size), rank, size,
      options);
  group_->tensors.push_back(
      at::empty({bytes / static_cast<int64_t>(sizeof(float))}, at::kFloat));
}

GlooRank::~GlooRank() = default;

void GlooRank::Prepare() {
  at::Tensor& tensor = group_->tensors[0];
  auto* const data = tensor.data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    data[i] = PatternAt(i) + static_cast<float>(group_->rank);
  }
  group_->group->barrier()->wait();
}

void GlooRank::AllReduce() {
  group_->group->allreduce(group_->tensors)->wait();
}

bool GlooRank::Check() const {
  const at::Tensor& tensor = group_->tensors[0];
  const auto* const data = tensor.data_ptr<float>();
  const auto size = static_cast<float>(group_->size);
  const float ranks = size * (size - 1) / 2;
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    if (data[i] != PatternAt(i) * size + ranks) return false;
  }
  return true;
}

}  // namespace miniray::bench
