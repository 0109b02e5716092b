#!/usr/bin/env python3
"""A whole step in fp16 takes at most twice the time of one in fp32 on the processor, side by side in turns, on two ranks.

fp16_speed.py --strata PATH --plugins FOLDER [--ranks N]
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from engine import Engine, write_tokens  # noqa: E402

MOST = 2.0
MODEL = {"plugin": "gpt_neox", "hidden_size": 128, "layers": 3, "heads": 4, "vocabulary": 8192, "seq_len": 256}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", required=True, help="the executable")
    parser.add_argument("--plugins", required=True, help="the folder of the plugins")
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="strata_fp16_speed_") as work:
        engine = Engine(options.strata, [options.plugins], work)
        tokens = os.path.join(work, "tokens.bin")
        write_tokens(tokens)
        config = engine.write_config("config.json", {"device": "cpu", "model": MODEL, "data": {"path": tokens}, "train": {"steps": 8, "micro_batch": 1},
                                                     "learning_rate": {"base": 1e-3}})
        done = subprocess.run([engine.strata, "compare", config, "--nproc", str(options.ranks), "--rounds", "4", "--steps", "4", "--warmup-steps", "1",
                               "--vary", "precision.plugin=fp32,fp16", "--format", "json", "--quiet"],
                              env=engine.environment, capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            sys.exit(f"strata compare: exit status {done.returncode}: {done.stderr}")
        fp32, fp16 = json.loads(done.stdout)["variants"]
        ratio = fp16["ratio"]["value"]
        print(f"{'passed' if ratio <= MOST else 'FAILED'}: {fp32['median_step_s']:.3f} s in fp32, {fp16['median_step_s']:.3f} s in fp16; "
              f"ratio {ratio:.2f} ({fp16['ratio']['low']:.2f} .. {fp16['ratio']['high']:.2f}), at most {MOST}", flush=True)
    sys.exit(0 if ratio <= MOST else 1)


if __name__ == "__main__":
    main()
