"""Documents that do not share a sample: `data.documents: separate`.

- The loss over a file is that of its documents' pieces, each read as a file of its own, weighted by how many targets they have.
- Losses and norms are those of one process at every layout, whatever the number of targets that count in each micro-batch.
- Targets that documents are filled up with change nothing: longer samples of the same documents give the same training.
"""
import array
import random

import pytest
from commands import call, check_refused
from engine import TINY_MODELS, relative_difference, set_arguments

BOUND = 2e-6  # relative; 1.1e-7 was measured, and one target counted too many in a step of 12 samples changes 1 / 192 or more
SEQUENCE, END, STEPS = 16, 0, 5
SEPARATE = ["data.documents=separate", f"data.document_end={END}"]
ZERO3 = ["partitioner.plugin=zero3"]
LAYOUTS = {  # ranks, settings
    "1 rank, accumulation": (1, ["train.micro_batch=3"]),
    "1 rank, single samples": (1, ["train.micro_batch=1"]),
    "2 ranks": (2, ["train.micro_batch=6"]),
    "2 ranks zero3, accumulation": (2, [*ZERO3, "train.micro_batch=2"]),
    "3 ranks": (3, ["train.micro_batch=4"]),
    "3 ranks zero3, accumulation": (3, [*ZERO3, "train.micro_batch=1"]),
    "2 stages": (2, ["parallel.pipeline=2", "scheduler.plugin=1f1b", "train.micro_batch=2"]),
}


def documents(seed, count, longest):
    """Each a list of ids that ends with END; every length from 1, the end alone, to `longest` may come."""
    draw = random.Random(seed)
    return [[draw.choice((1, 2, 3, draw.randrange(1, 257))) for _ in range(draw.randrange(longest))] + [END] for _ in range(count)]


def pieces(document, length):
    return [document[first:first + length + 1] for first in range(0, len(document) - 1, length)]


class Documents:
    def __init__(self, engine):
        self.engine = engine
        self.files = 0
        self.config = engine.write_config("run.json", {
            "device": "cpu", "model": {"plugin": "gpt_neox", "seq_len": SEQUENCE, **TINY_MODELS["gpt_neox"]},
            "data": {"path": self.file(documents(5, 120, 3 * SEQUENCE)), "order": "shuffled"},
            "train": {"steps": STEPS, "global_batch": 12, "seed": 3, "clip": 0.5}, "learning_rate": {"base": 1e-2},
            "communicator": {"timeout_s": 60}})

    def file(self, parts):
        path = f"{self.engine.work}/{self.files}.bin"
        self.files += 1
        with open(path, "wb") as file:
            array.array("H", [token for part in parts for token in part]).tofile(file)
        return path

    def train(self, ranks, settings):
        result = self.engine.train(self.config, ranks, [*SEPARATE, *settings], with_gradients=True)
        assert result.status == 0, result.output
        return result.losses, [step["grad_norm"] for step in result.steps], result


@pytest.fixture(scope="module")
def of_documents(engine):
    return Documents(engine)


def check_alike(one, other):
    assert relative_difference(one[0], other[0]) <= BOUND
    assert relative_difference(one[1], other[1]) <= BOUND


@pytest.fixture(scope="module")
def one_process(of_documents):
    losses, norms, _ = of_documents.train(1, ["train.micro_batch=12"])
    assert max(norms) > 0.5, "no step clips"
    return losses, norms


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(of_documents, one_process, name):
    check_alike(of_documents.train(*LAYOUTS[name]), one_process)


@pytest.mark.parametrize("ranks, more", [(1, []), (2, ["train.clip=0"]), (1, ["step_policy=delayed", "train.clip=0"]),
                                         (2, ["step_policy=speculative", "parallel.pipeline=2", "scheduler.plugin=zero_bubble_v", "train.clip=0"])],
                         ids=["1 rank", "2 ranks", "delayed", "speculative"])
def test_filling_changes_nothing(of_documents, ranks, more):
    tokens = of_documents.file(documents(6, 90, SEQUENCE + 1))  # none is cut
    settings = [f"data.path={tokens}", "train.micro_batch=3", *more]
    longer, plain = (of_documents.train(ranks, [*settings, *length]) for length in (["model.seq_len=40"], []))
    check_alike(longer, plain)
    found, expected = ([norm for _, norm in result[2].steps[0]["gradients"].values()] for result in (longer, plain))
    assert relative_difference(found, expected) <= BOUND  # of each parameter's gradient, which `strata compare` compares


