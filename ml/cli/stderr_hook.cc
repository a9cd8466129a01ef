#include "ml/cli/stderr_hook.h"

#include <sys/types.h>

#include <cstddef>
#include <iostream>
#include <streambuf>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace miniray::ml {
namespace {

// Of a line that does not end: then what there is of it goes as one.
constexpr size_t kMaxLine = size_t{64} << 10;

ABSL_CONST_INIT absl::Mutex mu(absl::kConstInit);
// Null: there is no hook.
StderrHook::Sink* sink ABSL_GUARDED_BY(mu) = nullptr;
std::string& Pending() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
  static auto* const pending = new std::string;
  return *pending;
}

void Take(absl::string_view text) ABSL_LOCKS_EXCLUDED(mu) {
  absl::MutexLock lock(&mu);
  if (sink == nullptr) {
    std::fwrite(text.data(), 1, text.size(), RealStderr());
    return;
  }
  std::string& pending = Pending();
  pending.append(text.data(), text.size());
  size_t end = pending.rfind('\n');
  if (end == std::string::npos) {
    if (pending.size() < kMaxLine) return;
    end = pending.size();
    pending.push_back('\n');
  }
  const std::string lines = pending.substr(0, end + 1);
  pending.erase(0, end + 1);
  (*sink)(lines);
}

ssize_t TakeFromStdio(void*, const char* bytes, size_t size) {
  Take(absl::string_view(bytes, size));
  return static_cast<ssize_t>(size);
}

// For std::cerr, which knows the first `stderr` only.
class Buffer : public std::streambuf {
 protected:
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return 0;
    const char byte = traits_type::to_char_type(c);
    Take(absl::string_view(&byte, 1));
    return c;
  }
  std::streamsize xsputn(const char* bytes, std::streamsize size) override {
    Take(absl::string_view(bytes, static_cast<size_t>(size)));
    return size;
  }
};

// Once, and for good: another thread may be about to write. Without a hook all
// goes where it went.
void Redirect() {
  static const bool done = [] {
    RealStderr();  // Before it is replaced.
    cookie_io_functions_t functions = {};
    functions.write = &TakeFromStdio;
    std::FILE* const detour = fopencookie(nullptr, "w", functions);
    if (detour == nullptr) return false;
    std::setvbuf(detour, nullptr, _IOLBF, BUFSIZ);
    stderr = detour;  // glibc says that it may be.
    std::cerr.rdbuf(new Buffer);
    return true;
  }();
  (void)done;
}

}  // namespace

std::FILE* RealStderr() {
  static std::FILE* const real = stderr;
  return real;
}

StderrHook::StderrHook(Sink new_sink) {
  Redirect();
  absl::MutexLock lock(&mu);
  sink = new Sink(std::move(new_sink));
}

StderrHook::~StderrHook() {
  std::fflush(stderr);
  absl::MutexLock lock(&mu);
  std::string& pending = Pending();
  if (!pending.empty()) (*sink)(pending);
  pending.clear();
  delete sink;
  sink = nullptr;
}

}  // namespace miniray::ml
