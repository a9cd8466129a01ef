// The models of a checkpoint are PyTorch's to open, in Python too.

#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "torch/torch.h"
#include "train/checkpoint.h"
#include "train/training_state.h"

namespace miniray::train {
namespace {

// Runs a command of the shell; returns what it printed, or how it failed.
std::string Output(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "there is no shell";
  std::string out;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
    out.append(buffer, n);
  }
  const int how = pclose(pipe);
  if (how != 0) absl::StrAppend(&out, "\nended with ", WEXITSTATUS(how));
  return out;
}

// A line as open_model.py prints it.
std::string Line(absl::string_view name, const torch::Tensor& tensor) {
  const torch::Tensor values = tensor.detach().contiguous();
  return absl::StrCat(
      name, " float64 ", absl::StrJoin(values.sizes(), "x"), " ",
      absl::BytesToHexString(absl::string_view(
          static_cast<const char*>(values.data_ptr()), values.nbytes())),
      "\n");
}

TEST(PythonModelTest, OpensTheModelOfACheckpointAndComputesTheSame) {
  torch::manual_seed(1);
  const torch::nn::Linear first(3, 5), last(5, 2);
  const torch::nn::BatchNorm1d norm(5);
  torch::nn::Sequential net(
      first, norm, torch::nn::Dropout(torch::nn::DropoutOptions(0.5)), last);
  net->to(torch::kDouble);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  for (int i = 0; i < 3; ++i) {  // So that no buffer is what it begins with.
    sgd.zero_grad();
    net->forward(torch::randn({4, 3}, torch::kDouble)).pow(2).sum().backward();
    sgd.step();
  }
  const auto files =
      SaveTraining({.models = {{"net", &*net}}, .optimizers = {{"sgd", &sgd}}});
  ASSERT_THAT(files, IsOk());
  const TempFolder temp;
  const std::string path = temp / "checkpoint_000001";
  ASSERT_THAT(
      WriteCheckpoint(path, {.history = {EpochResult{}}, .workers = {*files}}),
      IsOk());

  // In the order of Python's state_dict: module by module.
  const std::string state =
      absl::StrCat(Line("0.weight", first->weight), Line("0.bias", first->bias),
                   Line("1.weight", norm->weight), Line("1.bias", norm->bias),
                   Line("1.running_mean", norm->running_mean),
                   Line("1.running_var", norm->running_var),
                   Line("1.num_batches_tracked", norm->num_batches_tracked),
                   Line("3.weight", last->weight), Line("3.bias", last->bias));
  net->eval();
  const torch::Tensor output =
      net->forward(torch::arange(6, torch::kDouble).reshape({2, 3}));
  EXPECT_EQ(Output(absl::StrCat("/usr/bin/python3 tests/train/open_model.py ",
                                path, "/worker_000/net.pt 2>&1")),
            state + Line("output", output));
}

}  // namespace
}  // namespace miniray::train
