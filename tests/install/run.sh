#!/usr/bin/env bash
# run.sh BUILD SOURCE: installs BUILD into a prefix, moves the prefix elsewhere, and uses what is there as a user would. The tree stays in
# BUILD/installed, with the example projects' builds in NAME-build beside it: the matrix runs on them.
set -euo pipefail
unset STRATA_PLUGIN_PATH STRATA_CONFIG_DIR   # what is installed finds its own
build=$1 source=$2
work=$build/installed
rm -rf "$work"
mkdir -p "$work"
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
# A path into the build or source folder, and not one that only holds its name: a source folder may be called /strata.
quoted() { sed 's/[][\.*^$+?(){}|]/\\&/g' <<<"$1"; }
ours="(^|[^}[:alnum:]_./~+-]|-[IL])($(quoted "$build")|$(quoted "$source"))(/|[^[:alnum:]_.+-]|\$)"

cmake --install "$build" --prefix "$work/first" >"$work/install.log" || { cat "$work/install.log"; fail "cmake --install"; }
prefix="$work/moved here"   # a tree can be moved, and a blank in its path is no obstacle
mv "$work/first" "$prefix"

# The programs and libraries find their neighbours, and libtorch as bin/strata has it found; none is tied to a place of this machine, to
# Python or, but for the CUDA plugins, to CUDA.
recorded=$(cat "$prefix/share/strata/torch_dir")
[ -e "$recorded/lib/libtorch_cpu.so" ] || fail "share/strata/torch_dir says $recorded, where no libtorch is"
for file in "$prefix"/bin/strata "$prefix"/libexec/strata/strata* "$prefix"/lib/*.so "$prefix"/lib/strata/plugins/*.so; do
  name=${file##*/}
  paths=$(readelf -d "$file" | sed -nE 's/.*\(R(UN)?PATH\).*\[(.*)\]/\2/p' | tr ':' '\n')
  ! grep -vE '^\$ORIGIN(/|$)' <<<"$paths" | grep . || fail "$name's RUNPATH names the folders above"
  libraries=$(LD_LIBRARY_PATH=$recorded/lib ldd "$file") || fail "ldd $name"
  case $name in
    *cuda* | *nccl*) ;;
    *)
      ! grep 'not found' <<<"$libraries" || fail "$name lacks the libraries above"
      ! grep -E 'libpython|libtorch_cuda|libtorch_python' <<<"$libraries" || fail "$name must not need the libraries above" ;;
  esac
done
if grep -rIlE "$ours" "$prefix"; then fail "the installed files above name the build or source folder"; fi

# What is installed is what the program knows, without any setting.
count=$(find "$prefix/lib/strata/plugins" -name '*.so' | wc -l)
listed=$("$prefix/bin/strata" plugins list --format json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)))')
[ "$count" -gt 0 ] && [ "$count" = "$listed" ] || fail "$count plugins are installed and \`strata plugins list\` knows $listed"

# What a machine to run on need not have lies beside, and is what the program takes.
outside=$(LD_LIBRARY_PATH=$recorded/lib ldd "$prefix/libexec/strata/strata" | grep -E 'lib(boost_|yaml-cpp|spdlog|fmt|tomlplusplus)' | grep -vF "=> $prefix/" || true)
[ -z "$outside" ] || fail "the program takes from outside the tree:"$'\n'"$outside"

# libtorch is found where STRATA_TORCH_DIR says; a folder without one is refused in one line.
if [ -n "${STRATA_TORCH_DIR:-}" ]; then
  mkdir "$work/torch"
  ln -s "$STRATA_TORCH_DIR/lib" "$work/torch/lib"
  found=$(STRATA_TORCH_DIR=$work/torch LD_DEBUG=libs "$prefix/bin/strata" plugins list 2>&1 >/dev/null | grep -c "init: $work/torch/lib/libtorch_cpu.so" || true)
  [ "$found" -ge 1 ] || fail "bin/strata does not take libtorch from STRATA_TORCH_DIR"
fi
status=0
STRATA_TORCH_DIR=$work "$prefix/bin/strata" plugins list 2>"$work/refused" || status=$?
[ "$status" = 2 ] && [ "$(wc -l <"$work/refused")" = 1 ] && grep -q STRATA_TORCH_DIR "$work/refused" || { cat "$work/refused"; fail "a STRATA_TORCH_DIR without libtorch: status $status"; }

# The defaults are the installed ones, not the source tree's.
sed -i 's/^  device: .*/  device: [cpu, cpu, cpu]/' "$prefix/share/strata/configs/defaults.yaml"
"$prefix/bin/strata" config show "$prefix/share/strata/configs/quickstart.yaml" --set data.path=none >"$work/config" || fail "strata config show"
grep -q 'cpu, cpu, cpu' "$work/config" || { cat "$work/config"; fail "the installed defaults.yaml is not the one that is read"; }

build_project() {  # source folder, build folder
  cmake -S "$1" -B "$2" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" >"$2.log" 2>&1 &&
    cmake --build "$2" >>"$2.log" 2>&1 || { cat "$2.log"; fail "$1 does not build against the installed tree"; }
}
build_project "$source/tests/install/headers" "$work/headers"

# The example projects are copied out, so that nothing of the source tree beside them can be reached.
for project in "$source"/examples/plugins/*/; do
  [ -e "$project/CMakeLists.txt" ] || continue
  name=$(basename "$project")
  cp -r "$project" "$work/$name"
  build_project "$work/$name" "$work/$name-build"
  library=$(find "$work/$name-build" -name 'libstrata_*.so' -print -quit)
  [ -n "$library" ] || fail "$name builds no plugin"
  STRATA_PLUGIN_PATH=$(dirname "$library") "$prefix/bin/strata" plugins list >"$work/list"
  grep -q "$name" "$work/list" || { cat "$work/list"; fail "\`strata plugins list\` does not know $name"; }
  if [ -e "$work/$name-build/CTestTestfile.cmake" ]; then
    ctest --test-dir "$work/$name-build" --output-on-failure || fail "$name's own tests"
  fi
  "$prefix/bin/strata" plugins check "$library" >"$work/check" || { cat "$work/check"; fail "$name does not pass the conformance kit"; }
  echo "$name: built against the installed tree, passes the conformance kit"
done
echo "$count plugins installed"
