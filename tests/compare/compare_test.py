"""`strata compare`: its verdicts on equal and unequal runs.

The plugins of planted/, built against the installed tree, are compared on 2 ranks: a run with itself has equal bits; one lost gradient
element is reported with its parameter and step; every format holds what is to stand in it; wrong uses are refused. With --full also
what is statistical: of 20 comparisons of a run with itself at least 19 find no difference beyond noise, and of 10 with a partitioner
that sleeps 3 % of every step at least 9 call it slower.
"""
import csv
import html.parser
import io
import json
import re
import statistics

import pytest
from commands import call, told
from engine import Engine

# Large enough that a step takes some tens of milliseconds: a smaller one measures the scheduler of the operating system.
MODEL = {"plugin": "gpt_neox", "hidden_size": 96, "layers": 3, "heads": 4, "intermediate_size": 384, "vocabulary": 257, "seq_len": 64}


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


class Compare:
    def __init__(self, engine, tokens):
        self.engine = engine
        self.tree = {"device": "cpu", "model": MODEL, "data": {"path": tokens}, "train": {"steps": 100, "micro_batch": 2, "clip": 1.0},
                     "learning_rate": {"base": 1e-3}, "partitioner": {"plugin": "zero2"}, "communicator": {"timeout_s": 60}}
        self.config = engine.write_config("compare.json", self.tree)

    def run(self, *arguments, rounds=1, steps=4, config=None):
        return self.engine.run("compare", config or self.config, "--quiet", "--nproc", "2",
                               *(["--rounds", rounds] if rounds else []), "--steps", steps, *arguments, timeout=600)

    def variants(self, *arguments, **sizes):
        done = self.run(*arguments, "--format", "json", **sizes)
        assert done.returncode == 0, told(done)
        return json.loads(done.stdout)["variants"]


@pytest.fixture(scope="module")
def compare(repository, prefix, compile_environment, folder, tokens):
    planted = folder / "planted"
    call(["cmake", "-S", repository / "tests/compare/planted", "-B", planted, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
          f"-DCMAKE_PREFIX_PATH={prefix}"], env=compile_environment)
    call(["cmake", "--build", planted], env=compile_environment, timeout=600)
    return Compare(Engine(prefix / "bin/strata", [planted], folder), tokens)


def test_first_look(compare):
    done = compare.engine.run("compare", compare.config, "--vary", "partitioner.plugin=zero2,ddp", timeout=600)
    rows = {line[:17].strip(): line[17:].split() for line in done.stdout.splitlines()}
    assert "--thorough" in rows["verdict"] and "99 % interval" not in rows and len(rows["time / baseline"]) == 2, told(done)
    assert "a first look: one timed run of each" in done.stdout and "numbers of the first 5 steps" in done.stdout, told(done)
    said = done.stderr.splitlines()
    assert len(said) == len(set(said)) == 3 and re.fullmatch(r"speed, about \d+ s: variants in turn", said[2]), told(done)


def test_thorough(compare):
    """Eight rounds make a verdict. They are short here, so which verdict is left open."""
    same = compare.variants("--vary", "partitioner.plugin=zero2,zero2", "--thorough", "--warmup-steps", "1", rounds=None)[1]
    assert len(same["run_ratio"]) == 16 and same["ratio"]["verdict"], same


def test_equal_things(compare):
    _, same, other = compare.variants("--vary", "partitioner.plugin=zero2,zero2,ddp")
    assert same["difference"]["text"] == "equal bits"
    assert other["difference"]["first_step"] is None, "stage 2 and ddp are equal within the tolerance"
    assert len(other["losses"]) == 7, "and not said to be equal to the last bit for nothing"


@pytest.mark.parametrize("first_step", [0, 4])
def test_lost_element_is_named(compare, first_step):
    _, drops = compare.variants("--vary", "partitioner.plugin=zero2,drops", "--set", f"partitioner.drops.first_step={first_step}")
    found = drops["difference"]
    assert found["first_step"] == first_step + 1 and found["gradient_of"].startswith("gpt_neox"), found


TWO = ("--variant", "partitioner.plugin=ddp", "--variant", "partitioner.plugin=zero3 train.accumulation=1")


def test_csv_and_html(compare, tmp_path):
    page = tmp_path / "page.html"
    done = compare.run(*TWO, "--format", "csv", "--html", page)
    rows = list(csv.reader(io.StringIO(done.stdout)))
    assert len(rows) == 3 and len({len(row) for row in rows}) == 1, told(done)
    assert {"step s", "peak parameter", "peak RSS", "sent a step", "CPU %", "final loss", "numbers"} <= set(rows[0]), told(done)
    parser = Balanced()
    parser.feed(page.read_text())
    assert not parser.wrong and not parser.open, "a page is closed and loads nothing"
    assert parser.count.get("svg") == 3 and parser.count.get("path") == 2, parser.count


def test_markdown(compare):
    lines = compare.run(*TWO, "--format", "markdown").stdout.splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) > 10 and all(line.count(" | ") == 2 for line in table if "---" not in line), lines
    assert lines[:len(table)] == table and any(line.startswith("- ") for line in lines), "the runs follow the table"


def test_list_of_a_config(compare):
    variants = ["train.accumulation=1", "train.accumulation=2 train.micro_batch=1"]
    done = compare.run("--format", "csv", config=compare.engine.write_config("listed.json", {**compare.tree, "compare": variants}))
    assert [row.split(",")[0] for row in done.stdout.splitlines()[1:]] == variants, told(done)


@pytest.mark.parametrize("arguments, said", [
    ((), "nothing to compare"),
    (("--vary", "partitioner.plugin=ddp"), "two or more values"),
    (("--variant", "ddp", "--variant", "zero3"), "KEY=VALUE is expected"),
    (("--vary", "partitioner.plugin=ddp,nowhere"), "nowhere"),
    (("--vary", "train.step=1,2"), "unknown key"),
    (("--vary", "train.steps=1,2"), "give --steps"),
    (("--vary", "partitioner.plugin=ddp,zero3", "--html", "/nowhere/page.html"), "cannot be written"),
    (("--vary", "partitioner.plugin=ddp,zero3", "--rounds", "0"), "--rounds")])
def test_refused(compare, arguments, said):
    done = compare.run(*arguments)
    assert done.returncode not in (0, 134, 139) and said in done.stderr and done.stderr.count("\n") <= 2, told(done)


def test_list_of_one_is_refused(compare):
    done = compare.run(config=compare.engine.write_config("one.json", {**compare.tree, "compare": ["train.accumulation=1"]}))
    assert done.returncode == 2 and "there is only one variant" in done.stderr, told(done)


@pytest.fixture(scope="module")
def same(compare):
    """20 comparisons of a run with itself."""
    return [compare.variants("--vary", "partitioner.plugin=zero2,zero2", rounds=8, steps=60) for _ in range(20)]


@pytest.mark.full
def test_run_and_itself_do_not_differ(same):
    verdicts = [variants[1]["ratio"]["verdict"] for variants in same]
    assert sum(verdict == "no difference beyond noise" for verdict in verdicts) >= 19, verdicts


@pytest.mark.full
def test_three_percent_are_slower(compare, same):
    step = statistics.median(variant["median_step_s"] for variants in same for variant in variants)
    pause = f"partitioner.sleeps.microseconds={round(0.03 * step * 1e6)}"
    verdicts = [compare.variants("--vary", "partitioner.plugin=zero2,sleeps", "--set", pause, rounds=8, steps=60)[1]["ratio"]["verdict"] for _ in range(10)]
    assert sum(verdict.startswith("slower") for verdict in verdicts) >= 9, verdicts
