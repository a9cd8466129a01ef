#include "runtime/base/ids.h"

#include <sys/random.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace miniray {
namespace {

std::string RandomHex(size_t bytes) {
  std::string random(bytes, '\0');
  size_t done = 0;
  while (done < bytes) {
    ssize_t n = getrandom(random.data() + done, bytes - done, 0);
    if (n > 0) done += static_cast<size_t>(n);
    // EINTR is the only error that getrandom with these flags can give.
  }
  return absl::BytesToHexString(random);
}

}  // namespace

std::string NewId(absl::string_view prefix) {
  return absl::StrCat(prefix, "-", RandomHex(8));
}

std::string NewToken() { return RandomHex(32); }

}  // namespace miniray
