#!/usr/bin/env bash
# run.sh PREFIX WORK SOURCE: builds examples/program against the tree installed in PREFIX, trains with it on several ranks, and compares its
# losses, bit for bit, with those of `strata train` on the same layers as a Model plugin.
set -euo pipefail
prefix=$1 work=$2 source=$3
strata=$prefix/bin/strata
export OMP_NUM_THREADS=1
unset STRATA_PLUGIN_PATH
rm -rf "$work"
mkdir -p "$work"
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

build_project() {  # folder
  cmake -S "$1" -B "$1/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" >"$1.log" 2>&1 &&
    cmake --build "$1/build" >>"$1.log" 2>&1 || { cat "$1.log"; fail "$1 does not build against the installed tree"; }
}
# Copied out, so that nothing of the source tree beside them can be reached.
cp -r "$source/examples/program" "$work/program"
cp -r "$source/tests/example_program/three_layers" "$work/three_layers"
sed '/^int main/,$d' "$work/program/main.cpp" >"$work/three_layers/layers.hpp"
lines=$(wc -l <"$work/program/main.cpp")
[ "$lines" -le 60 ] || fail "examples/program/main.cpp has $lines lines, at most 60 are promised"
build_project "$work/program"
build_project "$work/three_layers"

program=$work/program/build/program config=$work/program/program.yaml
"$strata" data pack "$source/core/interface/include" -o "$work/train.bin" >/dev/null
data=data.path=$work/train.bin

compare() {  # name, ranks, settings
  local name=$1 ranks=$2 arguments=()
  shift 2
  for setting in "$data" "$@"; do arguments+=(--set "$setting"); done
  set -- "$program" "$config" "$data" "metrics.csv=$work/$name.figures" "$@"
  if [ "$ranks" -gt 1 ]; then
    set -- "$strata" launch --nproc "$ranks" "$@"
    arguments+=(--nproc "$ranks")
  fi
  "$@" >"$work/$name.log" || fail "$name: the program"
  [ "$(grep -c 'step [0-9]*/50 ' "$work/$name.log")" = 6 ] || { cat "$work/$name.log"; fail "$name: a line at the first step, then every 10"; }
  awk -F, 'NR > 1 { print "step " NR - 1 " loss " $2 }' "$work/$name.figures/Train_Samples_train_loss.csv" >"$work/$name.program"
  STRATA_PLUGIN_PATH=$work/three_layers/build "$strata" train "$config" --quiet --summary "$work/$name.json" --set model.plugin=three_layers \
    "${arguments[@]}" >"$work/$name.train" || fail "$name: strata train"
  python3 - "$work/$name.program" "$work/$name.json" <<'PYTHON' || fail "$name: the program's losses are not those of strata train"
import json, sys
program = [float(line.split()[3]) for line in open(sys.argv[1])]
train = json.load(open(sys.argv[2]))["losses"]
print(len(train), "steps, loss", train[0], "to", train[-1])
sys.exit(program != train or not train or not train[-1] < train[0] - 1)
PYTHON
}
compare zero3-bf16-2 2
compare zero3-bf16-1 1
compare ddp-fp32-3 3 partitioner.plugin=ddp precision.plugin=fp32 train.accumulation=3

# Two engines at once, and a third after them: each one's losses are those of a program that has one.
cp -r "$source/tests/example_program/two_engines" "$work/two_engines"
cp "$work/three_layers/layers.hpp" "$work/two_engines/layers.hpp"
build_project "$work/two_engines"
"$strata" launch --nproc 2 "$work/two_engines/build/two_engines" "$config" "$data" >"$work/two_engines.out" || fail "two engines in one process"
for name in first second third; do
  diff <(sed -n "s/^$name //p" "$work/two_engines.out") <(head -n 3 "$work/zero3-bf16-2.program") || fail "two engines: the losses of the $name"
done

refused() {  # what must stand in the one line that the command prints; command
  local wanted=$1 status=0
  shift
  "$@" >"$work/refused" 2>&1 || status=$?
  [ "$status" = 2 ] && [ "$(wc -l <"$work/refused")" = 1 ] && grep -qF -e "$wanted" "$work/refused" || { cat "$work/refused"; fail "status $status: $*"; }
}
refused 'program: usage' "$program"
refused 'train.stepss' "$program" "$config" "$data" train.stepss=3
refused 'nowhere.bin' "$program" "$config" data.path=nowhere.bin
refused 'has no value' "$program" "$config" data.path=
refused 'data.path is empty' "$program" "$config" 'data.path=""'
refused 'nowhere does not exist' "$strata" launch --nproc 2 "$work/nowhere"
refused 'no program given' "$strata" launch --nproc 2
refused 'is not an executable program' "$strata" launch --nproc 2 "$config"
refused 'rank 0 of a job that torchrun started' env RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 "$strata" launch --nproc 2 "$program"

# What a rank refuses ends all of them, and names the program's own line.
status=0
"$strata" launch --nproc 2 "$program" "$config" "$data" parallel.pipeline=2 >"$work/stages" 2>&1 || status=$?
[ "$status" = 2 ] && grep -q 'main.cpp:[0-9]*: engine.forward: parallel.pipeline is 2.*engine.train_batch' "$work/stages" ||
  { cat "$work/stages"; fail "status $status: the program's forward with two stages"; }
