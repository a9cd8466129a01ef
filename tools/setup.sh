#!/usr/bin/env bash
# Prepares a Debian 12 machine for Mini-Ray: installs the packages of
# tools/packages.txt that are missing, selects the right BLAS, builds.
set -euo pipefail

# shellcheck source=SCRIPTDIR/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'USAGE'
Usage: tools/setup.sh [--no-build | --node]

Installs what Mini-Ray needs from Debian's packages (as root, or through sudo;
only what is missing) and builds its programs. Run it again at any time.

  --no-build   install only
  --node       install only what nodes need, which get their programs from
               elsewhere: nothing that builds or tests
USAGE
}

check_system() {
  local name="an unknown system" id="" version=""
  if [[ -r /etc/os-release ]]; then
    # shellcheck disable=SC1091
    name="$(. /etc/os-release && echo "${PRETTY_NAME:-${ID:-}}")"
    # shellcheck disable=SC1091
    id="$(. /etc/os-release && echo "${ID:-}")"
    # shellcheck disable=SC1091
    version="$(. /etc/os-release && echo "${VERSION_ID:-}")"
  fi
  if [[ "${id}" != debian || "${version}" != 12 ]] ||
    ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    die "this is ${name}; Mini-Ray is built with the packages of Debian 12" \
      "(bookworm). Run it there, for example in a debian:12 container."
  fi
}

# Prints the names in packages.txt, one a line; with NODE_ONLY, those of the sections
# that programs need to run.
wanted_packages() {
  awk -v node_only="${NODE_ONLY}" '
    /^#/ { for_nodes = /^# (Runtime|Training):/; next }
    NF && (!node_only || for_nodes) { print $1 }
  ' "${MINIRAY_ROOT}/tools/packages.txt"
}

# Prints the packages that are not installed, one a line.
missing_packages() {
  local package status
  while read -r package; do
    status="$(dpkg-query --show --showformat='${db:Status-Status}' \
      "${package}" 2>/dev/null || true)"
    if [[ "${status}" != installed ]]; then
      echo "${package}"
    fi
  done < <(wanted_packages)
}

# need_root WHY: sets AS_ROOT to what goes before a command that needs root.
need_root() {
  AS_ROOT=()
  if ((EUID == 0)); then
    return
  fi
  command -v sudo >/dev/null ||
    die "root is needed to $1, and there is no sudo. Run it as root."
  if ! sudo -n true 2>/dev/null; then
    [[ -t 0 ]] ||
      die "root is needed to $1, and there is no terminal on which sudo could" \
        "ask for the password. Run it as root."
    sudo -v || die "root is needed to $1, and sudo refused it. Run it as root."
  fi
  AS_ROOT=(sudo)
}

# With its package Debian starts a server, which nobody here has asked for: only a
# test runs the program.
stop_prometheus() {
  if [[ -d /run/systemd/system ]]; then
    "${AS_ROOT[@]}" systemctl --quiet disable --now prometheus.service
  else
    "${AS_ROOT[@]}" update-rc.d prometheus disable
    "${AS_ROOT[@]}" /etc/init.d/prometheus stop
  fi
}

install_packages() {
  local packages=() installed=() log
  mapfile -t packages < <(missing_packages)
  if ((${#packages[@]} == 0)); then
    say "All packages are installed."
    return
  fi
  need_root "install ${packages[*]}"
  log="$(mktemp --tmpdir miniray-setup.XXXXXX.log)"
  say "Installing ${packages[*]}"
  say "  What apt-get says goes to ${log}"
  local apt=("${AS_ROOT[@]}" env DEBIAN_FRONTEND=noninteractive
    apt-get -q -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
  # A source that fails need not be one of ours: the installation decides.
  "${apt[@]}" -o APT::Update::Error-Mode=any update \
    >"${log}" 2>&1 </dev/null ||
    say "apt-get update did not reach every package source; trying all the same."
  if ! "${apt[@]}" install --no-install-recommends "${packages[@]}" \
    >>"${log}" 2>&1 </dev/null; then
    grep -E '^(E|Err|W):' "${log}" | tail -n 3 >&2 || true
    die "apt-get could not install the packages. Check the network and" \
      "/etc/apt/sources.list*, then run this again. Everything apt-get" \
      "said: ${log}"
  fi
  installed=("${packages[@]}")
  mapfile -t packages < <(missing_packages)
  if ((${#packages[@]} > 0)); then
    die "still not installed: ${packages[*]}. Everything apt-get said: ${log}"
  fi
  if [[ " ${installed[*]} " == *" prometheus "* ]]; then
    say "Stopping the Prometheus server that its package has started."
    stop_prometheus >>"${log}" 2>&1 </dev/null ||
      say "The Prometheus server could not be stopped; nothing here needs it."
  fi
  rm -f "${log}"
}

# LibTorch takes its matrix products from whatever libblas.so.3 is selected.
# Of OpenBLAS only the openmp build obeys LibTorch's number of threads.
select_blas() {
  local triplet folder link selected
  folder="$(dpkg-query --listfiles libopenblas0-openmp | grep '/openblas-openmp$')"
  triplet="$(basename "$(dirname "${folder}")")"
  for link in libblas.so.3 liblapack.so.3 libopenblas.so.0; do
    [[ -e "${folder}/${link}" ]] || continue
    selected="$(readlink -f "/usr/lib/${triplet}/${link}" || true)"
    if [[ "${selected}" != "$(readlink -f "${folder}/${link}")" ]]; then
      say "Selecting ${folder}/${link} (was: ${selected:-nothing})." \
        "To choose yourself: update-alternatives --config ${link}-${triplet}"
      need_root "select OpenBLAS with update-alternatives"
      "${AS_ROOT[@]}" update-alternatives --quiet \
        --set "${link}-${triplet}" "${folder}/${link}" ||
        die "could not select ${folder}/${link}; look at" \
          "update-alternatives --display ${link}-${triplet}"
    fi
  done
}

build() {
  local start="${SECONDS}"
  set_bazel_flags
  cd "${MINIRAY_ROOT}"
  say "Building Mini-Ray."
  bazel build "${BAZEL_FLAGS[@]}" -- //... -//tests/... ||
    die "the build failed; the first ERROR above says where." \
      "After correcting it: bazel build //..."
  say "Built in $(duration $((SECONDS - start))). The programs:"
  bazel query --noshow_progress --output=label \
    'kind("cc_binary rule", //... except //tests/...)' 2>/dev/null |
    sed -e '/\.so$/d' -e 's|^//|  bazel-bin/|' -e 's|:|/|'
}

main() {
  local want_build=1 argument
  NODE_ONLY=0
  for argument in "$@"; do
    case "${argument}" in
      --no-build) want_build=0 ;;
      --node)
        want_build=0
        NODE_ONLY=1
        ;;
      -h | --help)
        usage
        exit 0
        ;;
      *) die "unknown argument ${argument}; see tools/setup.sh --help" ;;
    esac
  done
  check_system
  install_packages
  select_blas
  if ((want_build)); then
    build
  fi
}

main "$@"
