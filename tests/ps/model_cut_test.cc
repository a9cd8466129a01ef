#include "ps/model_cut.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/empty.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ps/tensors.h"

namespace miniray::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

at::Tensor Count(int64_t size) {
  return at::arange(size, at::dtype(at::kFloat));
}

// "TENSOR:BEGIN+SIZE" of each range.
std::vector<std::string> Describe(const ModelPart& part) {
  std::vector<std::string> ranges;
  for (const TensorRange& range : part) {
    ranges.push_back(
        absl::StrCat(range.tensor, ":", range.begin, "+", range.size));
  }
  return ranges;
}

std::vector<std::vector<std::string>> Cut(const NamedTensors& model,
                                          int64_t num_parts) {
  const auto parts = CutModel(model, num_parts);
  EXPECT_TRUE(parts.ok()) << parts.status();
  std::vector<std::vector<std::string>> described;
  for (const ModelPart& part : *parts) described.push_back(Describe(part));
  return described;
}

std::vector<WeightMessage> Messages(const NamedTensors& model,
                                    int64_t num_parts) {
  const auto parts = CutModel(model, num_parts);
  EXPECT_TRUE(parts.ok()) << parts.status();
  std::vector<WeightMessage> messages;
  for (const ModelPart& part : *parts) {
    messages.push_back({.tensors = TensorsOfPart(model, part),
                        .parts = PlacesOfPart(model, part)});
  }
  return messages;
}

absl::StatusOr<NamedTensors> Join(const std::vector<WeightMessage>& messages) {
  std::vector<const WeightMessage*> pointers;
  for (const WeightMessage& message : messages) pointers.push_back(&message);
  return JoinParts(pointers);
}

TEST(CutModelTest, CutsBetweenTensorsWhereThatIsClosest) {
  const NamedTensors model = {{"a", Count(1000)},
                              {"b", Count(900)},
                              {"c", Count(10)},
                              {"d", Count(80)}};
  EXPECT_THAT(Cut(model, 2),
              ElementsAre(ElementsAre("0:0+1000"),
                          ElementsAre("1:0+900", "2:0+10", "3:0+80")));
  EXPECT_THAT(Cut(model, 1), ElementsAre(ElementsAre("0:0+1000", "1:0+900",
                                                     "2:0+10", "3:0+80")));
  // As many as there are tensors: each gets one.
  EXPECT_THAT(Cut(model, 4),
              ElementsAre(ElementsAre("0:0+1000"), ElementsAre("1:0+900"),
                          ElementsAre("2:0+10"), ElementsAre("3:0+80")));
}

TEST(CutModelTest, CutsATensorAtTheGrid) {
  // 5 steps of 4096 and 1 more; the third of it is 6827 elements, closest to
  // 2 * 4096; two thirds are 13654, closest to 3 * 4096.
  const NamedTensors model = {{"w", Count(20481)}};
  EXPECT_THAT(Cut(model, 3),
              ElementsAre(ElementsAre("0:0+8192"), ElementsAre("0:8192+4096"),
                          ElementsAre("0:12288+8193")));
  EXPECT_THAT(Cut(model, 6).back(), ElementsAre("0:20480+1"));
}

TEST(CutModelTest, CountsBytesNotElements) {
  const NamedTensors model = {
      {"wide", at::empty({8192}, at::dtype(at::kDouble))},
      {"narrow", at::empty({16384}, at::dtype(at::kHalf))}};
  // 64 KiB and 32 KiB: the half is 3/4 of the first, at 6144 elements, which is
  // as far from 4096 as from 8192; the first one counts.
  EXPECT_THAT(Cut(model, 2),
              ElementsAre(ElementsAre("0:0+4096"),
                          ElementsAre("0:4096+4096", "1:0+16384")));
}

TEST(CutModelTest, TooManyPartsAreAnError) {
  const NamedTensors model = {{"w", Count(5000)}, {"b", Count(3)}};
  for (const int64_t parts : {4, 0, -1}) {
    EXPECT_THAT(std::string(CutModel(model, parts).status().message()),
                HasSubstr("use num_shards from 1 to 3"));
  }
  EXPECT_EQ(MaxParts(model), 3);
}

