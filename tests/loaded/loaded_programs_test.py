"""Commands in forks of a program (loaded_programs.py) do what those that are started do."""
import os
import signal
import subprocess
import threading
import time

import loaded_programs
import pytest
from engine import TINY_MODELS, write_tokens

TREE = {"device": "cpu", "train": {"steps": 2, "global_batch": 2}, "learning_rate": {"base": 1e-3}}
TWO = ["--nproc", "2"]


@pytest.fixture(scope="module")
def config(engine, folder):
    write_tokens(folder / "tokens.bin", 2000)
    model, sizes = next(iter(TINY_MODELS.items()))
    return engine.write_config("config.json", {**TREE, "data": {"path": folder / "tokens.bin"}, "model": {"plugin": model, "seq_len": 16, **sizes}})


def ended(run, engine, words, folder, **options):
    done = run([engine.strata, *words], env={**engine.environment, "COLUMNS": "100"}, cwd=folder, capture_output=True, text=True, timeout=60, **options)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.skipif(not loaded_programs.programs, reason="every command is started here")
@pytest.mark.parametrize("words", [["config", "show", "config.json"], ["train", "none.json", "--nproc", "2"], ["data", "info", "tokens.bin"]], ids=" ".join)
def test_outputs_and_status(engine, config, folder, words):
    assert ended(loaded_programs.run, engine, words, folder) == ended(subprocess.run, engine, words, folder)


def test_ranks(engine, config, folder):
    """Each is a fork too, and ends as the launcher wants."""
    losses = []
    for run in (loaded_programs.run, subprocess.run):
        status, _, errors = ended(run, engine, ["train", config, "--quiet", "--nproc", "2", "--metrics", f"{run.__module__}.jsonl"], folder)
        assert status == 0, errors
        losses.append((folder / f"{run.__module__}.jsonl").read_text().count('"loss"'))
    assert losses == [2, 2]


def writing(folder):
    """The processes that write the metrics of a run: its rank 0."""
    held = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            held += [int(name) for file in os.listdir(f"/proc/{name}/fd") if os.readlink(f"/proc/{name}/fd/{file}") == str(folder / "metrics")]
        except OSError:
            pass
    return sorted(set(held))


def long_run(engine, config, folder, ranks, timeout):
    words = [engine.strata, "train", config, "--set", "train.steps=1000000", "--quiet", "--metrics", "metrics", *ranks]
    return loaded_programs.run(words, env=engine.environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout)


@pytest.mark.parametrize("ranks", [[], TWO], ids=["one process", "two ranks"])
def test_late(engine, config, tmp_path, ranks):
    """Nothing of a command goes on after its time."""
    with pytest.raises(subprocess.TimeoutExpired):
        pytest.fail(str(long_run(engine, config, tmp_path, ranks, 1)))
    end = time.monotonic() + 20
    while writing(tmp_path) and time.monotonic() < end:
        time.sleep(0.05)
    assert not writing(tmp_path)


@pytest.mark.parametrize("number, ranks, status", [(signal.SIGTERM, TWO, 143), (signal.SIGKILL, TWO, 137), (signal.SIGKILL, [], -signal.SIGKILL)])
def test_signals(engine, config, tmp_path, number, ranks, status):
    """What a signal to rank 0 ends has the status of what was started."""
    def send():
        end = time.monotonic() + 50
        while not writing(tmp_path) and time.monotonic() < end:
            time.sleep(0.05)
        os.kill(writing(tmp_path)[0], number)

    sender = threading.Thread(target=send)
    sender.start()
    done = long_run(engine, config, tmp_path, ranks, 60)
    sender.join()
    assert done.returncode == status, done
