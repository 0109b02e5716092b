#!/bin/sh
# run.sh [SECONDS [TARGET ...]]: builds the libFuzzer targets of this folder with clang, beside a build of Strata (STRATA_BUILD, else
# build/release), and runs each for SECONDS (60). What a target finds is written to BUILD/fuzz/TARGET. Exit status 77: no clang with libFuzzer.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${STRATA_BUILD:-$root/build/release}
seconds=${1:-60}
[ $# -gt 0 ] && shift
here=$root/tests/fuzz
out=$build/fuzz
mkdir -p "$out"

clang=
for candidate in clang++-14 clang++; do
  if echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
    "$candidate" -x c++ -fsanitize=fuzzer,address - -o "$out/probe" 2>/dev/null; then
    clang=$candidate
    break
  fi
done
[ -n "$clang" ] || { echo "no clang with libFuzzer here (Debian: clang-14 libclang-rt-14-dev)"; exit 77; }

# The parser of a target is compiled for fuzzing; all else is the build's.
core=$root/core
text="$core/engine/text/json.cpp $core/engine/text/printable.cpp"
config="$core/engine/config/read.cpp $core/engine/config/read_json.cpp $core/engine/config/read_toml.cpp $core/engine/config/read_yaml.cpp $core/engine/config/tree.cpp
  $core/engine/config/tree_builder.cpp"
sources_of() {
  case $1 in
    json) echo "$text" ;;
    yaml | toml | config_json | setting) echo "$text $config" ;;
    manifest) echo "$text $core/engine/plugins/manifest.cpp" ;;
    plugin_file) echo "$core/engine/plugins/elf_section.cpp" ;;
    json_lines) echo "$text $core/tools/data/jsonl.cpp" ;;
    tokenizer) echo "$text $core/tools/tokenizer/*.cpp" ;;
    trace) echo "$text $core/tools/schedule/trace_file.cpp $core/engine/report/run_summary.cpp" ;;
    safetensors) echo "$text $core/engine/checkpoint/safetensors.cpp" ;;
    checkpoint) echo "$text $core/engine/checkpoint/training_checkpoint.cpp $core/engine/checkpoint/checksum.cpp" ;;
    *) echo "unknown target $1" >&2; exit 2 ;;
  esac
}

# toml++ is compiled in, so that its branches guide the fuzzer, and without assertions, like the shared library that Strata links.
toml='-DTOML_ASSERT(condition)=static_cast<void>(0)'

torch=$(cat "$build/share/strata/torch_dir")
targets=${*:-json yaml toml config_json setting manifest plugin_file json_lines tokenizer trace safetensors checkpoint}
failed=
for target in $targets; do
  # shellcheck disable=SC2046
  "$clang" -std=c++20 -O1 -g -fsanitize=fuzzer,address -fno-sanitize-recover=all -DSPDLOG_FMT_EXTERNAL -DSPDLOG_SHARED_LIB -D_GLIBCXX_USE_CXX11_ABI=1 "$toml" \
    -I"$core" -I"$core/engine" -I"$core/interface/include" -I"$core/engine/run/include" -I"$here" -I"$root/tests" \
    -idirafter "$torch/include" -idirafter "$torch/include/torch/csrc/api/include" \
    "$here/$target.cpp" $(sources_of "$target") -o "$out/$target-fuzzer" \
    -L"$build/lib" -lstrata -lstrata_interface -L"$torch/lib" -ltorch_cpu -lc10 -lyaml-cpp -lfmt -lutf8proc \
    -Wl,-rpath,"$build/lib" -Wl,-rpath,"$torch/lib"
  mkdir -p "$out/$target"
  seeds=$here/seeds/$target
  [ -d "$seeds" ] || seeds=
  # shellcheck disable=SC2086
  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=0 OMP_NUM_THREADS=1 "$out/$target-fuzzer" "$out/$target" $seeds \
    -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -max_len=16384 -artifact_prefix="$out/$target-found-" -verbosity=0 -print_final_stats=1 \
    >"$out/$target.log" 2>&1 || failed="$failed $target"
  echo "$target: $(grep -o 'number_of_executed_units: [0-9]*' "$out/$target.log" || tail -n 3 "$out/$target.log")"
done
[ -z "$failed" ] || { echo "found by:$failed; see $out/TARGET.log"; exit 1; }
