// A progress bar of a program whose words a test reads.

#ifndef MINIRAY_TESTS_ML_CLI_TEXT_BAR_H_
#define MINIRAY_TESTS_ML_CLI_TEXT_BAR_H_

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "ml/cli/progress_bar.h"

namespace miniray::ml {

// Draws nothing, and keeps what is printed. Not thread-safe.
class TextBar {
 public:
  ProgressBar* get() { return &bar_; }
  // So far.
  std::string text() {
    std::fflush(memory_.file);
    return std::string(memory_.bytes, memory_.size);
  }

 private:
  struct Memory {
    Memory() : file(open_memstream(&bytes, &size)) {}
    ~Memory() {
      std::fclose(file);
      std::free(bytes);
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    char* bytes = nullptr;
    size_t size = 0;
    std::FILE* file;  // Last: it sets the others.
  };

  Memory memory_;
  ProgressBar bar_{{.text = memory_.file, .draw = false}};
};

}  // namespace miniray::ml

#endif  // MINIRAY_TESTS_ML_CLI_TEXT_BAR_H_
