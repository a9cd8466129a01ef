#!/usr/bin/env bash
# Formats the C++ and protobuf files that git knows, or checks that they are.
set -euo pipefail

# shellcheck source=SCRIPTDIR/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'USAGE'
Usage: tools/format.sh [--check] [FILE...]

Runs clang-format 14 over every tracked *.h, *.cc and *.proto, or over FILEs.

  --check   change nothing; name the files that are not formatted, exit 1
USAGE
}

# Prints the files to format, each ended by a NUL byte.
list_files() {
  if (($# > 0)); then
    printf '%s\0' "$@"
    return
  fi
  cd "${MINIRAY_ROOT}"
  # A file deleted but not yet committed is still tracked.
  git -c "safe.directory=${MINIRAY_ROOT}" ls-files -z --deduplicate -- \
    '*.h' '*.cc' '*.proto' |
    while IFS= read -r -d '' file; do
      if [[ -f "${file}" ]]; then
        printf '%s\0' "${MINIRAY_ROOT}/${file}"
      fi
    done
}

find_clang_format() {
  local program
  for program in clang-format-14 clang-format; do
    if command -v "${program}" >/dev/null; then
      if "${program}" --version | grep -q 'version 14\.'; then
        echo "${program}"
        return
      fi
      die "$("${program}" --version) is not version 14, whose layout this" \
        "repository has. Install it: apt-get install clang-format-14"
    fi
  done
  die "clang-format was not found. Install it: apt-get install clang-format," \
    "or run tools/setup.sh"
}

# check_one PROGRAM FILE: names the file where its layout differs.
check_one() {
  if ! "$1" "$2" | cmp -s - "$2"; then
    echo "not formatted: ${2#"${MINIRAY_ROOT}/"}"
    return 1
  fi
}
export -f check_one
export MINIRAY_ROOT

main() {
  local check=0 files=() program
  while (($# > 0)); do
    case "$1" in
      --check) check=1 ;;
      -h | --help)
        usage
        exit 0
        ;;
      -*) die "unknown argument $1; see tools/format.sh --help" ;;
      *) files+=("$(realpath "$1")") ;;
    esac
    shift
  done
  program="$(find_clang_format)"
  list="$(mktemp)"  # Global: the trap runs after main.
  trap 'rm -f "${list}"' EXIT
  list_files "${files[@]}" >"${list}"
  if ((check)); then
    # shellcheck disable=SC2016  # The inner shell expands them.
    xargs -0 -r -n 1 -P "$(nproc)" bash -c 'check_one "$0" "$1"' "${program}" \
      <"${list}" || die "correct the files named above with: tools/format.sh"
    say "Every file is formatted."
  else
    xargs -0 -r -n 8 -P "$(nproc)" "${program}" -i <"${list}"
  fi
}

main "$@"
