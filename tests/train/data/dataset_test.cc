#include "train/data/dataset.h"

#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/wire/codec.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/train/data/number_files.h"

namespace miniray::train {
namespace {

using absl::StatusCode::kAlreadyExists;
using absl::StatusCode::kFailedPrecondition;
using absl::StatusCode::kInternal;
using absl::StatusCode::kInvalidArgument;
using absl::StatusCode::kNotFound;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Each line is a record: how long it is.
class LengthReader : public RecordReader {
 public:
  static absl::StatusOr<std::unique_ptr<RecordReader>> Open(
      const std::string& path) {
    auto reader = std::make_unique<LengthReader>();
    reader->file_.open(path);
    return reader;
  }
  absl::StatusOr<std::optional<Row>> Next() override {
    std::string line;
    if (!std::getline(file_, line)) return std::nullopt;
    if (line == "bad") return absl::InvalidArgumentError("a bad line");
    if (line == "worse") throw std::runtime_error("a worse line");
    return Row{at::scalar_tensor(static_cast<int64_t>(line.size()), at::kLong)};
  }

 private:
  std::ifstream file_;
};
MINIRAY_RECORD_READER("test_lengths", {.open = &LengthReader::Open});

Batches All(const Dataset& data, const IterBatchesOptions& options = {}) {
  auto shard = data.Shard(0, 1);
  EXPECT_THAT(shard, IsOk());
  Batches batches;
  for (const Batch& batch : shard->IterBatches(options)) {
    batches.push_back(NumbersOf(batch, data.columns()[0]));
  }
  return batches;
}

void Write(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

TEST(DatasetTest, ReadsFilesWithAReaderThatIsFoundByName) {
  const TempFolder folder;
  Write(folder / "one", "a\nbb\n");
  Write(folder / "empty", "");
  Write(folder / "two", "cccc");
  auto data =
      Dataset::FromFiles({folder / "one", folder / "empty", folder / "two"},
                         "test_lengths", {.columns = {"length"}});
  ASSERT_THAT(data, IsOk());
  EXPECT_EQ(data->size(), 3);
  EXPECT_THAT(data->columns(), ElementsAre("length"));
  EXPECT_THAT(All(*data), ElementsAre(ElementsAre(1, 2, 4)));
}

// The default Skip reads.
TEST(DatasetTest, ARankInTheMiddleOfAFileReadsItsOwnRecords) {
  const TempFolder folder;
  Write(folder / "one", "a\nbb\nccc\ndddd\n");
  auto data =
      Dataset::FromFiles({folder / "one"}, "test_lengths", {.columns = {"n"}});
  ASSERT_THAT(data, IsOk());
  auto shard = data->Shard(1, 2);
  ASSERT_THAT(shard, IsOk());
  EXPECT_THAT(Loop(shard->IterBatches({.batch_size = 9})),
              ElementsAre(ElementsAre(3, 4)));
}

TEST(DatasetTest, AFolderStandsForItsFilesByName) {
  const TempFolder folder;
  Write(folder / "b", "22\n");
  Write(folder / "a", "1\n");
  Write(folder / ".hidden", "4444\n");
  ASSERT_TRUE(std::filesystem::create_directory(folder / "c"));
  auto data =
      Dataset::FromFiles({folder.path()}, "test_lengths", {.columns = {"n"}});
  ASSERT_THAT(data, IsOk());
  EXPECT_THAT(All(*data), ElementsAre(ElementsAre(1, 2)));
  EXPECT_THAT(
      Dataset::FromFiles({folder / "c"}, "test_lengths", {.columns = {"n"}}),
      StatusIs(kInvalidArgument, HasSubstr(folder / "c")));
}

TEST(DatasetTest, ErrorsWhileCountingNameFileAndRecord) {
  const TempFolder folder;
  Write(folder / "f", "a\nbb\nbad\n");
  const FilesOptions options = {.columns = {"n"}};
  EXPECT_THAT(Dataset::FromFiles({folder / "f"}, "test_lengths", options),
              StatusIs(kInvalidArgument,
                       AllOf(HasSubstr(folder / "f"), HasSubstr("record 2"),
                             HasSubstr("a bad line"))));
  Write(folder / "f", "worse\n");
  EXPECT_THAT(Dataset::FromFiles({folder / "f"}, "test_lengths", options),
              StatusIs(kInternal, AllOf(HasSubstr("record 0"),
                                        HasSubstr("a worse line"))));
}

TEST(DatasetTest, WhatCannotBeIsRefused) {
  const TempFolder folder;
  Write(folder / "f", "a\n");
  const FilesOptions options = {.columns = {"n"}};
  EXPECT_THAT(Dataset::FromFiles({}, "test_lengths", options),
              StatusIs(kInvalidArgument));
  EXPECT_THAT(Dataset::FromFiles({folder / "g"}, "test_lengths", options),
              StatusIs(kNotFound, HasSubstr(folder / "g")));
  EXPECT_THAT(Dataset::FromFiles({folder / "f"}, "parquet", options),
              StatusIs(kNotFound, AllOf(HasSubstr("\"parquet\""),
                                        HasSubstr("test_lengths"))));
  EXPECT_THAT(Dataset::FromFiles({folder / "f"}, RecordFormat(), options),
              StatusIs(kInvalidArgument));
  EXPECT_THAT(Dataset::FromFiles({folder / "f"}, "test_lengths", {}),
              StatusIs(kInvalidArgument, HasSubstr("columns")));
  EXPECT_THAT(Dataset::FromFiles({folder / "f"}, "test_lengths",
                                 {.columns = {"a", "a"}}),
              StatusIs(kInvalidArgument, HasSubstr("\"a\"")));
  Write(folder / "f", "");
  EXPECT_THAT(Dataset::FromFiles({folder / "f"}, "test_lengths", options),
              StatusIs(kInvalidArgument, HasSubstr("no records")));
}

TEST(DatasetTest, AFormatIsKnownOnce) {
  EXPECT_THAT(
      RegisterRecordFormat("test_lengths", {.open = &LengthReader::Open}),
      StatusIs(kAlreadyExists));
  EXPECT_THAT(RegisterRecordFormat("", {.open = &LengthReader::Open}),
              StatusIs(kInvalidArgument));
  EXPECT_THAT(RegisterRecordFormat("test_nothing", {}),
              StatusIs(kInvalidArgument));
}

TEST(DatasetTest, RowsOfTensors) {
  auto data = Dataset::FromTensors(
      {{"i", at::arange(7)}, {"x", at::arange(14).view({7, 2})}},
      {.rows_per_block = 3});
  ASSERT_THAT(data, IsOk());
  EXPECT_EQ(data->size(), 7);
  auto shard = data->Shard(1, 2);
  ASSERT_THAT(shard, IsOk());
  BatchStream stream =
      shard->IterBatches({.batch_size = 9, .tail = Tail::kUneven});
  auto batch = stream.Next();
  ASSERT_THAT(batch, IsOk());
  EXPECT_THAT((*batch)->names(), ElementsAre("i", "x"));
  EXPECT_EQ((*batch)->size(), 3);
  EXPECT_TRUE(at::equal((**batch)["i"], at::arange(4, 7)));
  EXPECT_TRUE(at::equal((**batch)["x"], at::arange(8, 14).view({3, 2})));
  try {
    (void)(**batch)["y"];
    ADD_FAILURE() << "there is no such column";
  } catch (const std::out_of_range& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("\"y\""), HasSubstr("i, x")));
  }
}

// Columns of a matrix are not contiguous.
TEST(DatasetTest, StacksRowsOfAnyStrides) {
  const at::Tensor matrix = at::arange(12).view({3, 4});
  auto data = Dataset::FromTensors({{"x", matrix.t()}});
  ASSERT_THAT(data, IsOk());
  auto shard = data->Shard(0, 1);
  ASSERT_THAT(shard, IsOk());
  BatchStream stream = shard->IterBatches({.batch_size = 4});
  auto batch = stream.Next();
  ASSERT_THAT(batch, IsOk());
  EXPECT_TRUE(at::equal((**batch)["x"], matrix.t()));
}

TEST(DatasetTest, SmallBlocksShuffleAcrossTheWholeData) {
  auto data =
      Dataset::FromTensors({{"i", at::arange(1000)}}, {.rows_per_block = 10});
  ASSERT_THAT(data, IsOk());
  const Batches batches =
      All(*data, {.batch_size = 1000, .shuffle_buffer = 20});
  int64_t far = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    if (std::abs(batches[0][static_cast<size_t>(i)] - i) > 100) ++far;
  }
  EXPECT_GT(far, 500);
}

