#!/usr/bin/env python3
"""`strata bench` of every plugin on the search path, with tiny sizes and few repetitions.

bench_command.py --strata PROGRAM

Each report has the rows of its kind, with positive finite figures and an interval around each ratio; nothing is asked of how long anything
takes. A plugin that cannot be used here is refused with the reason that `strata doctor` gives. Every format holds the same rows, and wrong
uses are refused.
"""
import argparse
import csv
import io
import json
import math
import os
import subprocess
import sys

# By kind: sizes, and its rows (of a model what their names begin with).
SIZES = {"device": ["4096"], "communicator": ["4096"], "partitioner": ["4096"], "precision": ["16"], "scheduler": ["4"], "offload": ["4096"],
         "optimizer": ["4096"], "model": ["8"]}
ROWS = {"device": ["copy to a host buffer", "copy from a host buffer"],
        "communicator": ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all", "send and receive"],
        "partitioner": ["a step's gathers and reductions"],
        "precision": ["linear, forward", "linear, forward and backward"],
        "scheduler": ["bubble", "place and order of all stages"],
        "offload": ["write", "read"],
        "optimizer": ["step, fp32", "step, fp32 master and bf16 copy"],
        "model": ["block", "head"]}
SETTINGS = {"model/gpt_neox": ["hidden_size=16", "layers=3", "heads=2", "intermediate_size=32", "vocabulary=64"]}
ROUNDS = 8


class Tests:
    def __init__(self, strata):
        self.strata, self.failures = strata, []

    def run(self, *arguments):
        return subprocess.run([self.strata, *arguments], capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"), timeout=300)

    def check(self, holds, text):
        if not holds:
            self.failures.append(text)
            print(f"FAILED: {text}")

    def bench(self, plugin, *arguments):
        command = ["bench", plugin, "--rounds", str(ROUNDS), "--seconds", "1e-5", "--threads", "1"]
        for size in SIZES[plugin.split("/")[0]]:
            command += ["--size", size]
        for setting in SETTINGS.get(plugin, []):
            command += ["--set", setting]
        return self.run(*command, *arguments)

    def check_report(self, plugin):
        done = self.bench(plugin, "--format", "json")
        if done.returncode == 3 and "cannot be measured here: " in done.stderr:
            reason = done.stderr.split("cannot be measured here: ", 1)[1].strip()
            told = self.run("doctor").stdout
            self.check(reason and reason in told, f"{plugin} is refused with '{reason}', which is not what `strata doctor` says")
            print(f"{plugin}: refused: {reason}")
            return
        if done.returncode != 0:
            self.check(False, f"bench {plugin}: exit status {done.returncode}: {done.stderr}")
            return
        report = json.loads(done.stdout)
        kind = plugin.split("/")[0]
        self.check(report["plugin"] == plugin and report["rounds"] == ROUNDS, f"{plugin}: {report['plugin']}, {report['rounds']} rounds")
        self.check(report["ranks"] == (2 if kind in ("communicator", "partitioner") else 1), f"{plugin}: {report['ranks']} ranks")
        names = [row["case"] for row in report["rows"]]
        for name in ROWS[kind]:
            self.check(any(found == name or (kind == "model" and found.startswith(name)) for found in names), f"{plugin}: no row {name} in {names}")
        for row in report["rows"]:
            count = 1 if row["unit"] == "share" else ROUNDS
            figures = [row[key] for key in ("median", "least", "most", "floor_median", "ratio", "ratio_low", "ratio_high")] + row["values"] + row["floor_values"]
            self.check(all(isinstance(figure, (int, float)) and math.isfinite(figure) and figure > 0 for figure in figures), f"{plugin}: figures of {row}")
            self.check(len(row["values"]) == count and len(row["floor_values"]) == count, f"{plugin}: {row['case']} has {len(row['values'])} rounds")
            self.check(row["least"] <= row["median"] <= row["most"] and row["ratio_low"] <= row["ratio"] <= row["ratio_high"], f"{plugin}: order in {row}")
            self.check(row["floor"] and row["size"], f"{plugin}: {row} has no floor or size")
        print(f"{plugin}: {len(names)} rows")

    def check_formats(self):
        plugin = "scheduler/1f1b"
        rows = json.loads(self.bench(plugin, "--format", "json").stdout)["rows"]
        table = list(csv.DictReader(io.StringIO(self.bench(plugin, "--format", "csv").stdout)))
        self.check([row["case"] for row in table] == [row["case"] for row in rows] and set(table[0]) ==
                   {"case", "size", "median", "least..most", "rate", "floor", "floor's median", "ratio"}, f"csv: {table}")
        text, markdown = self.bench(plugin).stdout, self.bench(plugin, "--format", "markdown").stdout
        for row in rows:
            self.check(row["case"] in text and f"| {row['case']} " in markdown, f"no {row['case']} in\n{text}\n{markdown}")
        self.check("99 % interval" in text and "1 thread," in text, f"the table does not say how it was measured:\n{text}")

    def check_refusals(self):
        done = self.bench("model/gpt_neox", "--size", "1MiB")
        self.check(done.returncode == 2 and "tokens per sample" in done.stderr, f"a sequence longer than the model takes: {done.returncode} {done.stderr}")
        for words, *arguments in (["give KIND/NAME", "adamw"], ["did you mean optimizer?", "optimiser/adamw"], ["optimizer/nothing", "optimizer/nothing"],
                                  ["has no such option", "optimizer/adamw", "--set", "betass=1"], ["OPTION=VALUE", "optimizer/adamw", "--set", "betas"],
                                  ["--rounds", "optimizer/adamw", "--rounds", "2"], ["preset", "model/gpt_neox"],
                                  ["micro-batches", "scheduler/1f1b", "--size", "1GiB"], ["absolute path", "./libmine.so"]):
            done = self.run("bench", *arguments)
            self.check(done.returncode == 2 and words in done.stderr, f"bench {' '.join(arguments)}: {done.returncode}, '{words}' is not in: {done.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", required=True)
    tests = Tests(parser.parse_args().strata)
    plugins = [entry["plugin"] for entry in json.loads(tests.run("plugins", "list", "--format", "json").stdout)
               if entry["plugin"] and not entry["problem"] and not entry["shadowed_by"]]
    tests.check({name.split("/")[0] for name in plugins} == set(ROWS), f"plugins of every kind are expected: {plugins}")
    for plugin in plugins:
        tests.check_report(plugin)
    tests.check_formats()
    tests.check_refusals()
    sys.exit(1 if tests.failures else 0)


if __name__ == "__main__":
    main()
