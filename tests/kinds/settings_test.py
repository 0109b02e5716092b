"""A setting is obeyed or refused, never ignored: every key of the config reference and every option of every plugin, as the program lists
them, is set to another value. What a run shows then differs (losses, weights, traffic, calls, memory, the program of its steps, files), or
the run is refused with the key. Beside what a member is set, and to which value: settings.py, with the few that show nothing, and why.

By default a sample of the members, drawn by --seed; --full: all.

  pytest tests/kinds/settings_test.py --collect-only -q              # the members
  pytest tests/kinds/settings_test.py --full -k optimizer/lamb
"""
import functools
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import tempfile

import pytest
import settings as walked
from commands import check_refused, run
from engine import Engine, set_arguments, write_tokens
from place import REPOSITORY, build_folder, program
from trainers import Trainers

SAMPLE, FEW = 24, 5  # members that are walked by default, of all and of some
CONFIG = {"device": "cpu", "data": {"path": ""}, "train": {"steps": 3, "micro_batch": 2, "accumulation": 2}, "learning_rate": {"base": 0.01},
          "model": {"plugin": "gpt_neox", "hidden_size": 16, "layers": 3, "heads": 2, "vocabulary": 257, "rotary_fraction": 1, "seq_len": 8},
          "partitioner": {"plugin": "zero1"}}
# What no two runs have alike, or what only repeats the config.
VOLATILE = {"median_step_s", "tokens_per_s", "step_seconds", "peak_rss_mib", "rss_after_mib", "cpu_use", "predicted_step_s", "seconds", "checkpoint",
            "setup"}


def engine_in(folder):
    return Engine(program(), [build_folder() / "lib/strata/plugins"], folder)


@functools.cache
def members():
    with tempfile.TemporaryDirectory() as folder:
        return walked.members(engine_in(folder))


def pytest_generate_tests(metafunc):
    if "member" not in metafunc.fixturenames:
        return
    found = [member for member in members() if member.name not in walked.SHOWN_NOWHERE]
    if metafunc.function is test_idle_is_refused:
        found = [member for member in found if walked.surroundings(member)[0]]
    if metafunc.function is test_model_of_a_checkpoint or metafunc.function is test_model_of_a_folder:
        found = [member for member in found if member.plugin.startswith("model/")]
    draw = random.Random(metafunc.config.getoption("--seed"))
    drawn = set(draw.sample(found, min(SAMPLE if metafunc.function is test_acts else FEW, len(found))))
    metafunc.parametrize("member", [pytest.param(member, id=member.name, marks=[] if member in drawn else pytest.mark.full) for member in found])


def without_volatile(value):
    if isinstance(value, dict):
        return {key: without_volatile(inner) for key, inner in value.items() if key not in VOLATILE}
    return [without_volatile(inner) for inner in value] if isinstance(value, list) else value


class Walk:
    """Runs of one config with settings, each once."""

    def __init__(self, folder):
        self.folder, self.seen = str(folder), {}
        self.engine = engine_in(self.folder)
        self.trainers = Trainers(build_folder() / "bin/matrix_trainer", self.engine)
        self.tokens = os.path.join(self.folder, "tokens.bin")
        write_tokens(self.tokens, 2000)
        self.config = self.engine.write_config("config.json", {**CONFIG, "data": {"path": self.tokens}})

    def filled_in(self, settings, work):
        return [setting.replace("{work}", work).replace("{tokens}", self.tokens) for setting in settings]

    def run(self, settings):
        """What a run of these settings on two ranks shows; its exit status and what it said, where it is refused."""
        key = tuple(settings)
        if key not in self.seen:
            work = tempfile.mkdtemp(dir=self.folder)
            result, plan = self.trainers.train(self.config, 2, self.filled_in(settings, work), digests=False)
            files = sorted(os.path.relpath(os.path.join(path, name), work) for path, _, names in os.walk(work) for name in names)
            shutil.rmtree(work)
            if result.status != 0:
                self.seen[key] = {"status": result.status, "said": result.output.replace(work, "")}
            else:
                weights = hashlib.sha256(b"".join(name.encode() + values.tobytes() for name, values in sorted(result.weights.items())))
                self.seen[key] = {"summary": without_volatile(result.summary), "weights": weights.hexdigest(), "plan": plan, "files": files}
        return self.seen[key]

    def outcomes(self, member, beside):
        """What each other value of a member does: acts, refused, or a sentence."""
        base, leaf = self.run(beside), member.name.removesuffix(".plugin").rsplit(".", 1)[-1]
        assert "status" not in base, f"without the member: {beside}: {base['said']}"
        found = {}
        for value in walked.values(member):
            changed = self.run([*beside, f"{member.path}={value}"])
            said, status = changed.get("said", ""), changed.get("status", 0)
            if status == 2:
                found[value] = "refused" if leaf in said or value.strip('"').replace("{work}", "") in said else f"refused for another reason: {said}"
            elif status not in (0, 3):  # 3: by the circumstances that the value makes, an overflow for one
                found[value] = f"exit status {status}: {said}"
            else:
                found[value] = "acts" if changed != base else "ignored: nothing differs"
        assert found, f"no other value is known for a {member.type}; add one to settings.py"
        return found


