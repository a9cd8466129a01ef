// A strategy that a user builds in a workspace of his own, as README.md and
// ps/README.md say it, is one that a program of ours trains with.

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/integration/process_tools.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;

// As this program is built, or it would refuse the plug-in.
#if defined(__SANITIZE_ADDRESS__)
constexpr char kConfig[] = "--config=asan";
#elif defined(__SANITIZE_THREAD__)
constexpr char kConfig[] = "--config=tsan";
#else
constexpr char kConfig[] = "--config=opt";
#endif

// The first block of code in that language in the section "## `heading`".
std::string Block(const std::string& readme, const std::string& heading,
                  const std::string& language) {
  const std::string text = *ReadFile(BuiltProgram(readme));
  const std::string fence = absl::StrCat("```", language, "\n");
  size_t begin = text.find(absl::StrCat("\n## ", heading, "\n"));
  if (begin != std::string::npos) begin = text.find(fence, begin);
  if (begin == std::string::npos) {
    ADD_FAILURE() << readme << " has no " << language << " in " << heading;
    return "";
  }
  begin += fence.size();
  return text.substr(begin, text.find("```", begin) - begin);
}

void Write(const std::string& path, const std::string& text) {
  const absl::Status status = WriteFileAtomically(path, text);
  ASSERT_TRUE(status.ok()) << status;
}

TEST(OutsideWorkspaceTest, AStrategyOfItsOwnIsTrainedWith) {
  ProcessTree tree;
  const std::string folder = tree.folder() + "/my_project";
  std::filesystem::create_directories(folder + "/my");
  // The runfiles are links to the checkout.
  const std::string checkout =
      std::filesystem::canonical(BuiltProgram("README.md"))
          .parent_path()
          .string();
  Write(folder + "/WORKSPACE",
        absl::StrReplaceAll(
            Block("README.md", "A workspace of your own", "python"),
            {{"/path/to/mini-ray", checkout}}));
  Write(folder + "/.bazelrc", *ReadFile(BuiltProgram(".bazelrc")));
  Write(folder + "/my/BUILD.bazel",
        Block("ps/README.md", "A strategy of your own", "python"));
  Write(folder + "/my/lower_median.cc",
        absl::StrCat("#include <tuple>\n"
                     "#include \"ATen/ops/median.h\"\n"
                     "#include \"ATen/ops/stack.h\"\n"
                     "#include \"ps/strategy_registry.h\"\n"
                     "#include \"ps/sync_strategy.h\"\n"
                     "#include \"ps/tensor_math.h\"\n",
                     Block("ps/README.md", "A strategy of your own", "cpp")));

  // Nothing of this user's folders, and nothing left behind.
  const RunResult built = tree.Run(
      {"/usr/bin/env", "--chdir=" + folder, "bazel", "--batch",
       "--output_user_root=" + tree.folder() + "/bazel", "build", kConfig,
       "--disk_cache=", "--jobs=1", "--noshow_progress", "//my:lower_median"});
  ASSERT_EQ(built.exit_code, 0) << built.out << built.err;

  const RunResult trained =
      tree.Run({BuiltProgram("ml/train"), "--mode=distributed", "--workers=3",
                "--epochs=1", "--dataset=synthetic", "--limit=384",
                "--sync-strategy=lower_median",
                "--plugin=" + folder + "/bazel-bin/my/liblower_median.so",
                "--save-dir=" + tree.folder() + "/model"});
  EXPECT_EQ(trained.exit_code, 0) << trained.out << trained.err;
  EXPECT_THAT(trained.out, HasSubstr("on 3 workers, lower_median every"));
  EXPECT_THAT(trained.out, HasSubstr("synced"));
  EXPECT_TRUE(tree.WaitForCount(0)) << tree.Living().size() << " are left";
}

}  // namespace
}  // namespace miniray