def test_loss_is_that_of_the_pieces(of_documents):
    """Of the initial weights: in a step over all samples, in `strata eval`, and piece by piece."""
    engine = of_documents.engine
    parts = documents(7, 12, 3 * SEQUENCE) + [[5, 6, 7]]  # the last one is cut by the file's end
    tokens = of_documents.file(parts)
    alone = [piece for document in parts for piece in pieces(document, SEQUENCE)]
    weights = f"{engine.work}/init"
    call([engine.strata, "train", of_documents.config, "--quiet", "--export", weights, *set_arguments(["train.steps=1"])], env=engine.environment)

    def evaluate(file, length, settings=(), ranks=1):
        arguments = ["--init", weights, "--data", file, "--quiet", "--format", "json", *(["--nproc", str(ranks)] if ranks > 1 else [])]
        return engine.call("eval", of_documents.config, *arguments, *set_arguments([f"model.seq_len={length}", *settings]))

    found = [evaluate(of_documents.file([piece]), len(piece) - 1) for piece in alone]
    assert [one["tokens"] for one in found] == [len(piece) - 1 for piece in alone]
    targets = sum(one["tokens"] for one in found)
    expected = sum(one["loss"] * one["tokens"] for one in found) / targets
    for ranks in (1, 2, 3):
        whole = evaluate(tokens, SEQUENCE, ["validation.documents=separate", f"validation.document_end={END}"], ranks)
        assert (whole["samples"], whole["tokens"]) == (len(alone), targets)
        assert relative_difference([whole["loss"]], [expected]) <= BOUND
    losses, _, _ = of_documents.train(1, [f"data.path={tokens}", f"model.init={weights}", "train.steps=1", f"train.global_batch={len(alone)}"])
    assert relative_difference(losses, [expected]) <= BOUND


def test_validation_is_as_the_data(of_documents):
    tokens = of_documents.file(documents(8, 20, SEQUENCE))
    _, _, result = of_documents.train(2, ["train.micro_batch=3", f"validation.path={tokens}"])
    last = result.summary["validation"]["last"]
    expected = sum(len(document) - 1 for document in documents(8, 20, SEQUENCE))
    assert last["tokens"] == expected


def test_resume_keeps_the_documents(of_documents):
    engine, folder = of_documents.engine, f"{of_documents.engine.work}/checkpoints"
    settings = set_arguments(["train.steps=2", f"checkpoint.path={folder}", "train.micro_batch=12"])
    call([engine.strata, "train", of_documents.config, "--quiet", *settings, *set_arguments(SEPARATE)], env=engine.environment)
    again = ["train", of_documents.config, "--quiet", "--resume", *settings]
    check_refused(engine.run(*again), "data.documents = separate", "packed")
    check_refused(engine.run(*again, *set_arguments([SEPARATE[0], "data.document_end=1"])), "data.document_end = 0", "1")
    call([engine.strata, *again, *set_arguments([*SEPARATE, "train.steps=3"])], env=engine.environment)


@pytest.mark.parametrize("words, settings", [
    (["data.documents: separate", "data.document_end is not given"], SEPARATE[:1]),
    (["token 256", "does not occur", "the whole file is one document"], [SEPARATE[0], "data.document_end=256", "data.path=WITHOUT"]),
    (["data.document_end is 300", "token ids are 0 to 256"], [SEPARATE[0], "data.document_end=300", "data.path=OUTSIDE"]),
    (["data.documents is separate", "data.order is own"], [*SEPARATE, "data.order=own", "data.plugin=megatron"]),
    (["each is empty"], [*SEPARATE, "data.path=EMPTY"])],
    ids=["no end", "an end that never occurs", "an end outside of the vocabulary", "own order", "empty documents"])
def test_refused(of_documents, words, settings):
    files = {"WITHOUT": [[1, 2, 3] * 9], "OUTSIDE": [[1, 2, 300] * 9], "EMPTY": [[END] * 9]}
    paths = {name: of_documents.file(parts) for name, parts in files.items()}
    known = {f"data.path={name}": f"data.path={path}" for name, path in paths.items()}
    settings = [known.get(setting, setting) for setting in settings]
    check_refused(of_documents.engine.run("train", of_documents.config, *set_arguments(settings)), *words)


def test_updates_within_the_step_are_refused(of_documents):
    settings = [*SEPARATE, "scheduler.plugin=pipedream", "parallel.pipeline=2", "train.micro_batch=3", "train.clip=0"]
    done = of_documents.engine.run("train", of_documents.config, "--nproc", "2", *set_arguments(settings))
    check_refused(done, "data.documents is separate", "scheduler/pipedream updates within the step", "data.documents: packed")
