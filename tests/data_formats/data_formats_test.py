"""Token files that NumPy wrote, read back by `strata data show`, `info` and `pack` token for token, and the order megatron
beside the same order told again in NumPy. Runs in the Python with NumPy that `cmake/bootstrap.sh --for interop` makes."""
import itertools
import json
import os

import pytest
from commands import call, check_refused, run

numpy = pytest.importorskip("numpy")
import megatron_order  # noqa: E402
import token_files  # noqa: E402

TINY = ("model.preset=pythia-14m", "model.vocabulary=512", "model.seq_len=16", "train.steps=3",
        "train.micro_batch=auto", "train.global_batch=2")


class Strata:
    def __init__(self, program, plugins, config):
        self.program, self.config = program, config
        self.environment = {**os.environ, "STRATA_PLUGIN_PATH": str(plugins), "OMP_NUM_THREADS": "1"}

    def data(self, *words):
        return run([self.program, "data", *words], env=self.environment)

    def out(self, *words):
        return call([self.program, "data", *words], env=self.environment)

    def show(self, path, seq_len, *words):
        lines = self.out("show", path, "--seq-len", seq_len, "--format", "json", *words).splitlines()
        return [json.loads(line) for line in lines]

    def tokens(self, path, count, *words):
        """All `count` tokens of a file."""
        return self.show(path, count - 1, *words)[0]["tokens"]

    def info(self, path, *words):
        return json.loads(self.out("info", path, "--seq-len", 1, "--format", "json", *words))

    def training(self, tokens, *settings, words=()):
        """The command line of a run."""
        command = [self.program, "train", self.config, "--quiet", *words]
        for setting in (f"data.path={tokens}", *TINY, *settings):
            command += ["--set", setting]
        return command

    def losses(self, work, tokens, *settings, ranks=1):
        summary = work / "summary"
        call(self.training(tokens, *settings, words=("--nproc", str(ranks), "--summary", str(summary))), env=self.environment)
        return json.loads(summary.read_text())["losses"]


@pytest.fixture(scope="module")
def data(strata, plugins, repository):
    return Strata(strata, plugins, repository / "configs/quickstart.yaml")


@pytest.fixture
def random():
    return numpy.random.default_rng(4)


def ids(random, count, dtype):
    largest = min(numpy.iinfo(dtype).max, 2**40)
    tokens = random.integers(0, largest, count, endpoint=True)
    tokens[:2] = 0, largest
    return tokens


@pytest.mark.parametrize("count", [2, 3, 1000, 524289])  # the last: more than one block of a megabyte
@pytest.mark.parametrize("dtype", [numpy.uint16, numpy.uint32])
def test_flat_files(data, tmp_path, random, dtype, count):
    name, bits = numpy.dtype(dtype).name, numpy.dtype(dtype).itemsize * 8
    tokens = ids(random, count, dtype)
    path = tmp_path / f"nanogpt-{name}-{count}.bin"
    token_files.write_nanogpt(path, tokens, dtype)
    assert data.tokens(path, count, "--set", f"token_type=u{bits}") == tokens.tolist()
    path = tmp_path / f"llmc-{name}-{count}.bin"
    token_files.write_llmc(path, tokens, dtype)
    assert data.tokens(path, count) == tokens.tolist()
    info = data.info(path)
    found = [info[key] for key in ("plugin", "tokens", "token_type", "smallest_id", "largest_id", "distinct_ids")]
    distinct = numpy.unique(tokens)
    assert found == ["data/llm_c", count, f"u{bits}", distinct[0], distinct[-1], len(distinct)]


def test_shards(data, tmp_path, random):
    tokens = ids(random, 1000, numpy.uint16)
    for shard, begin, end in (("000010", 700, 1000), ("000001", 0, 1), ("000002", 1, 700)):  # written in another order
        token_files.write_llmc(tmp_path / f"fineweb_train_{shard}.bin", tokens[begin:end], numpy.uint16)
    assert data.tokens(tmp_path / "fineweb_train_*.bin", 1000) == tokens.tolist()
    token_files.write_llmc(tmp_path / "fineweb_train_000003.bin", tokens, numpy.uint32)
    check_refused(data.data("show", tmp_path / "fineweb_train_*.bin", "--seq-len", 9), "fineweb_train_000003.bin", "u32")


def split(random, tokens, documents):
    """Cuts tokens into documents of sequences of uneven lengths, some of them empty."""
    cuts = numpy.sort(random.integers(0, len(tokens), 3 * documents - 1, endpoint=True))
    sequences = numpy.split(tokens, cuts)
    ends = numpy.sort(random.integers(0, len(sequences), documents - 1, endpoint=True))
    return [list(part) for part in numpy.split(numpy.array(sequences, object), ends)]


@pytest.mark.parametrize("dtype", token_files.MEGATRON)
def test_megatron_files(data, tmp_path, random, dtype):
    tokens = ids(random, 5000, dtype)
    documents = split(random, tokens, 40)
    prefix = tmp_path / f"megatron-{numpy.dtype(dtype).name}"
    token_files.write_megatron(prefix, documents, dtype, modes=dtype == numpy.int32)
    for path in (prefix, f"{prefix}.bin", f"{prefix}.idx"):
        assert data.tokens(path, 5000) == tokens.tolist()
    info = data.info(prefix)
    assert [info[key] for key in ("plugin", "tokens", "sequences", "documents")] == ["data/megatron", 5000, 120, 40]


