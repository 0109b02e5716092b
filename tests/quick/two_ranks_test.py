"""Two ranks under ZeRO-3 compute the losses of one process, on the real program: launcher, store, gloo, shared memory, checkpoint."""
import os
import shutil

from commands import call
from engine import TINY_MODELS, read_weights, relative_difference, write_tokens

LOSS_BOUND = 2e-6  # relative; as in parameter_rules: sums of two ranks are rounded in another order
ONE_RANK, TWO_RANKS = ["train.micro_batch=4"], ["train.micro_batch=2", "partitioner.plugin=zero3"]


def test_two_ranks_train_save_and_resume_as_one(engine):
    tokens = os.path.join(engine.work, "tokens.bin")
    write_tokens(tokens, 4000)
    config = engine.write_config("run.json", {
        "device": "cpu", "model": {"plugin": "gpt2", "seq_len": 16, **TINY_MODELS["gpt2"]}, "data": {"path": tokens},
        "train": {"steps": 6, "global_batch": 4, "seed": 3}, "learning_rate": {"base": 1e-2}, "communicator": {"timeout_s": 60}})
    one = engine.train(config, 1, ONE_RANK)
    folder = os.path.join(engine.work, "checkpoints")
    settings = [*TWO_RANKS, "checkpoint.every=4", f"checkpoint.path={folder}"]
    two = engine.train(config, 2, settings, with_weights=True)
    assert len(two.losses) == 6 and relative_difference(two.losses, one.losses) < LOSS_BOUND
    os.unlink(os.path.join(folder, "latest"))  # as a run leaves it that was killed after step 5
    os.symlink("step-4", os.path.join(folder, "latest"))
    shutil.rmtree(os.path.join(folder, "step-6"))
    exported = os.path.join(engine.work, "resumed")
    call([*engine.train_arguments(config, 2, settings), "--resume", "--export", exported], env=engine.environment)
    assert read_weights(exported) == two.weights
