#include "runtime/actor/plugins.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "runtime/base/files.h"
#include "runtime/base/plugin_abi.h"
#include "runtime/base/status_macros.h"

// Of the LibTorch that this program was compiled with, as "1.13.0". In
// runtime/tensor; null in programs without that, which this library is in, too.
extern "C" [[gnu::weak]] const char* MinirayLibTorchVersion();

namespace miniray {
namespace internal {
namespace {

// As tools/bazel/plugin_libtorch.cc has it.
constexpr absl::string_view kLibTorchBegin = "<miniray-plugin-libtorch:";

constexpr absl::string_view kUndefined = "undefined symbol: ";

struct Machine {
  int bits = 0;
  int number = 0;  // ELF's e_machine.
};

// Errors: FAILED_PRECONDITION, it is no shared object or program.
absl::StatusOr<Machine> MachineOf(absl::string_view file) {
  // The fields used here lie at the same place in 32-bit files.
  Elf64_Ehdr header;
  if (file.size() < sizeof(header) || memcmp(file.data(), ELFMAG, SELFMAG)) {
    return absl::FailedPreconditionError("it is no shared object");
  }
  memcpy(&header, file.data(), sizeof(header));
  Machine machine;
  machine.bits = header.e_ident[EI_CLASS] == ELFCLASS32 ? 32 : 64;
  machine.number = header.e_machine;
  // Of the other byte order.
  if (header.e_ident[EI_DATA] == ELFDATA2MSB) {
    machine.number = (machine.number & 0xff) << 8 | machine.number >> 8;
  }
  return machine;
}

std::string ToString(const Machine& machine) {
  std::string name;
  switch (machine.number) {
    case EM_X86_64:
      name = "x86-64";
      break;
    case EM_386:
      name = "x86";
      break;
    case EM_AARCH64:
      name = "AArch64";
      break;
    case EM_ARM:
      name = "ARM";
      break;
    case EM_RISCV:
      name = "RISC-V";
      break;
    case EM_PPC64:
      name = "PowerPC";
      break;
    case EM_S390:
      name = "s390";
      break;
    default:
      name = absl::StrCat("ELF machine ", machine.number);
  }
  return absl::StrCat(name, " (", machine.bits, " bits)");
}

// The beginning of a file: its ELF header. Errors: those of the system.
absl::StatusOr<std::string> ReadStart(const std::string& path) {
  const ScopedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string bytes(sizeof(Elf64_Ehdr), '\0');
  const ssize_t n =
      fd.valid() ? read(fd.get(), bytes.data(), bytes.size()) : -1;
  if (n < 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
  bytes.resize(static_cast<size_t>(n));
  return bytes;
}

// What stands in a file between `begin` and ">"; empty: nothing does.
absl::string_view TextAfter(absl::string_view file, absl::string_view begin) {
  const size_t at = file.find(begin);
  if (at == absl::string_view::npos) return "";
  const absl::string_view text = file.substr(at + begin.size(), 500);
  return text.substr(0, text.find(MINIRAY_ABI_END_));
}

// What was built with one LibTorch finds the symbols of another, and crashes:
// the classes of both have other sizes.
absl::Status CheckLibTorch(absl::string_view file) {
  const absl::string_view built = TextAfter(file, kLibTorchBegin);
  if (built.empty() || MinirayLibTorchVersion == nullptr) {
    return absl::OkStatus();
  }
  const absl::string_view own = MinirayLibTorchVersion();
  if (built == own) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("it is built for LibTorch ", built,
                   ", and this program has LibTorch ", own, "; build it anew"));
}

// "undefined symbol: _ZN3foo3barEv" with the symbol as C++ has it beside it.
std::string Readable(const std::string& error) {
  const size_t at = error.find(kUndefined.data(), 0, kUndefined.size());
  if (at == std::string::npos) return error;
  const std::string symbol = error.substr(at + kUndefined.size());
  int status = 0;
  char* const demangled =
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
  std::string text =
      status == 0 ? absl::StrCat(error, " (", demangled, ")") : error;
  std::free(demangled);
  return absl::StrCat(text,
                      "; the program that loads it does not have that symbol");
}

absl::Status Load(const std::string& path, const std::string& name) {
  {
    MR_ASSIGN_OR_RETURN(const std::string file, ReadFile(path));
    MR_ASSIGN_OR_RETURN(const Machine machine, MachineOf(file));
    MR_ASSIGN_OR_RETURN(const std::string program, ReadStart("/proc/self/exe"));
    MR_ASSIGN_OR_RETURN(const Machine own, MachineOf(program));
    if (machine.bits != own.bits || machine.number != own.number) {
      return absl::FailedPreconditionError(
          absl::StrCat("it is built for ", ToString(machine),
                       ", and this machine is ", ToString(own)));
    }
    const absl::string_view abi = TextAfter(file, MINIRAY_ABI_BEGIN_);
    if (abi.empty()) {
      return absl::FailedPreconditionError(
          "it is no plug-in: it must include runtime/api/miniray.h (see "
          "mr_cc_plugin in tools/bazel/rules.bzl)");
    }
    if (abi != MINIRAY_ABI_) {
      return absl::FailedPreconditionError(
          absl::StrCat("it is built for \"", abi, "\", and this program is \"",
                       MINIRAY_ABI_, "\"; build it anew"));
    }
    MR_RETURN_IF_ERROR(CheckLibTorch(file));
  }
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) {
    return absl::OkStatus();
  }
  const char* const error = dlerror();
  return absl::FailedPreconditionError(
      Readable(absl::StrReplaceAll(error == nullptr ? "dlopen failed" : error,
                                   {{path + ": ", ""}, {path, name}})));
}

}  // namespace

absl::Status LoadPlugin(const std::string& path, const std::string& name) {
  return Annotate(Load(path, name), absl::StrCat("plug-in ", name));
}

std::vector<PluginFile>& ProgramPlugins() {
  static auto* const plugins = new std::vector<PluginFile>;
  return *plugins;
}

absl::Status LoadProgramPlugins(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    const size_t slash = path.rfind('/');
    const std::string name =
        slash == std::string::npos ? path : path.substr(slash + 1);
    // dlopen would look elsewhere for a name without a slash.
    const std::string file =
        slash == std::string::npos ? absl::StrCat("./", path) : path;
    MR_RETURN_IF_ERROR(LoadPlugin(file, name));
    ProgramPlugins().push_back({.path = file, .name = name});
  }
  return absl::OkStatus();
}

absl::Status LoadListedPlugins() {
  const char* const list = std::getenv(kPluginFilesVariable);
  if (list == nullptr) return absl::OkStatus();
  const std::string lines = list;
  unsetenv(kPluginFilesVariable);
  for (absl::string_view line :
       absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(line, absl::MaxSplits('\t', 1));
    MR_RETURN_IF_ERROR(LoadPlugin(parts.first, parts.second));
  }
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace miniray