// For sizes that do not divide, of several element types.
TEST(CutModelTest, PartsAreOfAboutTheSameSizeAndJoinToTheModel) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 50; ++round) {
    NamedTensors model;
    int64_t bytes = 0, largest_step = 0;
    for (int i = 0; i < 8; ++i) {
      const auto rows = static_cast<int64_t>(1 + random() % 200);
      const auto columns = static_cast<int64_t>(1 + random() % 200);
      const at::Tensor tensor = Count(rows * columns)
                                    .view({rows, columns})
                                    .to(i % 3 == 0   ? at::kLong
                                        : i % 3 == 1 ? at::kFloat
                                                     : at::kHalf);
      model.emplace_back(absl::StrCat("t", i), tensor);
      bytes += static_cast<int64_t>(tensor.nbytes());
      largest_step = std::max(
          largest_step, static_cast<int64_t>(tensor.element_size()) * kCutGrid);
    }
    model.emplace_back("scalar", at::empty({}).fill_(round));
    bytes += 4;
    for (int64_t num_parts = 1; num_parts <= 5; ++num_parts) {
      const std::vector<WeightMessage> messages = Messages(model, num_parts);
      for (const WeightMessage& message : messages) {
        int64_t of_part = 0;
        for (const auto& [name, tensor] : message.tensors) {
          of_part += static_cast<int64_t>(tensor.nbytes());
        }
        // Each end is at most half a step off.
        ASSERT_LE(std::abs(of_part - bytes / num_parts), largest_step + 1);
      }
      const auto joined = Join(messages);
      ASSERT_TRUE(joined.ok()) << joined.status();
      NamedTensors copied;
      for (const auto& [name, tensor] : model) {
        copied.emplace_back(name, at::empty(tensor.sizes(), tensor.options()));
      }
      const auto parts = CutModel(model, num_parts);
      for (size_t part = 0; part < parts->size(); ++part) {
        CopyPart(messages[part].tensors, (*parts)[part], &copied);
      }
      for (size_t i = 0; i < model.size(); ++i) {
        ASSERT_TRUE(SameBits(copied[i].second, model[i].second));
      }
      ASSERT_EQ(joined->size(), model.size());
      for (size_t i = 0; i < model.size(); ++i) {
        EXPECT_EQ((*joined)[i].first, model[i].first);
        EXPECT_TRUE(SameBits((*joined)[i].second, model[i].second));
      }
    }
  }
}

TEST(TensorsOfPartTest, SharesTheModelsMemory) {
  const NamedTensors model = {{"w", Count(20000).view({100, 200})}};
  const auto parts = CutModel(model, 2);
  ASSERT_TRUE(parts.ok());
  const NamedTensors second = TensorsOfPart(model, (*parts)[1]);
  const int64_t begin = (*parts)[1][0].begin;
  EXPECT_EQ(second[0].second.data_ptr<float>(),
            model[0].second.data_ptr<float>() + begin);
  EXPECT_EQ(second[0].second.dim(), 1);
  EXPECT_EQ(PlacesOfPart(model, (*parts)[1])[0].shape,
            (std::vector<int64_t>{100, 200}));
}

TEST(JoinPartsTest, WhatIsMissingOrTwiceIsAnError) {
  const NamedTensors model = {{"w", Count(20000)}, {"b", Count(7)}};
  const std::vector<WeightMessage> good = Messages(model, 3);
  ASSERT_TRUE(Join(good).ok());
  const std::vector<std::vector<WeightMessage>> bad = {
      {good[0], good[2]}, {good[1], good[2]},          {good[0], good[0]},
      {good[0], good[1]}, {good[0], good[2], good[1]}, {good[2]}};
  for (const auto& messages : bad) {
    EXPECT_THAT(std::string(Join(messages).status().message()),
                HasSubstr("do not fit together"));
  }
  std::vector<WeightMessage> other = good;
  other[1].tensors[0].second = other[1].tensors[0].second.to(at::kHalf);
  EXPECT_FALSE(Join(other).ok());
  other = good;
  other[1].parts.clear();
  EXPECT_FALSE(Join(other).ok());
  other = good;
  for (WeightMessage& message : other) {
    message.parts[0].shape = {int64_t{1} << 40, int64_t{1} << 40};
  }
  EXPECT_FALSE(Join(other).ok());
}

}  // namespace
}  // namespace miniray::ps
