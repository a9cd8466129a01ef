// What the help of all verbs that ask a head has in common.

#ifndef MINIRAY_TOOLS_CLI_VERB_HELP_H_
#define MINIRAY_TOOLS_CLI_VERB_HELP_H_

#include <set>
#include <string>

namespace miniray::cli {

// `text`, the flags that say which head and how, `examples`.
std::string HeadVerbHelp(const std::string& text, const std::string& examples);

// `flags`, and those.
std::set<std::string> WithHeadFlags(std::set<std::string> flags);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_VERB_HELP_H_
