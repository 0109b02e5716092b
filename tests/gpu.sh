#!/usr/bin/env bash
# Checks and measures Strata on a machine with a GPU; see usage below. The work is done by gpu/gpu.py, beside this file.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<END
usage: tests/gpu.sh [--dry-run] [--build DIR] [--tree DIR] [--only PART[,PART]] [--peak TFLOPS] [--minutes N] [--output DIR]

Runs an installed tree of Strata on this machine's GPU; needs the tree, libtorch (with CUDA), python3, and nothing else: no compiler,
none of the libraries that Strata is built with. Prints what it finds, then a table; the exit status is 0 when all went well.
  unit        the CUDA kernels beside the processor's kernels, bit for bit; the device, NCCL and offload on the GPU
  parity      pythia-14m: losses on cuda beside the processor's, ddp and zero3, fp32 and bf16, one rank, and two ranks that share
              the GPU over gloo; offload, recomputed activations, two pipeline stages
  bench       pythia-160m and pythia-1.4b, bf16: tokens/s, model FLOPs beside the device's peak, memory beside \`strata plan\`
  kernels     the fused AdamW and the norm beside their floor (bytes over the bandwidth of a copy) and beside libtorch's
  sanitizer   compute-sanitizer's memcheck and racecheck on small cases of the kernels, where the tool is

  --dry-run   everything up to running it, on any machine: the tree is complete and resolves, the kernels are there for sm_80, sm_90 and
              as PTX, every config is accepted (by \`strata plan\`), and the commands are printed
  --build DIR make the tree first, from this build folder (configured with STRATA_BUILD_TESTS=ON): it goes to --tree, else DIR/gpu_tree
  --tree DIR  the tree to run; the one this script lies in, unless given
  --only      some of the parts above
  --peak N    the device's dense bf16 peak in TFLOP/s, where its name is not among those known
  --minutes N stop after so many minutes, 9 unless given: what was not run then counts as failed
  --output DIR  keep each command's output there, and the table as results.json

  STRATA_TORCH_DIR=DIR  libtorch, the folder that holds lib; python3's own torch unless given

From the machine with the build to the one with the GPU:
  tests/gpu.sh --build build/release --tree strata-gpu --dry-run && tar -cJf strata-gpu.tar.xz strata-gpu
  tar -xJf strata-gpu.tar.xz && strata-gpu/libexec/strata/tests/gpu.sh         # there
END
}

die() { printf 'gpu.sh: %s\n' "$*" >&2; exit 2; }

build='' tree='' arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --build | --tree)
      [ $# -ge 2 ] || die "$1 needs a folder"
      declare "${1#--}=$2"
      shift ;;
    --only | --peak | --minutes | --output)
      [ $# -ge 2 ] || die "$1 needs a value"
      arguments+=("$1" "$2")
      shift ;;
    --dry-run) arguments+=(--dry-run) ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown argument '$1'; --help lists the known ones" ;;
  esac
  shift
done

command -v python3 >/dev/null || die "no python3 here; it runs the checks (its standard library is enough)"
if [ -n "$build" ]; then
  [ -e "$build/cmake_install.cmake" ] || die "$build is no build folder: configure and build first"
  tree=${tree:-$build/gpu_tree}
  # Only what an earlier run of this made is replaced.
  if [ -e "$tree" ] && [ ! -e "$tree/libexec/strata/tests/gpu.sh" ]; then die "$tree exists and is no tree that this made; give another --tree"; fi
  rm -rf "$tree"
  mkdir -p "$tree"
  tree=$(cd "$tree" && pwd)
  for component in '' tests; do
    cmake --install "$build" --prefix "$tree" ${component:+--component "$component"} >"$tree/install.log" || { cat "$tree/install.log"; die "cmake --install failed"; }
  done
  rm "$tree/install.log"
elif [ -z "$tree" ]; then
  tree=$(cd "$here/../../.." && pwd)
  [ -e "$tree/bin/strata" ] || die "give --build with a build folder to make a tree, or --tree with an installed one"
fi
[ -x "$tree/bin/strata" ] || die "$tree holds no bin/strata; give the folder that cmake --install made"
if [ -z "${STRATA_TORCH_DIR:-}" ]; then
  STRATA_TORCH_DIR=$(python3 -c 'import importlib.util; found = importlib.util.find_spec("torch"); print(found.submodule_search_locations[0] if found else "")')
  [ -n "$STRATA_TORCH_DIR" ] || die "no libtorch: set STRATA_TORCH_DIR to its folder (it holds lib), or use a python3 that has torch"
fi
export STRATA_TORCH_DIR
exec python3 "$here/gpu/gpu.py" --tree "$tree" "${arguments[@]}"
