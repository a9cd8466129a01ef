#!/bin/sh
# usage: embed_assets.sh FILE... : writes C++ that defines EmbeddedFiles()
# (assets.h). Each byte is a number: string literals have a limit of length, and
# would need a way around whatever ends them.
set -eu

cat <<'END'
#include <cstddef>

#include "runtime/dashboard/assets.h"

namespace miniray {
namespace {

absl::string_view View(const unsigned char* bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

END
number=0
for file in "$@"; do
  # The 0 at the end, which does not count, is for a file without bytes.
  echo "const unsigned char kFile${number}[] = {"
  od -An -v -tu1 "${file}" | sed 's/[0-9][0-9]*/&,/g'
  echo "0};"
  number=$((number + 1))
done
cat <<'END'

}  // namespace

std::vector<EmbeddedFile> EmbeddedFiles() {
  return {
END
number=0
for file in "$@"; do
  echo "      {\"$(basename "${file}")\","
  echo "       View(kFile${number}, sizeof(kFile${number}) - 1)},"
  number=$((number + 1))
done
cat <<'END'
  };
}

}  // namespace miniray
END
