"""`offload: auto`: what it chooses, that it changes no number, what it refuses.

- The chosen homes fit the budget, by the run's own ledger, and every loss is that of the run without offload, bit by bit.
- What it prints as YAML is a config that trains the same without measuring.
- Budgets that nothing fits, runs that it does not know, and commands that cannot measure are refused with what to do.
"""
import dataclasses
import functools
import json
import os
import re

import pytest
from engine import set_arguments

MODEL = {"plugin": "gpt_neox", "hidden_size": 120, "layers": 4, "heads": 3, "vocabulary": 257, "seq_len": 64}
ZERO3 = ["partitioner.plugin=zero3"]


@pytest.fixture(scope="module")
def runs(engine, tokens, tmp_path_factory):
    return Runs(engine, tokens, tmp_path_factory.mktemp("disk"))


@dataclasses.dataclass
class Trained:
    summary: dict
    output: str

    @property
    def losses(self):
        return self.summary["losses"]

    @property
    def device_bytes(self):
        return max(rank["total_peak_bytes"][0] for rank in self.summary["memory"])


class Runs:
    def __init__(self, engine, tokens, disk):
        self.engine, self.disk = engine, disk
        self.tree = {"device": "cpu", "model": MODEL, "data": {"path": tokens}, "train": {"steps": 4, "micro_batch": 2, "accumulation": 2},
                     "learning_rate": {"base": 1e-3}, "communicator": {"timeout_s": 60}}
        self.config = engine.write_config("auto.json", self.tree)
        self.without = functools.cache(lambda ranks, more=(): self.train(ranks, [*ZERO3, *more]))  # offload; every run is made once

    def planned_bytes(self, ranks, settings=(), config=None):
        """Of the device, of the rank that takes the most."""
        return max(rank["total"] for rank in self.engine.plan(config or self.config, ranks, [*ZERO3, *settings]))

    def auto(self, budget, schedulers=False):
        """`schedulers`: it chooses among them too, and so among three times as many placements."""
        return [*ZERO3, *([] if schedulers else ["scheduler.plugin=1f1b"]), "offload=auto", "offload.host=none", "offload.disk.plugin=nvme",
                f"offload.disk.nvme.path={self.disk}", f"device_budget={budget}", "offload.read_ahead=2MiB", "offload.update_elements=65536"]

    def train(self, ranks, settings, config=None):
        path = os.path.join(self.engine.work, "summary.json")
        done = self.engine.run("train", config or self.config, "--nproc", ranks, "--summary", path, *set_arguments(settings))
        assert done.returncode == 0, done.stderr
        with open(path) as file:
            return Trained(json.load(file), done.stdout + done.stderr)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("more", [[], ["step_policy=delayed", "precision.plugin=bf16"]], ids=["plain", "delayed bf16"])
def test_the_choice_fits_and_changes_no_number(runs, ranks, more, request):
    """With schedulers to choose among on one and two ranks, with --full everywhere."""
    without = runs.without(ranks, tuple(more))
    budget = int(0.6 * runs.planned_bytes(ranks, more))
    chosen = runs.train(ranks, [*runs.auto(budget, schedulers=request.config.getoption("--full") or (not more and ranks < 3)), *more])
    assert chosen.losses == without.losses
    assert chosen.device_bytes <= budget
    assert chosen.summary["predicted_step_s"] > 0
    assert "offload: auto predicted" in chosen.output
    assert not list(runs.disk.iterdir())


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("scheduler, share", [("1f1b", 0.7), ("zero_bubble_h1", 0.85)])
def test_stages_of_a_pipeline_choose_together(runs, ranks, scheduler, share):
    """With a share of what is planned that only some state elsewhere leaves."""
    settings = ["parallel.pipeline=2", f"scheduler.plugin={scheduler}"]
    without = runs.train(ranks, [*ZERO3, *settings])
    budget = int(share * runs.planned_bytes(ranks, settings))
    chosen = runs.train(ranks, [*runs.auto(budget), *settings])
    assert chosen.losses == without.losses
    assert chosen.device_bytes <= budget
    assert chosen.summary["predicted_step_s"] > 0
    assert "plugin: nvme" in chosen.output and "scheduler:" not in chosen.output
    assert not list(runs.disk.iterdir())


def test_host_memory_is_taken_before_a_disk(runs):
    without = runs.without(1)
    chosen = runs.train(1, [*runs.auto(int(0.9 * runs.planned_bytes(1))), "offload.host=cpu"])
    assert "plugin: cpu" in chosen.output and "plugin: nvme" not in chosen.output
    assert chosen.losses == without.losses


def test_with_room_nothing_leaves(runs):
    result = runs.train(1, runs.auto("4GB"))
    assert "offload: {parameters: none, optimizer: none, activations: none" in result.output
    assert result.summary["offload"][0] == {"read": 0, "written": 0}


def test_its_output_is_a_config(runs, tmp_path):
    without = runs.without(1)
    budget = int(0.6 * runs.planned_bytes(1))
    chosen = runs.train(1, runs.auto(budget, schedulers=True))
    lines = [line.split("offload: auto:   ")[1] for line in chosen.output.splitlines() if "offload: auto:   " in line]
    assert [line.split(":")[0] for line in lines] == ["scheduler", "activations", "offload"]
    path = tmp_path / "pasted.yaml"
    tree = runs.tree
    path.write_text(f"model: {{{', '.join(f'{key}: {value}' for key, value in MODEL.items())}}}\n"
                    f"device: cpu\ndata: {{path: {tree['data']['path']}}}\ntrain: {{steps: 4, micro_batch: 2, accumulation: 2}}\n"
                    f"learning_rate: {{base: 1e-3}}\npartitioner: zero3\n" + "\n".join(lines) + "\n")
    pasted = runs.train(1, [], config=str(path))
    assert pasted.losses == without.losses
    assert pasted.device_bytes == chosen.device_bytes
    assert runs.planned_bytes(1, config=str(path)) <= budget
    assert "predicted_step_s" not in pasted.summary


def test_homes_of_the_config_are_kept(runs):
    without = runs.without(1)
    result = runs.train(1, [*runs.auto(int(0.9 * runs.planned_bytes(1))), "offload.parameters=none", "activations.checkpoint=none",
                            "scheduler.plugin=gpipe"])
    assert re.search(r"offload: \{parameters: none, optimizer: \{plugin: nvme", result.output), result.output
    assert "activations: {checkpoint" not in result.output and "scheduler:" not in result.output
    assert result.losses == without.losses


def refused(runs, settings, ranks=1, command="train"):
    done = runs.engine.run(command, runs.config, "--nproc", ranks, *set_arguments(settings))
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_refusals_name_the_remedy(runs):
    auto = runs.auto("1GB")
    assert "raise the budget, or reduce train.micro_batch or model.seq_len" in refused(runs, runs.auto("1MiB"))
    assert "parallel.cut is measured" in refused(runs, [*auto, "parallel.pipeline=2", "parallel.cut=measured"], 2)
    assert "set step_policy: plain or delayed" in refused(runs, [*auto, "step_policy=speculative"])
    assert "offload.host and offload.disk are none" in refused(runs, ["offload=auto", "offload.host=none"])
    assert "which only `strata train` and strata::initialize() do; they print the chosen keys" in refused(runs, auto, command="plan")
    assert "create the folder" in refused(runs, ["offload=auto", "offload.disk.plugin=nvme", f"offload.disk.nvme.path={runs.disk}/none"])
    text = refused(runs, ["device_budget=1MiB"], 2)
    assert re.search(r"device_budget is 1.00 MiB, and a step of rank 0 needs \S+ MiB of device memory", text), text
