// README.md's first program does what README.md says.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/integration/process_tools.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;

TEST(ReadmeTest, TheFirstProgramIsShownAsItIsTested) {
  std::string code =
      *ReadFile(BuiltProgram("tests/integration/readme_counter.cc"));
  code.erase(0, code.find('\n') + 1);  // The comment about this test.
  EXPECT_THAT(*ReadFile(BuiltProgram("README.md")),
              HasSubstr("```cpp\n" + code + "```"));
}

TEST(ReadmeTest, TheFirstProgramPrintsEight) {
  ProcessTree tree;
  const RunResult result =
      tree.Run({BuiltProgram("tests/integration/readme_counter")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "8\n");
  EXPECT_TRUE(tree.WaitForCount(0)) << tree.Living().size() << " are left";
}

}  // namespace
}  // namespace miniray