# tokens, documents, seq_len, samples as parts of an epoch
ORDERS = [(997, 17, 8, (None, 0.5, 1, 1.1, 1.7, 1.9, 2.0, 3.3, 7.9)), (64, 1, 8, (None, 1.2, 2.9)),
          (5, 2, 1, (None, 2.3, 4)), (40, 9, 64, (3, 40)), (20000, 300, 128, (None, 2.5)), (1000, 1000, 1, (None, 1.5))]


@pytest.mark.parametrize("count, documents, seq_len, parts", ORDERS)
def test_megatron_order(data, tmp_path, random, count, documents, seq_len, parts):
    """Every token another id, so that equal tokens mean equal document, sample and shuffle indices."""
    documents = split(random, numpy.arange(count), documents)
    sequences = [sequence for document in documents for sequence in document]
    prefix = tmp_path / f"order-{count}"
    token_files.write_megatron(prefix, documents, numpy.int32)
    for part, seed in zip(parts, itertools.cycle((1234, 2**32 - 1, 0))):
        wanted = None if part is None else max(1, int(part * count / seq_len))
        reference = list(megatron_order.samples_in_order(sequences, seq_len, wanted, seed))
        words = (prefix, seq_len, "--order", "own", "--seed", seed, "--samples", wanted or 0)
        found = [(one["sample"], one["tokens"]) for one in data.show(*words, "--count", len(reference))]
        assert found == reference, f"{wanted} samples, seed {seed}"
    if (count, seq_len) == (1000, 1):
        done = data.data("show", prefix, "--seq-len", seq_len, "--order", "own", "--sample", 999)
        check_refused(done, "has 999 samples")


TEXTS = ["plain", "", "two\nlines\t\"quoted\" \\", "Grüße, 世界, \U0001f600", "nul \0 byte", "x" * 3_000_000]


@pytest.mark.parametrize("key, options, end", [("text", (), b"\0"), ("body", ("--jsonl-key", "body", "--document-end", "none"), b""),
                                               ("text", ("--document-end", 10), b"\n")])
def test_jsonl(data, tmp_path, key, options, end):
    path, packed = tmp_path / "texts.jsonl", tmp_path / "packed.bin"
    token_files.write_jsonl(path, TEXTS, key)
    data.out("pack", path, "-o", packed, "--force", *options)
    wanted = numpy.frombuffer(b"".join(text.encode() + end for text in TEXTS), numpy.uint8)
    assert numpy.array_equal(numpy.fromfile(packed, numpy.uint16), wanted)


@pytest.mark.parametrize("line, part", [('{"text": "cut', "is not valid JSON"), ('{"body": "x"}', "has no key 'text'"), ('{"text": 5}', "number"),
                                        ('"text"', "object"), ('{"text": "\udcff"}', "is not valid JSON")],
                         ids=["cut", "no key", "number", "no object", "not UTF-8"])
def test_wrong_jsonl(data, tmp_path, line, part):
    bad, packed = tmp_path / "bad.jsonl", tmp_path / "none.bin"
    bad.write_bytes(b'{"text": "good"}\n\n' + line.encode(errors="surrogateescape") + b'\n{"text": "good"}\n')
    check_refused(data.data("pack", bad, "-o", packed), "bad.jsonl:3:", part)
    assert not packed.exists()


def test_training(data, tmp_path, random):
    """The same tokens in every format make the same losses."""
    tokens = random.integers(0, 512, 400)
    token_files.write_nanogpt(tmp_path / "train.bin", tokens, numpy.uint16)
    token_files.write_llmc(tmp_path / "train-llmc.bin", tokens, numpy.uint16)
    token_files.write_megatron(tmp_path / "train-megatron", split(random, tokens, 9), numpy.int32)
    wanted = data.losses(tmp_path, tmp_path / "train.bin")
    assert len(wanted) == 3
    assert data.losses(tmp_path, tmp_path / "train-llmc.bin", "data.plugin=llm_c") == wanted
    megatron = tmp_path / "train-megatron", "data.plugin=megatron"
    assert data.losses(tmp_path, *megatron) == wanted
    order = "data.order=own"
    losses = data.losses(tmp_path, *megatron, order)
    assert losses != wanted, "the order megatron shows the same samples"
    both = data.losses(tmp_path, *megatron, order, ranks=2)
    assert numpy.allclose(losses, both, rtol=1e-5, atol=0)


OWN_ORDER = ("data.plugin=megatron", "data.order=own")


@pytest.mark.parametrize("first, second, kept", [(OWN_ORDER, ("data.plugin=megatron", "data.order=shuffled"), "data.order = own"),
                                                 (("data.plugin=megatron",), ("data.plugin=nanogpt",), "data.plugin = megatron"),
                                                 (OWN_ORDER, (*OWN_ORDER, "train.steps=4"), "train.steps = 3")],
                         ids=["order", "plugin", "steps"])
def test_resume(data, tmp_path, random, first, second, kept):
    """A resumed run keeps its data plugin, its options and its order."""
    token_files.write_megatron(tmp_path / "resumed", split(random, random.integers(0, 512, 400), 9), numpy.uint16)
    checkpoints = f"checkpoint.path={tmp_path / 'checkpoints'}"
    data.losses(tmp_path, tmp_path / "resumed", *first, checkpoints)
    tokens = tmp_path / ("resumed.bin" if "data.plugin=nanogpt" in second else "resumed")
    check_refused(run(data.training(tokens, *second, checkpoints, words=("--resume", "latest")), env=data.environment), kept)
