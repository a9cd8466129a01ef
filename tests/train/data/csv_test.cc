// Dataset::FromCsv, and the lines and fields under it.

#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/train/data/number_files.h"
#include "train/data/csv_source.h"
#include "train/data/dataset.h"
#include "train/data/line_reader.h"

namespace miniray::train {
namespace {

using absl::StatusCode::kInvalidArgument;
using absl::StatusCode::kNotFound;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CsvTest : public testing::Test {
 protected:
  std::string Write(const std::string& text,
                    const std::string& name = "f.csv") {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }

  // All rows as one batch.
  absl::StatusOr<Batch> Read(const std::string& text, CsvOptions options = {}) {
    MR_ASSIGN_OR_RETURN(const Dataset data,
                        Dataset::FromCsv({Write(text)}, options));
    MR_ASSIGN_OR_RETURN(DatasetShard shard, data.Shard(0, 1));
    BatchStream stream = shard.IterBatches({.batch_size = data.size()});
    MR_ASSIGN_OR_RETURN(auto batch, stream.Next());
    return *batch;
  }

  TempFolder folder_;
};

TEST_F(CsvTest, EveryFieldIsAColumnOfFloats) {
  auto batch = Read("a, b\n1,2.5\n-3,4e2\n");
  ASSERT_THAT(batch, IsOk());
  EXPECT_THAT(batch->names(), ElementsAre("a", "b"));
  EXPECT_TRUE(at::equal((*batch)["a"], at::tensor({1.0f, -3.0f})));
  EXPECT_TRUE(at::equal((*batch)["b"], at::tensor({2.5f, 400.0f})));
}

TEST_F(CsvTest, ColumnsAreMadeOfFields) {
  auto batch = Read("a,name,b,c\n1,\"x, y\",2,3\n4,z,5,6\n",
                    {.columns = {{"x", {"c", "a"}},
                                 {"b", {}, at::kLong},
                                 {"d", {"b"}, at::kDouble},
                                 {"i", {"a", "b"}, at::kInt}}});
  ASSERT_THAT(batch, IsOk());
  EXPECT_TRUE(at::equal((*batch)["x"],
                        at::tensor({3.0f, 1.0f, 6.0f, 4.0f}).view({2, 2})));
  EXPECT_TRUE(at::equal((*batch)["b"], at::tensor({int64_t{2}, int64_t{5}})));
  EXPECT_TRUE(at::equal((*batch)["d"], at::tensor({2.0, 5.0})));
  EXPECT_TRUE(at::equal((*batch)["i"],
                        at::tensor({1, 2, 4, 5}, at::kInt).view({2, 2})));
}

TEST_F(CsvTest, WithoutAHeaderFieldsAreNumbered) {
  auto batch = Read("1;2\n3;4\n", {.columns = {{"y", {"1"}, at::kLong}},
                                   .delimiter = ';',
                                   .header = false});
  ASSERT_THAT(batch, IsOk());
  EXPECT_THAT(NumbersOf(*batch, "y"), ElementsAre(2, 4));
}

TEST_F(CsvTest, LinesEndAsTheyMay) {
  const CsvOptions options = {.columns = {{"a", {}, at::kLong}}};
  for (const std::string text :
       {"a\n1\n2\n", "a\r\n1\r\n2\r\n", "a\n1\n2", "\n\na\n\n1\n\n\n2\n\n",
        "\xef\xbb\xbf"
        "a\n1\n2\n",
        "\"a\"\n\"1\"\n 2 \n"}) {
    auto batch = Read(text, options);
    ASSERT_THAT(batch, IsOk()) << text;
    EXPECT_THAT(NumbersOf(*batch, "a"), ElementsAre(1, 2)) << text;
  }
}

// Blocks of every size, so that each line once begins a block and each once
// ends one, and the ranks' ranges begin within blocks.
TEST_F(CsvTest, EachLineOnceWhereverBlocksAreCut) {
  std::string text = "n,pad\n";
  for (int i = 0; i < 40; ++i) {
    absl::StrAppend(&text, i, ",", std::string(static_cast<size_t>(i % 7), '7'),
                    "0", i % 3 == 0 ? "\r\n\n" : "\n");
  }
  const std::string a = Write(text, "a.csv");
  const std::string b = Write("n,pad\n40,0\n41,0", "b.csv");
  const std::string empty = Write("", "c.csv");
  const std::string header = Write("n,pad\n", "d.csv");
  for (int64_t block_bytes = 1; block_bytes < 60; block_bytes += 4) {
    auto data = Dataset::FromCsv(
        {a, empty, header, b},
        {.columns = {{"n", {}, at::kLong}}, .block_bytes = block_bytes});
    ASSERT_THAT(data, IsOk());
    EXPECT_EQ(data->size(), 42);
    for (const int world : {1, 3, 5}) {
      std::map<int64_t, int> times;
      for (int rank = 0; rank < world; ++rank) {
        auto shard = data->Shard(rank, world);
        ASSERT_THAT(shard, IsOk());
        for (const auto& batch : Loop(shard->IterBatches({.batch_size = 4,
                                 .shuffle_buffer = 3,
                                 .prefetch = 0,
                                 .tail = Tail::kUneven}))) {
          for (const int64_t n : batch) ++times[n];
        }
      }
      EXPECT_EQ(times.size(), 42) << block_bytes << ", " << world;
      for (const auto& [n, count] : times) EXPECT_EQ(count, 1) << n;
    }
  }
}

TEST_F(CsvTest, ABadFieldIsNamedWithFileAndLine) {
  const struct {
    std::string text;
    std::vector<std::string> says;
  } cases[] = {
      {"a,b\n1,2\n\n3,x\n", {"line 4", "record 1", "\"b\"", "\"x\""}},
      {"a,b\n1,2\n3\n", {"line 3", "1 fields", "expected 2"}},
      {"a,b\n1,\n", {"line 2", "\"b\"", "\"\""}},
      {"a,b\n1,\"2\n", {"line 2", "quote"}},
  };
  for (const auto& test : cases) {
    // Also where the line is not in the file's first block.
    for (const int64_t block_bytes : {1, 1000}) {
      const auto batch = Read(test.text, {.block_bytes = block_bytes});
      for (const std::string& part : test.says) {
        EXPECT_THAT(batch, StatusIs(kInvalidArgument,
                                    AllOf(HasSubstr("f.csv"), HasSubstr(part))))
            << test.text;
      }
    }
  }
  EXPECT_THAT(
      Read("a\n1.5\n", {.columns = {{"a", {}, at::kLong}}}),
      StatusIs(kInvalidArgument, HasSubstr("\"1.5\"; expected an integer")));
  EXPECT_THAT(Read("a\n3000000000\n", {.columns = {{"a", {}, at::kInt}}}),
              StatusIs(kInvalidArgument, HasSubstr("32 bits")));
}

TEST_F(CsvTest, HeadersThatDoNotFitAreRefused) {
  EXPECT_THAT(
      Read("a,b\n1,2\n", {.columns = {{"x", {"a", "c"}}}}),
      StatusIs(kInvalidArgument, AllOf(HasSubstr("f.csv"), HasSubstr("\"c\""),
                                       HasSubstr("a, b"))));
  const std::string a = Write("a,b\n1,2\n", "a.csv");
  const std::string b = Write("b,a\n1,2\n", "b.csv");
  EXPECT_THAT(
      Dataset::FromCsv({a, b}),
      StatusIs(kInvalidArgument, AllOf(HasSubstr("b.csv"), HasSubstr("a.csv"),
                                       HasSubstr("b, a"))));
}

TEST_F(CsvTest, WhatCannotBeIsRefused) {
  EXPECT_THAT(Dataset::FromCsv({folder_ / "none.csv"}),
              StatusIs(kNotFound, HasSubstr("none.csv")));
  EXPECT_THAT(Read("a,b\n"), StatusIs(kInvalidArgument, HasSubstr("f.csv")));
  EXPECT_THAT(Read(""), StatusIs(kInvalidArgument));
  EXPECT_THAT(Read("a,a\n1,2\n"),
              StatusIs(kInvalidArgument, HasSubstr("\"a\"")));
  EXPECT_THAT(Read("a\n1\n", {.columns = {{"a", {}, at::kHalf}}}),
              StatusIs(kInvalidArgument, HasSubstr("Half")));
  EXPECT_THAT(Read("a\n1\n", {.delimiter = '"'}), StatusIs(kInvalidArgument));
  EXPECT_THAT(Read("a\n1\n", {.block_bytes = 0}),
              StatusIs(kInvalidArgument, HasSubstr("block_bytes is 0")));
}

TEST_F(CsvTest, FieldsAreCutAsQuotesSay) {
  std::vector<std::string> fields;
  ASSERT_THAT(SplitCsvLine("", ',', &fields), IsOk());
  EXPECT_THAT(fields, ElementsAre(""));
  ASSERT_THAT(SplitCsvLine("a,,\"b\"\"c,d\",", ',', &fields), IsOk());
  EXPECT_THAT(fields, ElementsAre("a", "", "b\"c,d", ""));
  ASSERT_THAT(SplitCsvLine("a\tb", '\t', &fields), IsOk());
  EXPECT_THAT(fields, ElementsAre("a", "b"));
  EXPECT_THAT(SplitCsvLine("a,\"b", ',', &fields),
              StatusIs(kInvalidArgument, HasSubstr("field 2")));
}

// Longer than the buffer, at its edges, and without an end.
TEST_F(CsvTest, LinesOfAnyLengthComeWhole) {
  for (const size_t length :
       {size_t{0}, size_t{1}, (size_t{64} << 10) - 1, size_t{64} << 10,
        (size_t{64} << 10) + 1, size_t{300} << 10}) {
    const std::string path = Write(
        absl::StrCat("x\n", std::string(length, 'y'), "\n\r\nlast"), "lines");
    auto lines = LineReader::Open(path, 0);
    ASSERT_THAT(lines, IsOk());
    std::vector<std::pair<int64_t, size_t>> seen;  // Offset and length.
    while (true) {
      const auto line = lines->Next();
      ASSERT_THAT(line, IsOk());
      if (!line->has_value()) break;
      seen.emplace_back((*line)->offset_bytes, (*line)->text.size());
    }
    const auto end = static_cast<int64_t>(length);
    using Pair = std::pair<int64_t, size_t>;
    EXPECT_THAT(seen, ElementsAre(Pair(0, 1), Pair(2, length), Pair(end + 3, 0),
                                  Pair(end + 5, 4)));
  }
}

TEST_F(CsvTest, ALineWithoutEndIsRefusedBeforeItFillsTheMemory) {
  const std::string path =
      Write(std::string(LineReader::kMaxLineBytes + 10, 'x'));
  EXPECT_THAT(Dataset::FromCsv({path}),
              StatusIs(kInvalidArgument, HasSubstr("longer than")));
}

}  // namespace
}  // namespace miniray::train
