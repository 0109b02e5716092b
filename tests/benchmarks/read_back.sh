#!/usr/bin/env bash
# The time of a checkpoint, with its files read back, compared with other builds: read_back.sh FOLDER STRATA [STRATA ...]
# In FOLDER, on the disk to be measured, each program trains 6 steps of pythia-70m with a checkpoint after each and 6 without, in turns.
# At the end the disk alone reads one checkpoint's largest file, past the page cache: what reading back takes at least.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,4p' "$0" >&2; exit 2; }
folder=$1
shift
programs=()
for strata in "$@"; do programs+=("$(realpath "$strata")"); done
mkdir -p "$folder" && cd "$folder"
python3 -c "
import random, struct
random.seed(1)
open('tokens.bin', 'wb').write(b''.join(struct.pack('<H', random.randrange(50000)) for _ in range(20000)))"
cat > run.yaml <<'END'
device: cpu
model: {plugin: gpt_neox, gpt_neox: {preset: pythia-70m}, seq_len: 32}
data: {path: tokens.bin}
train: {steps: 6, micro_batch: 1}
learning_rate: {base: 1e-4}
END
seconds() { /usr/bin/time -f %e "$@" 2>&1 >/dev/null | tail -n 1; }
for turn in 1 2 3 4; do
  for strata in "${programs[@]}"; do
    rm -rf saved
    echo "$strata: $(seconds "$strata" train run.yaml --quiet --set checkpoint.path=saved --set checkpoint.every=1 --set checkpoint.keep=2) s with 6 checkpoints, $(seconds "$strata" train run.yaml --quiet) s without"
  done
done
largest=$(ls -S saved/step-6/*.safetensors | head -n 1)
for turn in 1 2 3; do sync; dd if="$largest" of=/dev/null bs=16M iflag=direct 2>&1 | tail -n 1; done
