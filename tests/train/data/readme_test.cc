// What train/data/README.md shows does what it says.

#include <cstdint>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/readme_code.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/train/data/readme_loader.h"
#include "tests/train/data/readme_stream.h"
#include "torch/data/datasets/base.h"
#include "train/data/dataset.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Images : public torch::data::datasets::Dataset<Images> {
 public:
  torch::data::Example<> get(size_t index) override {
    return {at::full({1, 2, 2}, static_cast<double>(index)),
            at::scalar_tensor(static_cast<int64_t>(index), at::kLong)};
  }
  torch::optional<size_t> size() const override { return 500; }
};

TEST(DataReadmeTest, TheLoaderTrainsTenEpochsAndGoesOnWhereItWas) {
  ExpectReadmeShows("train/data/README.md", "tests/train/data/readme_loader.h");
  std::string state;
  std::string early;
  int64_t samples = 0;
  int steps = 0;
  ASSERT_THAT(TrainOn(
                  Images(), 1, 2,
                  [&](at::Tensor data, at::Tensor target) {
                    samples += target.numel();
                    EXPECT_EQ(data.dim(), 4);
                    if (++steps == 4) early = state;
                  },
                  state),
              IsOk());
  EXPECT_EQ(samples, 10 * 250);
  EXPECT_EQ(steps, 10 * 2);
  // The state when step 4 began was that after step 3: 17 are left.
  int more = 0;
  ASSERT_THAT(
      TrainOn(
          Images(), 1, 2, [&](at::Tensor, at::Tensor) { ++more; }, early),
      IsOk());
  EXPECT_EQ(more, 17);
}

TEST(DataReadmeTest, TheStreamTrainsTenEpochs) {
  ExpectReadmeShows("train/data/README.md", "tests/train/data/readme_stream.h");
  const TempFolder folder;
  std::ofstream(folder / "a.csv") << "width,height,colour,label\n1,2,red,0\n";
  std::ofstream(folder / "b.csv") << "width,height,colour,label\n3,4,blue,1\n";
  int64_t labels = 0;
  int64_t rows = 0;
  ASSERT_THAT(TrainOnCsv(folder.path(), 0, 1,
                         [&](at::Tensor x, at::Tensor y) {
                           EXPECT_THAT(x.sizes(), ElementsAre(2, 2));
                           labels += y.sum().item<int64_t>();
                           rows += y.numel();
                         }),
              IsOk());
  EXPECT_EQ(rows, 20);
  EXPECT_EQ(labels, 10);
}

TEST(DataReadmeTest, TheReaderReadsRecords) {
  ExpectReadmeShows("train/data/README.md",
                    "tests/train/data/readme_reader.cc");
  const TempFolder folder;
  std::string bytes;
  for (char label = 0; label < 7; ++label) {
    bytes += label;
    bytes += std::string(3 * 32 * 32, static_cast<char>(10 * label));
  }
  std::ofstream(folder / "batch.bin", std::ios::binary) << bytes;
  auto data = train::Dataset::FromFiles({folder / "batch.bin"}, "cifar10",
                                        {.columns = {"image", "label"}});
  ASSERT_THAT(data, IsOk());
  auto shard = data->Shard(1, 2);
  ASSERT_THAT(shard, IsOk());
  train::BatchStream stream =
      shard->IterBatches({.batch_size = 4, .tail = train::Tail::kUneven});
  auto batch = stream.Next();
  ASSERT_THAT(batch, IsOk());
  EXPECT_THAT((**batch)["image"].sizes(), ElementsAre(3, 3, 32, 32));
  EXPECT_TRUE(at::equal((**batch)["label"], at::arange(4, 7)));
  EXPECT_EQ((**batch)["image"][0][2][31][31].item<int64_t>(), 40);
}

}  // namespace
}  // namespace miniray
