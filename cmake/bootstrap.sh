#!/usr/bin/env bash
# Installs the missing packages to run, build, test or compare Strata; see usage below. Safe to run again at any time. An installed
# Strata has it as libexec/strata/bootstrap.sh, for --for run.
set -euo pipefail

readonly here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly torch_version=$(<"$here/torch_version")
readonly torch_wheels=("torch==$torch_version" "nvidia-cuda-runtime==13.0.*" "nvidia-cuda-cupti==13.0.*")
readonly requirements=$here/../tests/interop/requirements.txt
use_cache() {  # folder
  cache=$1
  wheel=$cache/torch-$torch_version      # the unpacked wheels; libtorch is its folder torch
  interop=$cache/interop                 # a Python environment with transformers, for --for interop
}
use_cache "${XDG_CACHE_HOME:-$HOME/.cache}/strata"

usage() {
  cat <<END
usage: bootstrap.sh [--for run|build|tests|interop]... [--system] [--cuda] [--check] [--yes]

Installs what this machine lacks, and first prints the list, the size of the download and the time it takes.
  --for run       libtorch $torch_version and nothing else: what an installed Strata needs to run and to build plugins.
  --for build     a compiler, CMake and the libraries Strata is built with (Debian packages); libtorch $torch_version.
                  The default.
  --for tests     also Catch2, ccache, iproute2, pytest and clang-format.
  --for interop   also an environment of Python's transformers on the same libtorch, which the interop tests compare with.
  --system        libtorch for all users of this machine, in /opt/strata; as root.
  --cuda          also the NVIDIA run-time libraries that libtorch_cuda needs on a machine with a GPU. The CUDA toolkit,
                  needed to build the CUDA plugins, is not installed: get it from NVIDIA.
  --check         change nothing; report, and exit with 1 if something is missing.
  --yes           do not ask for confirmation, as without a terminal.

Debian packages are installed with apt, as root or through sudo. libtorch is unpacked from PyPI's wheel into
  $wheel
(under XDG_CACHE_HOME, else ~/.cache; with --system in /opt/strata), never into the system's Python.
  STRATA_TORCH_DIR=DIR   use the libtorch in DIR (it holds lib/ and include/) instead.
Tested on Debian 12 (x86_64). Written for Ubuntu 24.04's packages as well; not tested there.
END
}

say() { printf '%s\n' "$*"; }
die() { printf 'bootstrap: %s\n' "$*" >&2; exit 1; }

# --- what is missing -------------------------------------------------------------------------------------------------------

# A tool of the right version counts wherever it comes from; a library is looked up as a package.
lacking_packages() {
  [ -n "$(python_with pip)" ] || say python3-pip
  [ -n "$for_build" ] || return 0
  local packages=(libboost-dev libboost-filesystem-dev libyaml-cpp-dev libtomlplusplus-dev libspdlog-dev nlohmann-json3-dev
                  libcli11-dev libgloo-dev libxxhash-dev liburing-dev libutf8proc-dev)
  [ -z "$for_tests" ] || packages+=(catch2)
  command -v g++ >/dev/null || say g++
  command -v cmake >/dev/null || say cmake
  command -v ninja >/dev/null || say ninja-build
  command -v make >/dev/null || say make   # what `cmake -B build` of a plugin of yours looks for
  [ -z "$for_tests" ] || command -v ccache >/dev/null || say ccache
  [ -z "$for_tests" ] || command -v ip >/dev/null || say iproute2
  [ -z "$for_tests" ] || [ -n "$(python_with pytest)" ] || say python3-pytest
  [ -z "$for_tests" ] || command -v clang-format >/dev/null || say clang-format
  if command -v dpkg-query >/dev/null; then
    comm -23 <(printf '%s\n' "${packages[@]}" | sort) \
             <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null | sed -n 's/^installed //p' | sort)
  else
    say "bootstrap: no dpkg here, so installed libraries are not detected; required, by Debian's names: ${packages[*]}" >&2
  fi
}

python_with() {  # module
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -c "import $1" 2>/dev/null; then say "$python"; return; fi
  done
}

# The version of the libtorch in a folder, or nothing where there is none.
version_of_torch() {
  [ -e "$1/lib/libtorch_cpu.so" ] || return 0
  sed -n 's/^#define TORCH_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' "$1/include/torch/headeronly/version.h" 2>/dev/null | paste -sd.
}

check_own_torch() {
  local found
  found=$(version_of_torch "$STRATA_TORCH_DIR")
  [ -n "$found" ] || die "STRATA_TORCH_DIR is $STRATA_TORCH_DIR, which holds no libtorch (lib/libtorch_cpu.so and include/torch are needed): correct it or unset it"
  [ "$found" = "$torch_version" ] || die "STRATA_TORCH_DIR holds libtorch $found; Strata is built with $torch_version: point it to one of that version or unset it"
}

# The wheel's own files and, with --cuda, NVIDIA's; each part is complete when it is there, because it is moved or marked last.
have_torch() { [ "$(version_of_torch "$wheel/torch")" = "$torch_version" ] && compgen -G "$wheel/nvidia/*/lib/libcudart.so.*" >/dev/null; }
have_cuda() { [ -e "$wheel/cuda-complete" ]; }
have_interop() { cmp -s "$requirements" "$interop/complete"; }

