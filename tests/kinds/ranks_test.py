"""Settings that must agree on all ranks are compared: every key whose path may differ from host to host, every option of `strata train`, the
engine's files, the checkpoint that a run goes on from. One rank is given another one, and both end before the first step with a sentence that names
the file and the ranks; or the option is free, by name and for a reason."""
import json
import os
import re
import shutil
import socket
import subprocess

import pytest
from engine import TINY_MODELS, set_arguments, write_tokens
from place import REPOSITORY, build_folder
from side_by_side import Commands

REFERENCE = (REPOSITORY / "configs/REFERENCE.md").read_text()
HELP = (REPOSITORY / "tests/house/help.txt").read_text()


def keys(mark):
    return re.findall(rf"^\| `([\w.]+)` *\|.*\| [^|]*per host: {mark}", REFERENCE, re.M)


def train_options():
    page = HELP.split("\n$ strata train --help", 1)[1].split("\n$ strata ", 1)[0]
    return [names.split(",")[-1] for names in re.findall(r"^  (-\S+)", page, re.M)]


# Options that may differ: they set a key, which is compared as a key, or nothing of the run depends on them.
FREE = {"--help": "prints this help", "--config": "the file; its values are compared", "--set": "sets keys", "--allow": "sets a key", "--model": "sets keys",
        "--data": "sets a key", "--dtype": "sets a key", "--export": "sets a key", "--nproc": "starts ranks, and is read by no rank",
        "--oversubscribe": "of --nproc", "--quiet": "what rank 0 prints", "--summary": "rank 0 alone writes it"}
# Of every other option what one rank has more than another.
DIFFERENT = {"--metrics": ["--metrics", "metrics"], "--trace": ["--trace", "trace"],
             "--warmup-steps": ["--warmup-steps", "1"], "--resume": ["--resume", "saved"]}
WITH = {"--export-dtype": (["--export", "weights", "--export-dtype", "bfloat16"], ["--export", "weights"]),
        "--digests": (["--metrics", "metrics", "--digests"], ["--metrics", "metrics"]),
        "--trace-steps": (["--trace", "trace", "--trace-steps", "1"], ["--trace", "trace"])}
NAMES = {"data.path": "tokens.bin", "validation.path": "validation.bin", "model.init": "init"}


