#!/usr/bin/env bash
# From a fresh machine to a Pythia model that trains under ZeRO-3 on two processes; see usage below.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<END
usage: examples/quickstart.sh [--yes]

Installs what this machine lacks (cmake/bootstrap.sh, which lists it first and asks on a terminal), builds Strata
without its tests, packs the repository's own sources into tokens, one a byte, and trains pythia-14m on them: two ranks, parameters,
gradients and optimizer state sharded over them (zero3). Fails if the loss is not below the unigram entropy of the data. At the end
the trained model writes a text.
  --yes   do not ask
END
}

yes=''
case ${1:-} in
  '') ;;
  --yes) yes=--yes ;;
  -h | --help) usage; exit 0 ;;
  *) echo "quickstart.sh: unknown argument '$1'; --help lists the known ones" >&2; exit 2 ;;
esac

build=build/release run=build/quickstart
strata=$build/bin/strata

echo "Strata is set up here, built in $build (0.5 GB on disk) and trains: 6 to 25 minutes on 2 cores."
cmake/bootstrap.sh --for build $yes
cmake --preset release -DSTRATA_BUILD_TESTS=OFF
cmake --build $build --parallel "$(nproc)"

mkdir -p $run
$strata data pack core sdk plugins examples tests cmake README.md -o $run/train.bin --force
# Tokens are bytes here, so the vocabulary is 256: without the other 50048 rows of embedding and head a step is short.
config="configs/quickstart.yaml --set model.vocabulary=256"
rm -rf $run/checkpoints
$strata train $config --nproc 2 --set data.path=$run/train.bin --set train.steps=2500 --set learning_rate.base=4e-3 \
  --set data.order=shuffled --set train.log_every=100 \
  --set checkpoint.path=$run/checkpoints --metrics $run/metrics.jsonl --summary $run/summary.json

# The unigram entropy of the data is the loss of a model of the tokens' frequencies alone.
$strata data info $run/train.bin --seq-len 128 --format json >$run/data.json
python3 - $run/data.json $run/summary.json <<'END'
import json, sys
entropy = json.load(open(sys.argv[1]))["unigram_entropy"]
last = json.load(open(sys.argv[2]))["losses"][-100:]
loss = sum(last) / len(last)
print(f"Mean of the last {len(last)} losses: {loss:.3f}; unigram entropy of the data: {entropy:.3f} (nats a token)")
if not loss < entropy:
    sys.exit("quickstart.sh: the loss is not below the unigram entropy: the model learned token frequencies at most")
END

echo "The model's continuation of '#include <strata/', byte by byte:"
$strata sample $config --checkpoint $run/checkpoints --prompt '#include <strata/' --tokens 300 --temperature 0.6

cat <<END

What to try next:
  $strata sample $config --checkpoint $run/checkpoints --prompt 'std::' --seed 2
  $strata plugins list                    # every strategy is one of these, named in configs/quickstart.yaml
  $strata plugins show partitioner/zero3  # what it does and its options
  $strata train $config --nproc 4 --set data.path=$run/train.bin \\
    --set parallel.pipeline=2 --set scheduler.plugin=1f1b   # two pipeline stages, each sharded over two ranks
END