# --- the plan --------------------------------------------------------------------------------------------------------------

make_plan() {
  packages=($(lacking_packages))
  want_torch='' want_cuda='' want_interop=''
  if [ -n "${STRATA_TORCH_DIR:-}" ]; then check_own_torch; else have_torch || want_torch=1; fi
  if [ -n "$for_cuda" ] && { [ -n "$want_torch" ] || ! have_cuda; }; then want_cuda=1; fi
  if [ -n "$for_interop" ] && { [ -n "$want_torch" ] || ! have_interop; }; then want_interop=1; fi
  [ -n "${packages[*]}$want_torch$want_cuda$want_interop" ]
}

# One line a part, then the sum. The figures were measured on a bare Debian 12.
print_plan() {
  local download=0 disk=0
  part() { printf '  %-64s %5s MB to download, %5s MB on disk\n' "$1" "$2" "$3"; download=$((download + $2)); disk=$((disk + $3)); }
  say "Missing on this machine:"
  case " ${packages[*]} " in
    '  ') ;;
    *' g++ '*) part "Debian packages (${#packages[@]} and what they need; apt, as root)" 105 540 ;;
    ' python3-pip ') part "Debian package for Python's pip, without a compiler (apt, as root)" 10 45 ;;
    *) part "Debian packages (${#packages[@]} and what they need; apt, as root), up to" 60 280 ;;
  esac
  [ -z "${packages[*]}" ] || fold -s -w 100 <<<"${packages[*]}" | sed 's/^/    /'
  [ -z "$want_torch" ] || part "libtorch $torch_version (PyPI), in $wheel" 545 1250
  [ -z "$want_cuda" ] || part "NVIDIA's run-time libraries (PyPI), next to libtorch" 1980 2700
  [ -z "$want_interop" ] || part "transformers for Python (PyPI), in $interop" 58 220
  say "  total: $download MB to download, $disk MB on disk, about $((1 + download / 500)) min at 100 Mbit/s"
}

ask() {
  [ -z "$yes" ] && [ -t 0 ] && [ -t 1 ] || return 0
  local answer
  read -r -p 'Continue? [Y/n] ' answer
  case $answer in '' | [yY]*) ;; *) die "stopped; nothing was changed" ;; esac
}

# --- installing ------------------------------------------------------------------------------------------------------------

install_packages() {
  local line="apt-get install --no-install-recommends ${packages[*]}" as_root=()
  command -v apt-get >/dev/null || die "no apt-get here; install the equivalents of these Debian packages, then run this again: ${packages[*]}"
  if [ "$(id -u)" != 0 ]; then
    # Without a terminal sudo cannot ask for its password.
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
      as_root=(sudo)
    else
      say "This needs root, and there is no sudo. Run this as root, then run bootstrap again:"
      say "  $line"
      exit 1
    fi
  fi
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
  [ -t 1 ] || exec 8>&1 >/dev/null  # a log needs no line for each package
  "${apt[@]}" update || say "bootstrap: apt could not refresh its lists; the present ones are used" >&2
  "${apt[@]}" install -y --no-install-recommends "${packages[@]}" ||
    die "apt failed (its output is above) to install: ${packages[*]}"
  [ -t 1 ] || exec >&8
}

check_versions() {
  local found
  found=$(g++ -dumpfullversion)
  [ "${found%%.*}" -ge 12 ] || die "g++ is $found; Strata needs 12 or newer"
  found=$(cmake --version | sed -n 's/^cmake version //p')
  printf '3.25\n%s\n' "$found" | sort -VC || die "cmake is $found; Strata needs 3.25 or newer"
}

take_lock() {
  mkdir -p "$cache"
  exec 9>"$cache/lock"
  flock -n 9 && return
  say "Another bootstrap is running in $cache; waiting for it"
  flock -w 1800 9 || die "waited 30 minutes for the other bootstrap, which holds $cache/lock"
}

need_space() {  # folder, megabytes
  local free
  free=$(df -Pm "$1" | awk 'NR == 2 {print $4}')
  [ "$free" -ge "$2" ] || die "$1 has $free MB free and $2 MB are needed; free some, or set XDG_CACHE_HOME to a larger disk"
}

# Settings of the user's own (user = true, require-virtualenv) must not send the packages elsewhere. Nothing is compiled to .pyc.
run_pip() {
  local status=0 quiet=()
  [ -t 1 ] || quiet=(--quiet)
  rm -rf "$cache/tmp"
  mkdir "$cache/tmp"
  TMPDIR=$cache/tmp PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1 \
    "$(python_with pip)" -m pip "$@" "${quiet[@]}" --no-cache-dir || status=$?
  rm -rf "$cache/tmp"
  return $status
}

