#include "tests/runtime/base/readme_code.h"

#include <cstddef>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"

namespace miniray {
namespace {

std::string Contents(const std::string& path) {
  const auto text = ReadFile(path);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

// What stands between each `begin` and the next `end`.
std::vector<std::string> Between(const std::string& text,
                                 const std::string& begin,
                                 const std::string& end) {
  std::vector<std::string> found;
  size_t at = 0;
  while ((at = text.find(begin, at)) != std::string::npos) {
    at += begin.size();
    const size_t to = text.find(end, at);
    if (to == std::string::npos) {
      ADD_FAILURE() << "no '" << end << "' behind: " << text.substr(at, 200);
      break;
    }
    found.push_back(text.substr(at, to - at));
    at = to + end.size();
  }
  return found;
}

std::vector<std::string> ShownOf(const std::string& source) {
  std::vector<std::string> shown =
      Between(Contents(source), "// README begins.\n", "// README ends.");
  EXPECT_FALSE(shown.empty()) << source << " shows nothing";
  return shown;
}

}  // namespace

void ExpectReadmeShows(const std::string& readme, const std::string& source,
                       bool goes_on) {
  const std::vector<std::string> shown = ShownOf(source);
  if (shown.empty()) return;
  EXPECT_THAT(Contents(readme), testing::HasSubstr("```cpp\n" + shown[0] +
                                                   (goes_on ? "" : "```\n")))
      << readme;
}

void ExpectReadmeSectionShows(const std::string& readme,
                              const std::string& heading,
                              const std::vector<std::string>& sources) {
  const std::string text = Contents(readme);
  const size_t begin = text.find("\n## " + heading + "\n");
  ASSERT_NE(begin, std::string::npos)
      << readme << " has no section " << heading;
  const std::string section =
      text.substr(begin, text.find("\n## ", begin + 1) - begin);
  EXPECT_THAT(section, testing::Not(testing::ContainsRegex("\n +```")))
      << "an indented block is not compared";
  std::vector<std::string> expected;
  for (const std::string& source : sources) {
    for (const std::string& shown : ShownOf(source)) {
      expected.push_back("cpp\n" + shown);
    }
  }
  const std::vector<std::string> blocks = Between(section, "\n```", "\n```\n");
  for (size_t i = 0; i < blocks.size() && i < expected.size(); ++i) {
    EXPECT_EQ(blocks[i] + "\n", expected[i]) << "block " << i;
  }
  EXPECT_EQ(blocks.size(), expected.size()) << readme << ", " << heading;
}

}  // namespace miniray
