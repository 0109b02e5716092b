"""Matmuls in 8 bits train as well as in bf16: 300 steps of pythia-14m on this repository's own sources, a byte a token as in
examples/quickstart.sh, at the learning rate of configs/quickstart.yaml. What is compared is the mean loss of the last steps, which the same
batches give. At four times that rate two runs that differ by roundings end 1.2 % apart, either way."""
import statistics

import pytest
from commands import call
from engine import Engine

STEPS, LAST = 300, 30
BOUND = 0.01  # relative to bf16's loss


@pytest.fixture(scope="module")
def loss(strata, plugins, repository, folder):
    """A function: the mean loss of the last steps with these settings."""
    engine, tokens = Engine(strata, [plugins], folder), folder / "sources.bin"
    call([strata, "data", "pack", *(repository / part for part in ("core", "sdk", "plugins", "tests")), "-o", tokens], env=engine.environment)
    config = engine.write_config("config.json", {
        "device": "cpu", "model": {"plugin": "gpt_neox", "preset": "pythia-14m", "vocabulary": 256, "seq_len": 128},
        "data": {"path": tokens, "order": "shuffled"}, "train": {"steps": STEPS, "micro_batch": 4, "clip": 1.0},
        "learning_rate": {"plugin": "cosine", "base": 1e-3, "warmup": 20, "final_ratio": 0.1}})

    def loss(*settings):
        result = engine.train(config, 1, settings, timeout=1800)
        assert result.status == 0, result.output
        return statistics.fmean(result.losses[-LAST:])

    return loss


@pytest.fixture(scope="module")
def bf16(loss):
    return loss("precision.plugin=bf16")


@pytest.mark.parametrize("settings", [["precision.plugin=fp8"], ["precision.plugin=fp8", "precision.fp8.scaling=delayed"], ["precision.plugin=mxfp8"]],
                         ids=["fp8", "fp8 delayed", "mxfp8"])
def test_300_steps(loss, bf16, settings):
    found = loss(*settings)
    print(f"{found:.4f}, bf16 {bf16:.4f}: {found / bf16 - 1:+.2%}")
    assert abs(found / bf16 - 1) <= BOUND
