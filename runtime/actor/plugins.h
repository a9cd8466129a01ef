// Plug-ins: shared objects that register actor classes, strategies and the like
// in their static initialisers. They resolve against the symbols of the program
// that loads them.

#ifndef MINIRAY_RUNTIME_ACTOR_PLUGINS_H_
#define MINIRAY_RUNTIME_ACTOR_PLUGINS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace miniray {
namespace internal {

// In processes that a daemon starts: the plug-ins to load, one a line, each
// "PATH\tNAME".
inline constexpr char kPluginFilesVariable[] = "MINIRAY_PLUGIN_FILES";

// Loads a plug-in into this process; `name` is what errors call it. Errors:
// FAILED_PRECONDITION, it does not fit: another architecture, another version
// or ABI, no plug-in at all, a symbol that the program does not have.
// NOT_FOUND, there is no such file.
absl::Status LoadPlugin(const std::string& path, const std::string& name);

// A plug-in of this program.
struct PluginFile {
  std::string path;
  std::string name;  // Base name.
  // Its package at the head that started this actor; empty: this is a driver,
  // which sends it to each head that it connects to.
  std::string package_id;
};

// The plug-ins that this program was started with, which its actors get too.
// Filled before threads start.
std::vector<PluginFile>& ProgramPlugins();

// Loads plug-ins, given as paths, and adds them to ProgramPlugins. Errors: as
// of LoadPlugin.
absl::Status LoadProgramPlugins(const std::vector<std::string>& paths);

// Loads those of kPluginFilesVariable, and removes it.
absl::Status LoadListedPlugins();

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_PLUGINS_H_
