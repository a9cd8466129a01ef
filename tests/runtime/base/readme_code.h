// Code that a README.md shows, and a test compiles.

#ifndef MINIRAY_TESTS_RUNTIME_BASE_README_CODE_H_
#define MINIRAY_TESTS_RUNTIME_BASE_README_CODE_H_

#include <string>
#include <vector>

namespace miniray {

// What is shown of a source stands between "// README begins." and "// README
// ends.", as often as there are blocks. Paths are from the root of the
// repository; README and sources are the test's data.

// Expects that the README has a block of C++ that is, to the letter, the first
// that the source shows. goes_on: the block may have more after it.
void ExpectReadmeShows(const std::string& readme, const std::string& source,
                       bool goes_on = false);

// Expects that the blocks of code in the README's section "## `heading`", up to
// the next section, are to the letter all that the sources show, in this order:
// a block that no source has is a failure, as is one of another language.
void ExpectReadmeSectionShows(const std::string& readme,
                              const std::string& heading,
                              const std::vector<std::string>& sources);

}  // namespace miniray

#endif  // MINIRAY_TESTS_RUNTIME_BASE_README_CODE_H_
