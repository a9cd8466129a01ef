#include "ml/data/csv_reader.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ml/data/data_testutil.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kDataLoss;
using absl::StatusCode::kFailedPrecondition;
using absl::StatusCode::kInvalidArgument;
using absl::StatusCode::kNotFound;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

class CsvReaderTest : public ::testing::Test {
 protected:
  absl::StatusOr<NumberTable> Read(const std::string& bytes) {
    return ReadCsv(WriteTestFile(folder_, "table.csv", bytes));
  }
  void ExpectBad(const std::string& bytes,
                 const std::vector<std::string>& parts) {
    const absl::Status status = Read(bytes).status();
    ExpectError(status, kDataLoss, parts);
    ExpectError(status, kDataLoss, {folder_ + "/table.csv"});
  }

  const std::string folder_ = MakeTestFolder();
};

TEST_F(CsvReaderTest, ReadsNamesAndNumbers) {
  ASSERT_OK_AND_ASSIGN(const NumberTable table,
                       Read("a,b,c\n1,-2.5,3e2\n0.1,+4,-0\n"));
  EXPECT_THAT(table.columns, ElementsAre("a", "b", "c"));
  EXPECT_THAT(table.values, ElementsAre(1, -2.5, 300, 0.1, 4, 0));
  EXPECT_EQ(table.num_rows(), 2);
  EXPECT_EQ(table.num_columns(), 3);
}

TEST_F(CsvReaderTest, ReadsWhatSpreadsheetsWrite) {
  // A byte order mark, CRLF, quotes, spaces, an empty line, no line end last.
  ASSERT_OK_AND_ASSIGN(const NumberTable table,
                       Read("\xef\xbb\xbf\"price, in \"\"k\"\"\", area "
                            "\r\n\"1.5\" , \"2\"\r\n\r\n3 ,4"));
  EXPECT_THAT(table.columns, ElementsAre("price, in \"k\"", "area"));
  EXPECT_THAT(table.values, ElementsAre(1.5, 2, 3, 4));
}

TEST_F(CsvReaderTest, SaysWhereSomethingIsWrong) {
  ExpectBad("a,b\n1,2\n3\n", {"line 3", "1 fields", "2 names"});
  ExpectBad("a,b\n1,2,3\n", {"line 2", "3 fields", "2 names"});
  ExpectBad("a,b\n1,2,\n", {"line 2", "3 fields"});
  ExpectBad("a,b\n\n1,\n", {"line 3", "column 'b'", "nothing"});
  ExpectBad("a,b\n1,x2\n", {"line 2", "column 'b'", "'x2'"});
  ExpectBad("a,b\n1,2 3\n", {"line 2", "column 'b'", "'2 3'"});
  ExpectBad("a,b\nnan,2\n", {"line 2", "column 'a'", "'nan'"});
  ExpectBad("a,b\n1,1e999\n", {"line 2", "column 'b'", "'1e999'"});
  ExpectBad("a,\n1,2\n", {"line 1", "column 2 has no name"});
  ExpectBad("a,a\n1,2\n", {"line 1", "'a'"});
  ExpectBad("\"a,b\n1,2\n", {"line 1", "quote"});
  ExpectBad("\"a\"b,c\n1,2\n", {"line 1", "quote"});
  ExpectBad("a\"b,c\n1,2\n", {"line 1", "quote"});
}

TEST_F(CsvReaderTest, RefusesATableWithoutRows) {
  ExpectBad("", {"it is empty"});
  ExpectBad("\n\r\n", {"it is empty"});
  ExpectBad("a,b\n", {"no line follows"});
}

TEST_F(CsvReaderTest, TakesMemoryForWhatIsThere) {
  // Names and empty lines for 160 GB of numbers, none of which is there.
  std::string bytes = "x";
  for (int i = 1; i < 20000; ++i) bytes += ",x" + std::to_string(i);
  bytes.append(1000000, '\n');
  ExpectBad(bytes, {"no line follows"});
}

TEST_F(CsvReaderTest, RefusesWhatIsNoFile) {
  ExpectError(ReadCsv(folder_ + "/none.csv").status(), kNotFound, {"none.csv"});
  ExpectError(ReadCsv(folder_).status(), kFailedPrecondition, {folder_});
  ExpectError(ReadCsv("/dev/zero").status(), kFailedPrecondition,
              {"/dev/zero"});
}

TEST_F(CsvReaderTest, FindsColumns) {
  ASSERT_OK_AND_ASSIGN(const NumberTable table, Read("a,b\n1,2\n"));
  EXPECT_EQ(*ColumnIndex(table, "b"), 1);
  ExpectError(ColumnIndex(table, "c").status(), kInvalidArgument,
              {"'c'", "a, b"});
}

TEST_F(CsvReaderTest, ReadsWhatItWrites) {
  const NumberTable table = {
      .columns = {"plain", " with, comma ", "with \"quotes\""},
      .values = {1.0 / 3, -0.0, 1e-310, std::numeric_limits<double>::max(), 2,
                 0.1}};
  const std::string path = folder_ + "/written.csv";
  const absl::Status written = WriteCsv(table, path);
  ASSERT_TRUE(written.ok()) << written;
  ASSERT_OK_AND_ASSIGN(const NumberTable read, ReadCsv(path));
  EXPECT_EQ(read.columns, table.columns);
  EXPECT_THAT(read.values, ElementsAreArray(table.values));
  ExpectError(WriteCsv({.columns = {"two\nlines"}, .values = {1}}, path),
              kInvalidArgument, {"line end"});
  ExpectError(WriteCsv({.columns = {"a", "b"}, .values = {1}}, path),
              kInvalidArgument, {"1 numbers", "2 columns"});
  ExpectError(WriteCsv({.values = {1}}, path), kInvalidArgument, {"0 columns"});
  ExpectError(WriteCsv({.columns = {"a"}}, path), kInvalidArgument,
              {"0 numbers"});
  ExpectError(WriteCsv({.columns = {"a", "b"},
                        .values = {1, std::numeric_limits<double>::infinity()}},
                       path),
              kInvalidArgument, {"'b' has inf"});
}

}  // namespace
}  // namespace miniray::ml
