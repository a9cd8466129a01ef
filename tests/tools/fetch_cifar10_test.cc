// tools/fetch_cifar10.sh, with archives from the disk.

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/integration/process_tools.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kSomeHash[] =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

class FetchCifar10Test : public ::testing::Test {
 protected:
  RunResult Fetch(std::vector<std::string> args) {
    args.insert(args.begin(), BuiltProgram("tools/fetch_cifar10.sh"));
    return tree_.Run(args);
  }
  // An archive with these files; returns its path.
  std::string Archive(const std::vector<std::string>& files) {
    const std::string folder = tree_.folder() + "/cifar-10-batches-bin";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    for (const std::string& file : files) {
      EXPECT_TRUE(WriteFileAtomically(folder + "/" + file, Content(file)).ok());
    }
    const std::string archive = tree_.folder() + "/archive.tar.gz";
    EXPECT_EQ(tree_
                  .Run({"/bin/tar", "-czf", archive, "-C", tree_.folder(),
                        "cifar-10-batches-bin"})
                  .exit_code,
              0);
    return archive;
  }
  // Two images where a file has some.
  static std::string Content(const std::string& file) {
    std::string content = file;
    if (absl::EndsWith(file, ".bin")) content.resize(size_t{2} * 3073);
    return content;
  }
  // What the folder has, but for the data.
  std::vector<std::string> Beside() const {
    std::vector<std::string> names;
    if (!std::filesystem::exists(data_)) return names;
    for (const auto& entry : std::filesystem::directory_iterator(data_)) {
      if (entry.path().filename() != "cifar-10-batches-bin") {
        names.push_back(entry.path().filename().string());
      }
    }
    return names;
  }

  const std::vector<std::string> kAll = {"batches.meta.txt", "data_batch_1.bin",
                                         "data_batch_2.bin", "data_batch_3.bin",
                                         "data_batch_4.bin", "data_batch_5.bin",
                                         "test_batch.bin"};
  ProcessTree tree_;
  const std::string data_ = tree_.folder() + "/data";
};

TEST_F(FetchCifar10Test, UnpacksWhatHasTheHash) {
  const std::string archive = Archive(kAll);
  const std::string hash = *Sha256OfFile(archive);
  const RunResult fetched =
      Fetch({"--url", "file://" + archive, "--sha256", hash, data_});
  ASSERT_EQ(fetched.exit_code, 0) << fetched.err;
  EXPECT_THAT(fetched.out, HasSubstr("--data-dir=" + data_));
  for (const std::string& file : kAll) {
    EXPECT_EQ(*ReadFile(data_ + "/cifar-10-batches-bin/" + file),
              Content(file));
  }
  EXPECT_THAT(Beside(), IsEmpty());

  // Once more: nothing is fetched.
  const RunResult again = Fetch({"--url", "file:///none", data_});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("already"));
  // What lost a file, or a part of one, is fetched anew.
  const std::string last = data_ + "/cifar-10-batches-bin/test_batch.bin";
  for (const bool lost : {true, false}) {
    if (lost) {
      std::filesystem::remove(last);
    } else {
      std::filesystem::resize_file(last, 5000);
    }
    const RunResult mended =
        Fetch({"--url", "file://" + archive, "--sha256", hash, data_});
    EXPECT_EQ(mended.exit_code, 0) << mended.err;
    EXPECT_EQ(*ReadFile(last), Content("test_batch.bin"));
  }
}

TEST_F(FetchCifar10Test, RefusesWhatHasAnotherHash) {
  const std::string archive = Archive(kAll);
  const RunResult official = Fetch({"--url", "file://" + archive, data_});
  EXPECT_EQ(official.exit_code, 1);
  EXPECT_THAT(official.err, AllOf(HasSubstr(*Sha256OfFile(archive)),
                                  HasSubstr("instead of c4a38c50a1bc5f3a"),
                                  HasSubstr("nothing was unpacked")));
  EXPECT_FALSE(std::filesystem::exists(data_ + "/cifar-10-batches-bin"));
  EXPECT_THAT(Beside(), IsEmpty());
}

TEST_F(FetchCifar10Test, RefusesWhatIsNotAllOfIt) {
  const std::string archive = Archive({"test_batch.bin"});
  const RunResult result = Fetch({"--url", "file://" + archive, "--sha256",
                                  *Sha256OfFile(archive), data_});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("lacks files"));
  EXPECT_FALSE(std::filesystem::exists(data_ + "/cifar-10-batches-bin"));
  EXPECT_THAT(Beside(), IsEmpty());
}

TEST_F(FetchCifar10Test, SaysWhatIsWrong) {
  const RunResult unreachable =
      Fetch({"--url", "file:///no/such.tar.gz", "--sha256", kSomeHash, data_});
  EXPECT_EQ(unreachable.exit_code, 1);
  EXPECT_THAT(unreachable.err, HasSubstr("cannot fetch file:///no/such"));
  EXPECT_THAT(Fetch({}).err, HasSubstr("the folder is missing"));
  EXPECT_THAT(Fetch({"--uri", "x", data_}).err,
              HasSubstr("unknown flag --uri"));
  EXPECT_THAT(Fetch({data_, "more"}).err, HasSubstr("not 'more' too"));
  EXPECT_THAT(Fetch({"--url"}).err, HasSubstr("--url needs a value"));
  const RunResult help = Fetch({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("Usage: tools/fetch_cifar10.sh"));
}

}  // namespace
}  // namespace miniray
