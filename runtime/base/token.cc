#include "runtime/base/token.h"

#include <openssl/crypto.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace miniray {

absl::Status CheckTokenText(absl::string_view token, absl::string_view source) {
  if (!std::all_of(token.begin(), token.end(), [](char c) {
        return absl::ascii_isgraph(static_cast<unsigned char>(c));
      })) {
    return absl::InvalidArgumentError(absl::StrCat(
        source, ": a token is letters, digits and punctuation in one line"));
  }
  if (token.size() > kMaxTokenBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": a token has at most ", kMaxTokenBytes,
                     " characters; this one has ", token.size()));
  }
  return absl::OkStatus();
}

bool TokensMatch(absl::string_view given, absl::string_view token) {
  return given.size() == token.size() &&
         CRYPTO_memcmp(given.data(), token.data(), token.size()) == 0;
}

}  // namespace miniray
