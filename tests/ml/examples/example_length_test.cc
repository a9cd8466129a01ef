// Examples are to be read on one page.

#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"

namespace miniray::ml {
namespace {

class ExampleLengthTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ExampleLengthTest, FitsAPage) {
  const std::string path =
      absl::StrCat(std::getenv("TEST_SRCDIR"), "/",
                   std::getenv("TEST_WORKSPACE"), "/ml/examples/", GetParam());
  const absl::StatusOr<std::string> text = ReadFile(path);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_FALSE(text->empty());
  EXPECT_LT(std::count(text->begin(), text->end(), '\n'), 60) << path;
}

INSTANTIATE_TEST_SUITE_P(Pages, ExampleLengthTest,
                         ::testing::Values("classification.cc",
                                           "custom_trainer.cc", "gan.cc",
                                           "median_plugin.cc",
                                           "parameter_server_demo.cc",
                                           "regression.cc"),
                         [](const auto& info) {
                           const std::string name = info.param;
                           return name.substr(0, name.find('.'));
                         });

}  // namespace
}  // namespace miniray::ml
