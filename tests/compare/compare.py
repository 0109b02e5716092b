#!/usr/bin/env python3
"""`strata compare`: what it says of equal and of unequal things.

compare.py --prefix PREFIX --source SOURCE [--work DIR] [--full]

Builds the plugins of planted/ against the tree installed in PREFIX and compares them on 2 ranks: a run with itself has equal bits; one
lost gradient element is reported with its parameter and step; every format holds what is to stand in it; wrong uses are refused. With
--full also what is statistical: of 20 comparisons of a run with itself at least 19 find no difference beyond noise, and of 10 with a
partitioner that sleeps 3 % of every step at least 9 call it slower.
"""
import argparse
import csv
import html.parser
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from engine import Engine, write_tokens  # noqa: E402

# Large enough that a step takes some tens of milliseconds: a smaller one measures the scheduler of the operating system.
MODEL = {"plugin": "gpt_neox", "hidden_size": 96, "layers": 3, "heads": 4, "intermediate_size": 384, "vocabulary": 257, "seq_len": 64}


def build_planted(source, prefix, work):
    build = os.path.join(work, "planted")
    for command in (["cmake", "-S", os.path.join(source, "tests/compare/planted"), "-B", build, "-G", "Ninja",
                     "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={prefix}"], ["cmake", "--build", build]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return build


class Balanced(html.parser.HTMLParser):
    """Counts what a page holds and finds tags that are not closed."""
    VOID = {"meta"}

    def __init__(self):
        super().__init__()
        self.open, self.count, self.wrong = [], {}, []

    def handle_starttag(self, tag, attributes):
        self.count[tag] = self.count.get(tag, 0) + 1
        self.wrong += [value for name, value in attributes if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.count[tag] = self.count.get(tag, 0) + 1

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}>")


class Tests:
    def __init__(self, options):
        self.options, self.failed, self.passed = options, 0, 0
        work = options.work or tempfile.mkdtemp(prefix="strata_compare_")
        os.makedirs(work, exist_ok=True)
        self.engine = Engine(os.path.join(options.prefix, "bin/strata"), [build_planted(options.source, options.prefix, work)], work)
        tokens = os.path.join(work, "tokens.bin")
        write_tokens(tokens)
        self.tree = {"device": "cpu", "model": MODEL, "data": {"path": tokens}, "train": {"steps": 100, "micro_batch": 2, "clip": 1.0},
                     "learning_rate": {"base": 1e-3}, "partitioner": {"plugin": "zero2"}, "communicator": {"timeout_s": 60}}
        self.config = self.engine.write_config("compare.json", self.tree)

    def check(self, name, holds, found=""):
        print(f"{'passed' if holds else 'FAILED'}: {name}{'' if holds else f': {found}'}", flush=True)
        self.passed, self.failed = self.passed + bool(holds), self.failed + (not holds)

    def compare(self, *arguments, rounds=1, steps=4, config=None):
        command = [self.engine.strata, "compare", config or self.config, "--quiet", "--nproc", "2", "--rounds", str(rounds), "--steps", str(steps), *arguments]
        return subprocess.run(command, env=self.engine.environment, capture_output=True, text=True, timeout=600)

    def variants(self, *arguments, **sizes):
        done = self.compare(*arguments, "--format", "json", **sizes)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(done.args)}\nexit status {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)["variants"]

    def equal_things(self):
        _, same, other = self.variants("--vary", "partitioner.plugin=zero2,zero2,ddp")
        self.check("a run and itself: equal bits", same["difference"]["text"] == "equal bits", same["difference"])
        self.check("stage 2 and ddp: no step beyond the tolerance", other["difference"]["first_step"] is None, other["difference"])
        self.check("and the second is not said to be equal to the last bit for nothing", len(other["losses"]) == 7, other["losses"])

    def lost_elements(self):
        for first_step in (0, 4):
            _, drops = self.variants("--vary", "partitioner.plugin=zero2,drops", "--set", f"partitioner.drops.first_step={first_step}")
            found = drops["difference"]
            self.check(f"an element lost from step {first_step + 1} on: that step and a parameter are named",
                       found["first_step"] == first_step and found["gradient_of"].startswith("gpt_neox"), found)

    def formats(self):
        page = os.path.join(self.engine.work, "page.html")
        variants = ("--variant", "partitioner.plugin=ddp", "--variant", "partitioner.plugin=zero3 train.accumulation=1")
        done = self.compare(*variants, "--format", "csv", "--html", page)
        rows = list(csv.reader(io.StringIO(done.stdout)))
        self.check("csv: a line a variant, a column a quantity", len(rows) == 3 and len({len(row) for row in rows}) == 1 and
                   {"step s", "peak parameter", "peak RSS", "sent a step", "CPU %", "final loss", "numbers"} <= set(rows[0]), done.stdout + done.stderr)
        parser = Balanced()
        with open(page) as file:
            parser.feed(file.read())
        self.check("html: one closed page with three pictures, which loads nothing", not parser.wrong and not parser.open and parser.count.get("svg") == 3 and
                   parser.count.get("path") == 2, (parser.wrong, parser.open, parser.count))
        table = self.compare(*variants, "--format", "markdown").stdout.splitlines()
        self.check("markdown: a table of three columns", len(table) > 10 and all(line.count(" | ") == 2 for line in table if "---" not in line), table)
        listed = self.engine.write_config("listed.json", {**self.tree, "compare": ["train.accumulation=1", "train.accumulation=2 train.micro_batch=1"]})
        done = self.compare("--format", "csv", config=listed)
        self.check("a config's own list", [row.split(",")[0] for row in done.stdout.splitlines()[1:]] ==
                   ["train.accumulation=1", "train.accumulation=2 train.micro_batch=1"], done.stdout + done.stderr)

    def refusals(self):
        one = self.engine.write_config("one.json", {**self.tree, "compare": ["train.accumulation=1"]})
        for name, arguments, said in (
                ("nothing to compare", (), "nothing to compare"),
                ("one value", ("--vary", "partitioner.plugin=ddp"), "two or more values"),
                ("no setting", ("--variant", "ddp", "--variant", "zero3"), "KEY=VALUE is expected"),
                ("no such plugin", ("--vary", "partitioner.plugin=ddp,nowhere"), "nowhere"),
                ("no such key", ("--vary", "train.step=1,2"), "unknown key"),
                ("a page nowhere", ("--vary", "partitioner.plugin=ddp,zero3", "--html", "/nowhere/page.html"), "cannot be written"),
                ("too few rounds", ("--vary", "partitioner.plugin=ddp,zero3", "--rounds", "0"), "--rounds")):
            done = self.compare(*arguments)
            self.check(f"refused: {name}", done.returncode not in (0, 134, 139) and said in done.stderr and done.stderr.count("\n") <= 2, done.stderr)
        done = self.compare(config=one)
        self.check("refused: a list of one", done.returncode == 2 and "one variant is no comparison" in done.stderr, done.stderr)

    def statistics(self):
        same = [self.variants("--vary", "partitioner.plugin=zero2,zero2", rounds=8, steps=60) for _ in range(20)]
        verdicts = [variants[1]["ratio"]["verdict"] for variants in same]
        equal = sum(verdict == "no difference beyond noise" for verdict in verdicts)
        self.check(f"a run and itself: no difference beyond noise in {equal} of 20", equal >= 19, verdicts)
        step = statistics.median(variant["median_step_s"] for variants in same for variant in variants)
        pause = f"partitioner.sleeps.microseconds={round(0.03 * step * 1e6)}"
        verdicts = [self.variants("--vary", "partitioner.plugin=zero2,sleeps", "--set", pause, rounds=8, steps=60)[1]["ratio"]["verdict"] for _ in range(10)]
        slower = sum(verdict.startswith("slower") for verdict in verdicts)
        self.check(f"3 % of every step ({step * 1e3:.1f} ms) asleep: called slower in {slower} of 10", slower >= 9, verdicts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", required=True, type=os.path.abspath, help="the installed tree")
    parser.add_argument("--source", required=True, type=os.path.abspath, help="the repository")
    parser.add_argument("--work", help="where runs write; a temporary folder when not given")
    parser.add_argument("--full", action="store_true", help="also what takes many comparisons")
    tests = Tests(parser.parse_args())
    tests.equal_things()
    tests.lost_elements()
    tests.formats()
    tests.refusals()
    if tests.options.full:
        tests.statistics()
    print(f"{tests.passed} passed, {tests.failed} failed")
    return 1 if tests.failed else 0


if __name__ == "__main__":
    sys.exit(main())
