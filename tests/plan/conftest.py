import pytest


@pytest.fixture(scope="module")
def config(engine, tokens):
    """pythia-14m, two samples at a time."""
    return engine.write_config("plan.json", {
        "device": "cpu", "model": {"plugin": "gpt_neox", "preset": "pythia-14m", "seq_len": 64}, "data": {"path": tokens},
        "train": {"steps": 1, "micro_batch": 2}, "learning_rate": {"base": 1e-3}})
