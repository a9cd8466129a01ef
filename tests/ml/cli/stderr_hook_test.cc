// What is written to stderr while somebody has a hook in it.

#include "ml/cli/stderr_hook.h"

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::ml {
namespace {

using ::testing::ElementsAre;

// What the hook passes on of what `write` writes.
template <class Write>
std::vector<std::string> Hooked(Write write) {
  std::vector<std::string> lines;
  {
    StderrHook hook(
        [&lines](absl::string_view text) { lines.emplace_back(text); });
    write();
  }
  return lines;
}

TEST(StderrHookTest, LinesAreWhole) {
  EXPECT_THAT(Hooked([] {
                std::cerr << "one " << 1 << "\ntwo";
                std::fprintf(stderr, " and\n");
                std::cerr << "begun";
              }),
              ElementsAre("one 1\n", "two and\n", "begun"));
}

TEST(StderrHookTest, ALineThatDoesNotEndIsNotKeptWhole) {
  const std::string part(1000, '.');
  // 66,000 bytes are the first that are no less than 64 KiB.
  EXPECT_THAT(
      Hooked([&] {
        for (int i = 0; i < 100; ++i) std::cerr << part;
      }),
      ElementsAre(std::string(66'000, '.') + "\n", std::string(34'000, '.')));
}

}  // namespace
}  // namespace miniray::ml
