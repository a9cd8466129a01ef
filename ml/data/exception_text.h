// What an exception of LibTorch says, for a status.

#ifndef MINIRAY_ML_DATA_EXCEPTION_TEXT_H_
#define MINIRAY_ML_DATA_EXCEPTION_TEXT_H_

#include <exception>
#include <string>

namespace miniray::ml {

// Returns the first line of its text: LibTorch adds a backtrace.
inline std::string FirstLine(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace miniray::ml

#endif  // MINIRAY_ML_DATA_EXCEPTION_TEXT_H_
