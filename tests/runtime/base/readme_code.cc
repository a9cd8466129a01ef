#include "tests/runtime/base/readme_code.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"

namespace miniray {

void ExpectReadmeShows(const std::string& readme, const std::string& source,
                       bool goes_on) {
  const auto code = ReadFile(source);
  ASSERT_TRUE(code.ok()) << code.status();
  const auto text = ReadFile(readme);
  ASSERT_TRUE(text.ok()) << text.status();
  const std::string begin = "// README begins.\n";
  const size_t from = code->find(begin);
  const size_t to = code->find("// README ends.");
  ASSERT_NE(from, std::string::npos) << source;
  ASSERT_NE(to, std::string::npos) << source;
  const size_t first = from + begin.size();
  EXPECT_THAT(*text,
              testing::HasSubstr("```cpp\n" + code->substr(first, to - first) +
                                 (goes_on ? "" : "```\n")))
      << readme;
}

}  // namespace miniray
