// Code that a README.md shows, and a test compiles.

#ifndef MINIRAY_TESTS_RUNTIME_BASE_README_CODE_H_
#define MINIRAY_TESTS_RUNTIME_BASE_README_CODE_H_

#include <string>

namespace miniray {

// Expects that the README has a block of C++ that is, to the letter, what
// stands in the source between "// README begins." and "// README ends.".
// goes_on: the block may have more after it. Paths are from the root of the
// repository; both files are the test's data.
void ExpectReadmeShows(const std::string& readme, const std::string& source,
                       bool goes_on = false);

}  // namespace miniray

#endif  // MINIRAY_TESTS_RUNTIME_BASE_README_CODE_H_
