// Text in a command or an address that is shown to a user.

#ifndef MINIRAY_TOOLS_CLI_SHELL_WORD_H_
#define MINIRAY_TOOLS_CLI_SHELL_WORD_H_

#include <string>

namespace miniray::cli {

// As it is, or in quotes, so that a shell reads it as one word.
std::string ShellWord(const std::string& text);

// For behind "?name=" in an address, so that whoever reads that gets `text`:
// all but letters, digits, '-', '.', '_' and '~' as "%XX".
std::string QueryValue(const std::string& text);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_SHELL_WORD_H_