TEST(DatasetTest, TensorsThatAreNoRowsAreRefused) {
  EXPECT_THAT(Dataset::FromTensors({}), StatusIs(kInvalidArgument));
  EXPECT_THAT(Dataset::FromTensors({{"x", at::zeros({0, 2})}}),
              StatusIs(kInvalidArgument, HasSubstr("no records")));
  EXPECT_THAT(Dataset::FromTensors({{"x", at::zeros({})}}),
              StatusIs(kInvalidArgument, HasSubstr("scalar")));
  EXPECT_THAT(Dataset::FromTensors({{"x", at::Tensor()}}),
              StatusIs(kInvalidArgument, HasSubstr("undefined")));
  EXPECT_THAT(
      Dataset::FromTensors({{"x", at::zeros({2})}, {"y", at::zeros({3})}}),
      StatusIs(kInvalidArgument,
               AllOf(HasSubstr("\"y\" has 3"), HasSubstr("\"x\" 2"))));
  EXPECT_THAT(
      Dataset::FromTensors({{"x", at::zeros({2})}, {"x", at::zeros({2})}}),
      StatusIs(kInvalidArgument));
  EXPECT_THAT(
      Dataset::FromTensors({{"x", at::zeros({2})}}, {.rows_per_block = 0}),
      StatusIs(kInvalidArgument, HasSubstr("rows_per_block is 0")));
  EXPECT_THAT(Dataset::FromRows({"x"}, {}), StatusIs(kInvalidArgument));
  EXPECT_THAT(Dataset::FromRows({"x", "y"}, {{at::zeros({})}}),
              StatusIs(kInvalidArgument, HasSubstr("x, y")));
}

