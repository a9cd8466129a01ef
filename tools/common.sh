# shellcheck shell=bash
# What the scripts in tools/ share. Source it; it runs nothing by itself.

# The repository, whatever folder the script is called from.
# shellcheck disable=SC2034  # Used by the scripts that source this.
MINIRAY_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"

say() {
  printf '%s\n' "$*"
}

# die MESSAGE...: ends the script with one line that says what to do.
die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# Bazel, in the output folder that MINIRAY_OUTPUT_BASE names, if it does. Work
# trees that share one build one after the other, and the next compiles only
# what differs from the last: there Bazel knows which headers a file really
# includes, which the disk cache does not.
bazel() {
  command bazel ${MINIRAY_OUTPUT_BASE:+"--output_base=${MINIRAY_OUTPUT_BASE}"} "$@"
}

# Memory that this machine or container may use, in MiB.
memory_mib() {
  local kib limit file
  kib="$(awk '/^MemTotal:/ {print $2}' /proc/meminfo)"
  local mib=$((kib / 1024))
  for file in /sys/fs/cgroup/memory.max \
    /sys/fs/cgroup/memory/memory.limit_in_bytes; do
    if [[ -r "${file}" ]]; then
      limit="$(<"${file}")"
      # "max", or a number too long to be a limit, means none.
      if [[ "${limit}" =~ ^[0-9]{1,15}$ ]] && ((limit / 1048576 < mib)); then
        mib=$((limit / 1048576))
      fi
    fi
  done
  echo "${mib}"
}

# Sets BAZEL_FLAGS to what a build or a test run on this machine needs.
set_bazel_flags() {
  BAZEL_FLAGS=()
  # Without a terminal, a progress line now and then instead of many a second.
  if [[ ! -t 2 ]]; then
    BAZEL_FLAGS+=(--curses=no --color=no --show_progress_rate_limit=30)
  fi
  # One file that includes torch/torch.h takes 1 GB to compile.
  if (($(memory_mib) < 6144)); then
    say "Less than 6 GB of memory: compiling one file at a time."
    BAZEL_FLAGS+=(--jobs=1)
  fi
}

# duration SECONDS: 75 becomes "1 min 15 s".
duration() {
  if (($1 < 60)); then
    echo "$1 s"
  else
    echo "$(($1 / 60)) min $(($1 % 60)) s"
  fi
}
