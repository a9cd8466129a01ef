#!/usr/bin/env bash
# Sets the machine up, checks the format, builds and runs the tests. The last
# line is "N passed, N failed", counted in test cases.
set -euo pipefail

# shellcheck source=SCRIPTDIR/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'USAGE'
Usage: tools/test.sh [BAZEL TEST ARGUMENT...]

Builds everything and runs every test, or those that the arguments name:

  tools/test.sh //tests/ps/...
  tools/test.sh --config=asan //tests/runtime/...

The last line counts test cases; a failed format check, set-up or build counts
as one that failed. The exit status is 0 only where some ran and none failed.
USAGE
}

passed=0
failed=0

finish() {
  echo "${passed} passed, ${failed} failed"
  ((failed == 0 && passed > 0)) && exit 0
  exit 1
}

# fail_one MESSAGE...: something other than a test case failed.
fail_one() {
  say "FAILED: $*"
  failed=$((failed + 1))
}

# results EVENTS: prints the status and the test.xml of each test that ran,
# from Bazel's event file, in which each event is one line of JSON.
results() {
  sed -n 's/^{"id":{"testResult":.*/&/p' "$1" | while IFS= read -r event; do
    local status xml
    status="$(grep -o '"status":"[A-Z_]*"' <<<"${event}" | head -n 1 | cut -d '"' -f 4)"
    xml="$(grep -o '"uri":"file://[^"]*/test\.xml"' <<<"${event}" | head -n 1 | cut -d '"' -f 4)"
    echo "${status:-UNKNOWN} ${xml#file://}"
  done
}

# count_cases XML: prints the numbers of passed and failed cases in a test.xml.
# The text of a failure may contain anything, so CDATA is skipped.
count_cases() {
  awk '
    function close_case() {
      if (in_case && ran) { if (bad) failed++; else passed++ }
      in_case = 0; ran = 0; bad = 0
    }
    in_cdata { if (index($0, "]]>")) in_cdata = 0; next }
    /^[ \t]*<testcase / {
      close_case()
      in_case = 1
      ran = /status="run"/ && !/result="(skipped|suppressed)"/
    }
    /<(failure|error)[ >]/ { if (in_case) bad = 1 }
    /<!\[CDATA\[/ { if (!index($0, "]]>")) in_cdata = 1 }
    END { close_case(); print passed + 0, failed + 0 }
  ' "$1"
}

run_tests() {
  local events="$1" status=0 result xml good bad
  shift
  local arguments=() pattern=0 argument
  for argument in "$@"; do
    # Not just any word: "--config asan" is an option too.
    [[ ! "${argument}" =~ ^(//|:|@|tests) ]] || pattern=1
  done
  if ((!pattern)); then
    # Not only //tests/...: a program that no test uses must build all the same.
    arguments+=(//...)
  else
    arguments+=(--build_tests_only)
  fi
  arguments+=("$@")

  set_bazel_flags
  bazel test "${BAZEL_FLAGS[@]}" --keep_going \
    --build_event_json_file="${events}" "${arguments[@]}" </dev/null ||
    status=$?

  while read -r result xml; do
    good=0
    bad=0
    if [[ -n "${xml}" && -r "${xml}" ]]; then
      read -r good bad < <(count_cases "${xml}")
    fi
    # A program can fail beside its cases: a leak found at exit, say.
    if [[ "${result}" != PASSED ]] && ((bad == 0)); then
      bad=1
    fi
    passed=$((passed + good))
    failed=$((failed + bad))
  done < <(results "${events}")

  # Bazel's exit statuses: 3 some tests failed, 4 no tests were found, any
  # other, something did not build or Bazel itself failed.
  case "${status}" in
    0) ;;
    3) ((failed > 0)) || fail_one "some tests; see above" ;;
    4) fail_one "no test was found for: ${arguments[*]}" ;;
    *) fail_one "the build (bazel's exit status ${status}); the first ERROR above says where" ;;
  esac
  if ((passed + failed == 0)); then
    fail_one "no test case ran"
  fi
}

main() {
  if [[ "${1:-}" == -h || "${1:-}" == --help ]]; then
    usage
    exit 0
  fi
  cd "${MINIRAY_ROOT}"
  if ! tools/setup.sh --no-build; then
    fail_one "the set-up; see above"
    finish
  fi
  tools/format.sh --check || fail_one "the format check"

  events="$(mktemp)"
  trap 'rm -f "${events}"' EXIT
  run_tests "${events}" "$@"
  # Nothing may be left running when a CI job ends.
  if [[ "${CI:-}" == true ]]; then
    bazel shutdown >/dev/null 2>&1 || true
  fi
  finish
}

main "$@"
