#!/usr/bin/env bash
# Makes a Python environment with the peers that tests/benchmarks/peers/run.py measures: Strata's torch (cmake/torch_version), transformers, DeepSpeed 0.19.8.
set -euo pipefail
[ $# -eq 1 ] && [[ $1 != -* ]] || { echo "usage: tests/benchmarks/peers/setup.sh FOLDER   (about 6 GB; needs python3 with venv and headers, g++, ninja)" >&2; exit 2; }
python3 -m venv "$1"
pip="$1/bin/pip"
"$pip" install -q "torch==$(cat "$(dirname "$0")/../../../cmake/torch_version")" numpy "transformers==5.23.0" "safetensors==0.8.0"
"$pip" install -q "setuptools<82" wheel ninja py-cpuinfo hjson einops msgpack "pydantic>=2" tqdm psutil
# DeepSpeed is built against the torch that is there, and compiles its operators when it first uses them.
DS_ACCELERATOR=cpu DS_BUILD_OPS=0 "$pip" install -q --no-build-isolation deepspeed==0.19.8
echo "Now: python3 tests/benchmarks/peers/run.py --python $1/bin/python3 --build build/release"
