#!/usr/bin/env bash
# Fetches CIFAR-10 in its binary version from its authors' site.
set -euo pipefail

# shellcheck source=SCRIPTDIR/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

readonly OFFICIAL_URL="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
readonly OFFICIAL_SHA256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"

usage() {
  cat <<USAGE
Usage: tools/fetch_cifar10.sh [--url URL] [--sha256 HASH] DIR

Brings CIFAR-10 (binary version, 162 MiB) to the folder DIR, checks its SHA-256
and unpacks it, for programs that take --dataset=cifar10 --data-dir=DIR. What is
there already is not fetched again. Read what its authors ask for, first:
https://www.cs.toronto.edu/~kriz/cifar.html

  --url URL      from somewhere else; file:///... works, too
                 (default ${OFFICIAL_URL})
  --sha256 HASH  of another archive (default: the official one's)
USAGE
}

readonly FILES=(batches.meta.txt data_batch_1.bin data_batch_2.bin
  data_batch_3.bin data_batch_4.bin data_batch_5.bin test_batch.bin)

# True if all files are there, those of images with whole ones: a label and 3072
# bytes each.
is_complete() {
  local file size
  for file in "${FILES[@]}"; do
    size="$(stat --format=%s "$1/cifar-10-batches-bin/${file}" 2>/dev/null)" ||
      return 1
    ((size > 0)) || return 1
    [[ "${file}" != *.bin ]] || ((size % 3073 == 0)) || return 1
  done
}

main() {
  local url="${OFFICIAL_URL}" sha256="${OFFICIAL_SHA256}" dir=""
  while (($# > 0)); do
    case "$1" in
      -h | --help)
        usage
        return
        ;;
      --url | --sha256)
        (($# > 1)) || die "$1 needs a value; see --help"
        if [[ "$1" == --url ]]; then url="$2"; else sha256="$2"; fi
        shift 2
        ;;
      -*) die "unknown flag $1; see --help" ;;
      *)
        [[ -z "${dir}" ]] || die "one folder is expected, not '$1' too; see --help"
        dir="$1"
        shift
        ;;
    esac
  done
  [[ -n "${dir}" ]] || die "the folder is missing; see --help"
  if is_complete "${dir}"; then
    say "CIFAR-10 is in ${dir} already."
    return
  fi
  command -v curl >/dev/null || die "it needs curl: apt-get install curl"
  mkdir -p "${dir}"

  # Beside it, so that half an archive is never taken for one.
  temporary="$(mktemp -d "${dir}/.fetch-XXXXXX")"
  trap 'rm -rf "${temporary}"' EXIT
  curl --fail --location --retry 3 --show-error --silent \
    --connect-timeout 30 --speed-limit 1000 --speed-time 60 \
    --output "${temporary}/archive.tar.gz" "${url}" ||
    die "cannot fetch ${url}: is there a network? Fetch it elsewhere, and give" \
      "--url file:///path/cifar-10-binary.tar.gz"
  local found
  found="$(sha256sum "${temporary}/archive.tar.gz" | cut -d ' ' -f 1)"
  [[ "${found}" == "${sha256,,}" ]] ||
    die "what came from ${url} has SHA-256 ${found} instead of ${sha256,,}:" \
      "it is damaged, or another file; nothing was unpacked"
  tar -xzf "${temporary}/archive.tar.gz" -C "${temporary}" --no-same-owner
  is_complete "${temporary}" ||
    die "the archive of ${url} lacks files of cifar-10-batches-bin, or has" \
      "broken ones"
  rm -rf "${dir}/cifar-10-batches-bin"
  mv "${temporary}/cifar-10-batches-bin" "${dir}/"
  say "CIFAR-10 is in ${dir}; train with --dataset=cifar10 --data-dir=${dir}"
}

main "$@"