@pytest.fixture(scope="module")
def walk(folder):
    return Walk(folder)


def test_acts(walk, member):
    hangs_on, seen_with = walked.surroundings(member)
    found = walk.outcomes(member, seen_with + hangs_on)
    assert {"acts", "refused"} & set(found.values()), f"{member.path} beside {seen_with + hangs_on}: {found}"


def test_idle_is_refused(walk, member):
    """Without what it hangs on."""
    _, seen_with = walked.surroundings(member)
    found = walk.outcomes(member, seen_with)
    assert set(found.values()) <= {"acts", "refused"}, f"{member.path} beside {seen_with}: {found}"


def test_exceptions_are_members():
    known = {member.name for member in members()}
    assert set(walked.SHOWN_NOWHERE) <= known
    assert set(walked.VALUES) <= known


# --- beside other sources of truth -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def worker(walk):
    """A function: one ended command."""
    def command(*arguments, environment=()):
        return run([walk.engine.strata, *arguments], env={**walk.engine.environment, **dict(environment)}, cwd=walk.folder, timeout=60)
    return command


class Saved:
    """A training of a model, its checkpoint, its weights as a folder, and their loss."""

    def __init__(self, walk, worker, model):
        self.worker = worker
        self.sizes = walk.filled_in(walked.longest(walked.SEEN_WITH, f"model/{model}.") or [], "")
        self.config = walk.engine.write_config(f"{model}.json", {
            **CONFIG, "data": {"path": walk.tokens}, "model": {**({} if self.sizes else CONFIG["model"]), "plugin": model, "seq_len": 8},
            "partitioner": {"plugin": "ddp"}, "validation": {"path": walk.tokens, "samples": 8}})
        self.checkpoint, self.exported = os.path.join(walk.folder, f"{model}_checkpoint"), os.path.join(walk.folder, f"{model}_exported")
        done = worker("train", self.config, "--quiet", *set_arguments([*self.sizes, f"checkpoint.path={self.checkpoint}", f"export={self.exported}"]))
        assert done.returncode == 0, done.stderr
        self.loss = self.evaluated("--checkpoint", self.checkpoint)

    def evaluate(self, *words, settings=()):
        return self.worker("eval", self.config, "--quiet", "--format", "json", *words, *set_arguments(settings))

    def evaluated(self, *words):
        done = self.evaluate(*words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["loss"]


@pytest.fixture(scope="module")
def saved(walk, worker):
    made = {}
    return lambda model: made.get(model) or made.setdefault(model, Saved(walk, worker, model))


def other_models(member):
    return [value for value in walked.values(member) if (member.name, value) not in walked.SAME_MODEL]


def is_refused(done, member):
    return done.returncode == 2 and member.name.rsplit(".", 1)[1] in done.stderr


def test_model_of_a_checkpoint(saved, member):
    """An evaluation and a resumed run have the model that was saved, or are refused."""
    run, option = saved(member.plugin.split("/")[1]), member.name.rsplit(".", 1)[1]
    for value in other_models(member):
        setting = f"{member.path}={value}"
        evaluated = run.evaluate("--checkpoint", run.checkpoint, settings=[setting])
        resumed = run.worker("train", run.config, "--quiet", "--resume", run.checkpoint, *set_arguments([*run.sizes, setting, "train.steps=4"]))
        if option in walked.NO_ARCHITECTURE:
            assert evaluated.returncode == 0 and json.loads(evaluated.stdout)["loss"] == pytest.approx(run.loss, rel=1e-5), evaluated.stderr
            assert resumed.returncode == 0, resumed.stderr
        else:
            assert is_refused(evaluated, member), f"{setting}: {evaluated.stdout}{evaluated.stderr}"
            assert is_refused(resumed, member), f"{setting}: {resumed.stdout}{resumed.stderr}"


def test_model_of_a_folder(saved, member):
    run, option = saved(member.plugin.split("/")[1]), member.name.rsplit(".", 1)[1]
    for value in other_models(member):
        setting = f"{member.path}={value}"
        evaluated = run.evaluate("--init", run.exported, settings=[setting])
        if option in walked.NO_ARCHITECTURE or evaluated.returncode == 0:
            assert option in walked.NO_ARCHITECTURE, f"{setting} beside a folder of weights: {evaluated.stdout}"
        else:
            assert is_refused(evaluated, member), f"{setting}: {evaluated.stdout}{evaluated.stderr}"


@pytest.mark.parametrize("model", ["gpt2", "gpt_neox", "llama"])
def test_model_of_a_checkpoint_is_taken(saved, model):
    """By a config that gives no option of it."""
    run = saved(model)
    assert run.loss == pytest.approx(run.evaluated("--init", run.exported), rel=1e-5)


LAUNCHED = {"RANK": {"RANK": "0", "WORLD_SIZE": "1"},
            "two ranks": {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29599"},
            "mpirun": {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
            "srun": {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "7"}}
WORDS = {"eval": ["--init", "none"], "sample": ["--init", "none", "--prompt", "a"]}  # beside the config


def commands_with_nproc():
    """Those whose help has --nproc, as tests/house/help.txt records it."""
    for part in (REPOSITORY / "tests/house/help.txt").read_text().split("\n$ strata ")[1:]:
        command = part.split(" --help", 1)[0]
        if re.search(r"^  (--ranks,)?--nproc\b", part, re.M) and command not in walked.PLANS_FOR_RANKS:
            yield command


@pytest.mark.parametrize("command", commands_with_nproc())
@pytest.mark.parametrize("launcher", [launcher if launcher == "RANK" else pytest.param(launcher, marks=pytest.mark.full) for launcher in LAUNCHED])
def test_nproc_in_a_rank_of_a_launcher(walk, command, launcher):
    config = {"bench": "partitioner/zero3"}.get(command, walk.config)
    words = ["--nproc", "2", "true"] if command == "launch" else [config, *WORDS.get(command, []), "--nproc", "2"]
    done = run([walk.engine.strata, *command.split(), *words], env={**walk.engine.environment, **LAUNCHED[launcher]})
    check_refused(done, "rank 0 of")


def test_forgotten_srun(walk, worker):
    """Slurm gave the job tasks, and no srun started them."""
    done = worker("train", walk.config, "--quiet", environment={"SLURM_NTASKS": "8"})
    assert done.returncode == 0 and "SLURM_NTASKS" in done.stderr


# --- what a command does with a key that a trainer leaves to it ------------------------------------------------------------------------


def shown_by(walk, worker, settings):
    """Exit status, standard output and error of a training of six steps, and the files that it wrote."""
    with tempfile.TemporaryDirectory(dir=walk.folder) as work:
        done = worker("train", walk.config, *set_arguments(walk.filled_in(["train.steps=6", *settings], work)))
        return done.returncode, done.stdout, done.stderr, sorted(os.listdir(work))


def test_log_every(walk, worker):
    lines = [len(re.findall(r"^step +\d", shown_by(walk, worker, settings)[1], re.M)) for settings in ([], ["train.log_every=4"])]
    assert lines == [6, 3], "each step, or the first, the fourth and the last"


def test_export(walk, worker):
    assert shown_by(walk, worker, ["export={work}/weights"])[3] == ["weights"]


@pytest.mark.parametrize("key, value", [("memory_budget", "3MiB"), ("device_budget", "1MiB")])
def test_budgets(walk, worker, key, value):
    """What nothing is chosen by is refused, as is a run that takes more than its device has."""
    status, _, said, _ = shown_by(walk, worker, [f"{key}={value}", "model.hidden_size=128"])
    assert status == 2 and key in said


@pytest.mark.parametrize("words", ["--temperature 0 --top-k 5", "--temperature nan", *(pytest.param(words, marks=pytest.mark.full) for words in ("--temperature 0 --top-p 0.5", "--temperature 0 --seed 5", "--top-p nan"))])
def test_options_of_sample_without_effect(walk, words):
    done = run([walk.engine.strata, "sample", "none.yaml", "--checkpoint", "none", *words.split()], env=walk.engine.environment)
    check_refused(done, words.split()[-2])