TEST(DatasetTest, FromRows) {
  auto data = Dataset::FromRows(
      {"n"}, {{at::tensor(int64_t{5})}, {at::tensor(int64_t{3})}});
  ASSERT_THAT(data, IsOk());
  EXPECT_THAT(All(*data), ElementsAre(ElementsAre(5, 3)));
}

Dataset Travel(const Dataset& data) {
  auto bytes = EncodeValue(data);
  EXPECT_THAT(bytes, IsOk());
  Dataset arrived;
  EXPECT_THAT(DecodeValue(*bytes, &arrived), IsOk());
  return arrived;
}

TEST(DatasetTest, TravelsToAnotherProcess) {
  const TempFolder folder;
  Write(folder / "one", "a\nbb\n");
  Write(folder / "two.csv", "u,v\n1,2\n3,4\n");
  const auto files =
      Dataset::FromFiles({folder / "one"}, "test_lengths", {.columns = {"n"}});
  const auto csv = Dataset::FromCsv(
      {folder / "two.csv"},
      {.columns = {{"w", {"v", "u"}, at::kLong}}, .block_bytes = 1});
  const auto memory = Dataset::FromTensors({{"i", at::arange(5)}});
  for (const auto* data : {&files, &csv, &memory}) {
    ASSERT_THAT(*data, IsOk());
    const Dataset arrived = Travel(**data);
    EXPECT_EQ(arrived.size(), (*data)->size());
    EXPECT_EQ(arrived.columns(), (*data)->columns());
    const IterBatchesOptions options = {.batch_size = 2, .shuffle_buffer = 3};
    EXPECT_EQ(All(arrived, options), All(**data, options));
  }
}

TEST(DatasetTest, WhatCannotTravelSaysSo) {
  const NumberFiles files({2});
  ReaderLog log;
  const auto data = files.Make(&log);
  ASSERT_THAT(data, IsOk());
  EXPECT_THAT(EncodeValue(*data), StatusIs(kFailedPrecondition,
                                           HasSubstr("MINIRAY_RECORD_READER")));
  EXPECT_THAT(EncodeValue(Dataset()), StatusIs(kFailedPrecondition));
  const auto bytes = EncodeValue(std::string("no data set"));
  ASSERT_THAT(bytes, IsOk());
  Dataset arrived;
  EXPECT_THAT(DecodeValue(*bytes, &arrived), StatusIs(kInvalidArgument));
}

}  // namespace
}  // namespace miniray::train
