// A fresh folder under TEST_TMPDIR, removed at the end.

#ifndef MINIRAY_TESTS_RUNTIME_BASE_TEMP_FOLDER_H_
#define MINIRAY_TESTS_RUNTIME_BASE_TEMP_FOLDER_H_

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "gtest/gtest.h"

namespace miniray {

class TempFolder {
 public:
  TempFolder() : path_(::testing::TempDir() + "/t-XXXXXX") {
    EXPECT_NE(mkdtemp(path_.data()), nullptr) << path_;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const {
    return path_ + "/" + name;
  }

  // Names of what it holds, sorted.
  std::vector<std::string> List() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
};

}  // namespace miniray

#endif  // MINIRAY_TESTS_RUNTIME_BASE_TEMP_FOLDER_H_
