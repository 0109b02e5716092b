#!/usr/bin/env bash
# Sets this machine up, builds Strata and runs its tests; see usage below.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<END
usage: tests/run.sh [--full | --quick | --changed [REVISION]] [--fresh] [--sanitize | --preset NAME] [--jobs N] [--yes] [-- CTEST_ARGUMENT...]

Installs what this machine lacks (cmake/bootstrap.sh, which lists it first and asks on a terminal), builds in
build/<preset> and runs the tests.
  --full         also the tests labelled "full", which take long
  --quick        only the tests labelled "quick": a minute, after a build of what they need
  --changed [REVISION]
                 the quick tests and those of the folders that differ from REVISION (HEAD), after a build of what they need
  --fresh        from nothing: removes the build folder first and takes nothing from ccache, so that the build time is true
  --sanitize     the unit tests under the address and undefined-behaviour sanitizers (preset asan)
  --preset NAME  one of CMakePresets.json: release (the default), debug, asan, tsan
  --jobs N       compilers at a time, and twice as many tests, which wait for much of their time; the number of processors
                 when not given
  --yes          do not ask
What follows -- goes to ctest: tests/run.sh -- -R plugin
One part of the tests alone: -- -L checks (format, changed files compiled alone, clang-tidy), -- -L faults, ...
END
}

die() { printf 'tests/run.sh: %s\n' "$*" >&2; exit 2; }

preset=release full='' fresh='' yes='' some='' jobs=$(nproc)
while [ $# -gt 0 ]; do
  case $1 in
    --full) full=1 ;;
    --quick) some=--quick ;;
    --changed)
      some=HEAD
      case ${2:-} in '' | -*) ;; *) some=$2; shift ;; esac ;;
    --fresh) fresh=1 ;;
    --sanitize) preset=asan ;;
    --preset | --jobs)
      [ $# -ge 2 ] || die "$1 needs a value"
      declare "${1#--}=$2"
      shift ;;
    --yes) yes=--yes ;;
    -h | --help) usage; exit 0 ;;
    --) shift; break ;;
    *) die "unknown argument '$1'; --help lists the known ones" ;;
  esac
  shift
done
build=build/$preset

# The ten translation units that took longest when they were last compiled. A line of .ninja_log: start, end (milliseconds),
# time stamp, output, hash; a later line of the same output supersedes the earlier.
slowest_translation_units() {
  awk -F'\t' '$4 ~ /\.o$/ {took[$4] = $2 - $1} END {for (output in took) print took[output] / 1000, output}' "$build/.ninja_log" |
    sort -rn | sed -E '11,$d; s|CMakeFiles/[^/]*\.dir/||; s|\.o$||' | awk '{printf "  %6.1f s  %s\n", $1, $2}'
}

compared=ON
if [ "$preset" != release ]; then
  compared=OFF
elif [ -n "${STRATA_TORCH_DIR:-}" ]; then
  echo "Without the tests that compare with Python's transformers: they need bootstrap's own libtorch, and STRATA_TORCH_DIR is set"
  compared=OFF
fi
echo "Strata is set up here, built in $build (10 to 15 minutes from nothing on 2 cores, 1 GB on disk) and tested (12 to 25 minutes)."
cmake/bootstrap.sh --for "$([ $compared = ON ] && echo interop || echo tests)" $yes

if [ -n "$fresh" ]; then
  rm -rf "$build"
  export CCACHE_DISABLE=1
fi
cmake --preset "$preset" -DSTRATA_BUILD_TESTS=ON -DSTRATA_INTEROP=$compared
if [ -n "$some" ]; then
  exec python3 tests/changed.py "$build" "$some" --jobs "$jobs"
fi
started=$SECONDS
cmake --build "$build" --parallel "$jobs"
build_seconds=$((SECONDS - started))

filter=()
[ -n "$full" ] || filter=(--label-exclude '^full$')
case $preset in asan | tsan) filter+=(--label-regex '^unit$') ;; esac
started=$SECONDS status=0
ctest --test-dir "$build" --parallel $((2 * jobs)) --output-on-failure --no-tests=error "${filter[@]}" "$@" |
  tee "$build/ctest.log" || status=$?

echo
echo "Slowest translation units, as last compiled:"
slowest_translation_units
echo "Build $build_seconds s, tests $((SECONDS - started)) s"
grep -E '^[0-9]+% tests passed' "$build/ctest.log" || echo "ctest found no test to run"
exit $status
