#!/usr/bin/env bash
# From a fresh clone to generated pictures: sets the machine up, trains a GAN on
# a small cluster of real processes, and stops it.
set -euo pipefail

# shellcheck source=SCRIPTDIR/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

EPOCHS="${MINIRAY_QUICKSTART_EPOCHS:-12}"
WORKERS=2

usage() {
  cat <<USAGE
Usage: tools/quickstart.sh [FOLDER]

Installs what is missing, builds, starts a head and ${WORKERS} worker daemons, trains a GAN
on Fashion-MNIST with a worker on each, generates 64 pictures, and stops the
cluster. The model and the pictures are left in FOLDER (default: ./quickstart).

Environment:
  MINIRAY_QUICKSTART_EPOCHS   passes over the data (default: 12)
USAGE
}

# What is running, for cleanup.
cluster=""
program=""

# Runs when the script ends, however it does.
cleanup() {
  local status=$?
  trap - EXIT
  trap '' INT TERM HUP
  if [[ -n "${program}" ]] && kill -TERM "${program}" 2>/dev/null; then
    wait "${program}" 2>/dev/null || true
  fi
  if [[ -n "${cluster}" ]]; then
    "${MINIRAY}" stop >/dev/null || status=1
    case "${status}" in
      # Done, or ended by the user: nobody wants the logs.
      0 | 129 | 130 | 143) rm -rf "${cluster}" ;;
      *) say "The cluster was stopped. Its logs: ${cluster}/session-*" ;;
    esac
  fi
  exit "${status}"
}

# run COMMAND...: runs it so that a signal to this script ends it at once.
run() {
  local status=0
  "$@" &
  program=$!
  wait "${program}" || status=$?
  program=""
  return "${status}"
}

start_cluster() {
  cluster="$(mktemp -d --tmpdir miniray-quickstart.XXXXXX)"
  # Away from any other cluster of this user.
  export MINIRAY_RUNTIME_DIR="${cluster}"
  unset MINIRAY_ADDRESS MINIRAY_TOKEN
  local output worker
  output="$("${MINIRAY}" start --head --port 0 --dashboard_port 0)"
  say "${output}"
  address="$(sed -n 's/.*miniray start --address //p' <<<"${output}")"
  for ((worker = 0; worker < WORKERS; worker++)); do
    "${MINIRAY}" start --address "${address}" --num_cpus 1
  done
}

main() {
  case "${1:-}" in
    -h | --help)
      usage
      exit 0
      ;;
    -*) die "unknown argument $1; see tools/quickstart.sh --help" ;;
  esac
  (($# <= 1)) || die "one folder at most; see tools/quickstart.sh --help"
  [[ "${EPOCHS}" =~ ^[1-9][0-9]*$ ]] ||
    die "MINIRAY_QUICKSTART_EPOCHS=${EPOCHS} is not a number of epochs"
  local folder="${1:-quickstart}"
  mkdir -p -- "${folder}" || die "cannot make the folder ${folder}"
  folder="$(cd -- "${folder}" && pwd -P)"
  [[ -w "${folder}" ]] || die "cannot write to the folder ${folder}"

  local start="${SECONDS}"
  MINIRAY="${MINIRAY_ROOT}/bazel-bin/tools/miniray"
  trap cleanup EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap 'exit 129' HUP

  "${MINIRAY_ROOT}/tools/setup.sh"  # In the foreground: it may ask for a password.
  echo
  say "Starting a cluster: a head and ${WORKERS} worker daemons."
  start_cluster
  echo
  say "Training for ${EPOCHS} epochs."
  run "${MINIRAY_ROOT}/bazel-bin/ml/train" --address "${address}" \
    --mode distributed --dataset fashion-mnist --workers "${WORKERS}" \
    --epochs "${EPOCHS}" --sync-interval 1 --save-dir "${folder}"
  echo
  say "Generating pictures."
  run "${MINIRAY_ROOT}/bazel-bin/ml/generate" --model "${folder}/generator.pt" \
    --num-images 64 --output "${folder}/generated" --seed 42

  echo
  say "Done in $(duration $((SECONDS - start)))."
  say "  model:    ${folder}/generator.pt"
  say "  pictures: ${folder}/generated/grid.png"
  say "Next: README.md shows how to train longer and on several machines."
}

main "$@"