# Unpacked next to its place and moved there last: leftovers of an interrupted run never look complete.
unpack_torch() {
  [ "$(uname -m)" = x86_64 ] || die "libtorch is installed for x86_64 only, and this is $(uname -m); set STRATA_TORCH_DIR to a libtorch $torch_version of your own"
  need_space "$cache" 2500
  say "Unpacking libtorch $torch_version"
  rm -rf "$wheel.part"
  run_pip install --no-deps --no-compile --target "$wheel.part" "${torch_wheels[@]}" ||
    die "pip failed (its output is above) to install: ${torch_wheels[*]}"
  local missing
  missing=$(ldd "$wheel.part/torch/lib/libtorch_cpu.so" | grep 'not found' || true)
  [ -z "$missing" ] || die "the unpacked libtorch does not load:"$'\n'"$missing"
  sync -f "$wheel.part"
  rm -rf "$wheel" "$interop/complete"  # the environment was made for the old one
  mv "$wheel.part" "$wheel"
}

# NVIDIA's packages of the versions that the wheel itself asks for.
unpack_cuda() {
  [ -z "${STRATA_TORCH_DIR:-}" ] || die "--cuda completes the libtorch that bootstrap unpacks; a libtorch in STRATA_TORCH_DIR needs the NVIDIA libraries of its own source"
  need_space "$cache" 5500
  say "Unpacking NVIDIA's run-time libraries"
  local wanted
  mapfile -t wanted < <(sed -n 's/^Requires-Dist: \(\(nvidia-\|cuda-toolkit\)[^;]*\);.*/\1/p' "$wheel/torch-$torch_version.dist-info/METADATA")
  rm -rf "$cache/cuda.part"
  run_pip install --no-compile --target "$cache/cuda.part" "${wanted[@]}" || die "pip failed (its output is above) to install: ${wanted[*]}"
  cp -al --force "$cache/cuda.part/." "$wheel/"
  rm -rf "$cache/cuda.part"
  touch "$wheel/cuda-complete"
}

# The environment shares bootstrap's libtorch, so that both sides of a comparison compute with the same kernels. Marked last.
make_interop() {
  local python site stand_ins=$interop/stand_ins
  python=$(python_with pip)
  [ -z "${STRATA_TORCH_DIR:-}" ] || die "the interop environment is made on the libtorch that bootstrap unpacks; unset STRATA_TORCH_DIR"
  compgen -G "$wheel/torch/_C.*-$("$python" -c 'import sys; print("%d%d" % sys.version_info[:2])')-*" >/dev/null ||
    die "the libtorch in $wheel was unpacked for another Python than $("$python" -V): remove that folder and run this again"
  need_space "$cache" 700
  say "Making the interop environment"
  rm -rf "$interop"
  "$python" -m venv --without-pip "$interop"
  run_pip --python "$interop/bin/python" install --no-compile -r "$requirements" ||
    die "pip failed (its output is above) to install the packages of $requirements"
  site=$("$interop/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  say "$wheel" >"$site/strata_torch.pth"
  "$python" "$here/cuda_stand_ins.py" "$wheel" "$stand_ins"
  say "$stand_ins" >"$site/strata_stand_ins.pth"
  say "import os; os.path.exists('$wheel/cuda-complete') or __import__('strata_stand_ins')" >>"$site/strata_stand_ins.pth"
  "$interop/bin/python" -c 'import torch, transformers' || die "the interop environment in $interop cannot import torch and transformers"
  cp "$requirements" "$interop/complete"
}

main() {
  for_run='' for_build='' for_tests='' for_interop='' for_cuda='' check='' yes=''
  while [ $# -gt 0 ]; do
    case $1 in
      --for)
        case ${2:-} in
          run) for_run=1 ;;
          build) for_build=1 ;;
          tests) for_build=1 for_tests=1 ;;
          interop) for_build=1 for_tests=1 for_interop=1 ;;
          *) die "--for takes run, build, tests or interop, not '${2:-}'" ;;
        esac
        shift ;;
      --system) use_cache /opt/strata ;;
      --cuda) for_cuda=1 ;;
      --check) check=1 ;;
      --yes) yes=1 ;;
      -h | --help) usage; exit 0 ;;
      *) die "unknown argument '$1'; --help lists the known ones" ;;
    esac
    shift
  done
  [ -n "$for_run" ] || for_build=1
  [ -z "$for_interop" ] || [ -e "$requirements" ] || die "--for interop belongs to Strata's repository: $requirements is not there"

  if ! make_plan; then
    [ -z "$for_build" ] || check_versions
    say "Nothing is missing: libtorch $torch_version is in ${STRATA_TORCH_DIR:-$wheel/torch}"
    return
  fi
  print_plan
  [ -z "$check" ] || return 1
  ask
  [ -z "${packages[*]}" ] || install_packages
  [ -z "$for_build" ] || check_versions
  if [ -n "$want_torch$want_cuda$want_interop" ]; then
    take_lock
    # The one we may have waited for has done part of it.
    { [ -z "$want_torch" ] || have_torch; } || unpack_torch
    { [ -z "$want_cuda" ] || have_cuda; } || unpack_cuda
    { [ -z "$want_interop" ] || have_interop; } || make_interop
  fi
  say "Everything is installed: libtorch $torch_version is in ${STRATA_TORCH_DIR:-$wheel/torch}"
}

main "$@"
