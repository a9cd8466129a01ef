#include "ml/cli/blas_check.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::ml {
namespace {

using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string WarningFor(const std::string& blas) {
  const std::vector<std::string> libraries = {"/usr/lib/libc.so.6", blas,
                                              "/usr/lib/libz.so.1"};
  return BlasWarningFor(libraries);
}

TEST(BlasCheckTest, WarnsOfTheReferenceBlas) {
  const std::string warning =
      WarningFor("/usr/lib/x86_64-linux-gnu/blas/libblas.so.3.11.0");
  EXPECT_THAT(warning, StartsWith("warning: /usr/lib/x86_64-linux-gnu/blas/"));
  EXPECT_THAT(warning, HasSubstr("20 times"));
  EXPECT_THAT(warning, EndsWith("apt-get install libopenblas0-openmp"));
}

TEST(BlasCheckTest, WarnsOfTheBuildThatIgnoresThreads) {
  EXPECT_THAT(
      WarningFor("/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3"),
      HasSubstr("--threads"));
}

TEST(BlasCheckTest, IsSilentAboutTheRest) {
  for (const char* path :
       {"/usr/lib/x86_64-linux-gnu/openblas-openmp/libblas.so.3",
        "/usr/lib/x86_64-linux-gnu/openblas-serial/libblas.so.3",
        "/usr/lib/x86_64-linux-gnu/blis-openmp/libblas.so.4",
        "/opt/libtorch/lib/libtorch_cpu.so"}) {
    EXPECT_EQ(WarningFor(path), "") << path;
  }
  EXPECT_EQ(BlasWarningFor({}), "");
}

TEST(BlasCheckTest, SeesTheLibrariesOfThisProcess) {
  EXPECT_THAT(LoadedLibraries(), Contains(HasSubstr("libc.so")));
}

}  // namespace
}  // namespace miniray::ml