class Ranks:
    def __init__(self, plugins, folder):
        self.commands, self.folder = Commands(plugins), folder
        write_tokens(folder / "tokens.bin", 2000)
        write_tokens(folder / "validation.bin", 500, seed=6)
        model, sizes = next(iter(TINY_MODELS.items()))
        tree = {"device": "cpu", "model": {"plugin": model, "seq_len": 16, **sizes}, "data": {"path": "tokens.bin"}, "learning_rate": {"base": 1e-3},
                "validation": {"path": "validation.bin"}, "train": {"steps": 4, "global_batch": 2}, "communicator": {"timeout_s": 20}}
        (folder / "config.json").write_text(json.dumps(tree))
        done = self.commands.call(folder, "train", "config.json", "--quiet", "--set", "checkpoint.path=saved", "--set", "checkpoint.every=2", "--export", "init",
                                "--set", "checkpoint.keep=0")
        assert done.status == 0, done.says()

    def environments(self, count=2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        return [{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": port} for rank in range(count)]

    def train(self, first, second, common=()):
        """Two ranks with arguments of their own."""
        return self.commands.run([(self.folder, ["train", "config.json", *common, *own], environment) for own, environment in
                                zip((first, second), self.environments(), strict=True)])

    def check_refused(self, ended, *said):
        for number, rank in enumerate(ended):
            missing = [text for text in said if text not in rank.output]
            assert rank.status in (2, 3) and not missing, f"rank {number} does not say {missing}: {rank.says()}"
            assert "step 1/" not in rank.output and "internal error" not in rank.output, rank.says()
            assert "rank 0" in rank.output and "rank 1" in rank.output, rank.says()


@pytest.fixture(scope="module")
def ranks(plugins, folder):
    return Ranks(plugins, folder)


def test_every_key_has_a_file_here():
    assert set(keys("same content")) == set(NAMES)


def test_every_option_is_compared_or_free():
    assert set(train_options()) == set(FREE) | set(DIFFERENT) | set(WITH)


def other_content(path):
    """One number in the middle changes."""
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 4 * 2)
        two = file.read(2)
        file.seek(-2, os.SEEK_CUR)
        file.write(bytes([two[0] ^ 1, two[1]]))


def other_length(path):
    os.truncate(path, os.path.getsize(path) - 2)


def another(ranks, name, change):
    """A copy of a file, or of a folder of weights, that is another in one place."""
    copy = ranks.folder / "other" / change.__name__ / name
    shutil.rmtree(copy.parent, ignore_errors=True)
    copy.parent.mkdir(parents=True)
    if not os.path.isdir(ranks.folder / name):
        shutil.copy(ranks.folder / name, copy)
        change(copy)
    else:
        shutil.copytree(ranks.folder / name, copy)
        change(copy / "model.safetensors")
    return copy


@pytest.mark.parametrize("key", keys("same content"))
@pytest.mark.parametrize("change", [other_content, other_length])
def test_other_content(ranks, key, change):
    if key == "model.init" and change is other_length:
        pytest.skip("such a file is damaged, and refused as that")
    copy = another(ranks, NAMES[key], change)
    ended = ranks.train(["--set", f"{key}={NAMES[key]}"], ["--set", f"{key}={copy}"])
    ranks.check_refused(ended, "the files that are read differ between ranks", f"{key} {NAMES[key]} (", f"{key} {copy} (")


@pytest.mark.parametrize("key", ["validation.path", "model.init"])
def test_only_one_reads(ranks, key):
    ended = ranks.train(["--set", f"{key}={NAMES[key]}"], ["--set", f'{key}=""'])
    ranks.check_refused(ended, "differ between ranks", key.split(".")[0])


def test_equal_content_elsewhere(ranks):
    """Another path is no difference."""
    place = ranks.folder / "elsewhere"
    shutil.copytree(ranks.folder / "init", place / "init")
    for name in ("tokens.bin", "validation.bin"):
        shutil.copy(ranks.folder / name, place)
    settings = [[f"{key}={path / name}" for key, name in NAMES.items()] for path in (ranks.folder, place)]
    ended = ranks.train(*map(set_arguments, settings), ["--set", "train.steps=1", "--quiet"])
    assert [rank.status for rank in ended] == [0, 0], [rank.says() for rank in ended]


@pytest.mark.parametrize("key", keys("rank 0 writes"))
def test_given_on_one_rank(ranks, key):
    for first, second in (["--set", f"{key}=out"], []), ([], ["--set", f"{key}=out"]):
        ranks.check_refused(ranks.train(first, second), "the configs differ between ranks", f"no {key}", f"a path for {key}")


@pytest.mark.parametrize("option", [*DIFFERENT, *WITH])
def test_option_on_one_rank(ranks, option):
    first, second = WITH.get(option, (DIFFERENT.get(option), []))
    for own in (first, second), (second, first):
        ranks.check_refused(ranks.train(*own), "the configs differ between ranks", option)


@pytest.mark.parametrize("name", [pytest.param("libstrata.so"), pytest.param("libstrata_interface.so", marks=pytest.mark.full),
                                  pytest.param("libc10.so", marks=pytest.mark.full), pytest.param("libstrata_optimizer_adamw.so")])
def test_other_bytes(ranks, plugins, torch, tmp_path, name):
    """Of a library of Strata or libtorch, or of a plugin: one byte more on one rank."""
    source = next(path for path in (plugins / name, build_folder() / "lib" / name, torch / "lib" / name) if path.exists())
    longer(source, tmp_path / name)
    environment = {"LD_LIBRARY_PATH": str(tmp_path), "STRATA_PLUGIN_PATH": f"{tmp_path}:{plugins}", "STRATA_CONFIG_DIR": str(REPOSITORY / "configs")}
    common = {**os.environ, "STRATA_PLUGIN_PATH": str(plugins), "OMP_NUM_THREADS": "1"}
    program = build_folder() / "libexec/strata/strata"
    started = [subprocess.Popen([program, "train", "config.json"], cwd=ranks.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                env={**common, **own, **(environment if rank == 1 else {})}) for rank, own in enumerate(ranks.environments())]
    for number, process in enumerate(started):
        said = process.communicate(timeout=60)[0]
        assert process.returncode == 3 and "the engines differ between ranks" in said and f"{tmp_path}/{name}" in said and "rank 0" in said, \
            f"rank {number}: exit status {process.returncode}: {said}"


def longer(source, copy):
    shutil.copy(source, copy)
    with open(copy, "ab") as file:
        file.write(b"x")


def test_data_replaced_before_a_resume(ranks):
    """Other tokens in a file of equal length: the checkpoint knows the data that it was saved over."""
    copy = another(ranks, "tokens.bin", other_content)
    done = ranks.commands.call(ranks.folder, "train", "config.json", "--resume", "saved", "--set", "train.steps=5", "--set", f"data.path={copy}")
    assert done.status == 2 and "the same number of other samples" in done.output and str(copy) in done.output, done.says()
    done = ranks.commands.call(ranks.folder, "train", "config.json", "--resume", "saved", "--set", "train.steps=5", "--quiet")
    assert done.status == 0, done.says()


def test_another_checkpoint_of_the_same_name(ranks):
    """On a host where the path leads to another folder."""
    places = [ranks.folder / name for name in ("mine", "theirs")]
    for rate, place in enumerate(places, 1):
        place.mkdir()
        for name in ("config.json", "tokens.bin", "validation.bin"):
            shutil.copy(ranks.folder / name, place)
        done = ranks.commands.call(place, "train", "config.json", "--quiet", "--set", f"learning_rate.base={rate}e-3", "--set", "checkpoint.path=saved")
        assert done.status == 0, done.says()
    arguments = ["train", "config.json", "--resume", "saved", "--set", "train.steps=5"]
    ended = ranks.commands.run([(place, arguments, environment) for place, environment in zip(places, ranks.environments(), strict=True)])
    ranks.check_refused(ended, "rank 1 reads another checkpoint here than rank 0")
