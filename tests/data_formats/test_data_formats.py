"""Token files that NumPy wrote, read back by `strata data show`, `info` and `pack` token for token, and the order megatron
beside the same order told again in NumPy. One line a check that fails, then their number. Exit status 1 if any failed."""
import argparse
import itertools
import json
import pathlib
import subprocess
import tempfile

import numpy

import megatron_order
import token_files


CONFIG = str(pathlib.Path(__file__).resolve().parents[2] / "configs" / "quickstart.yaml")
TINY = ("model.preset=pythia-14m", "model.vocabulary=512", "model.seq_len=16", "train.steps=3",
        "train.micro_batch=auto", "train.global_batch=2")


class Failed(Exception):
    pass


class Strata:
    def __init__(self, program):
        self.program = program

    def call(self, *words):
        return subprocess.run([self.program, "data", *map(str, words)], capture_output=True, text=True, timeout=120)

    def out(self, *words):
        done = self.call(*words)
        if done.returncode != 0:
            raise Failed(f"exit status {done.returncode} of data {' '.join(map(str, words))}: {done.stderr}")
        return done.stdout

    def show(self, path, seq_len, *words):
        lines = self.out("show", path, "--seq-len", seq_len, "--format", "json", *words).splitlines()
        return [json.loads(line) for line in lines]

    def tokens(self, path, count, *words):
        """All `count` tokens of a file."""
        return self.show(path, count - 1, *words)[0]["tokens"]

    def info(self, path, *words):
        return json.loads(self.out("info", path, "--seq-len", 1, "--format", "json", *words))


    def train(self, tokens, *settings, words=()):
        command = [self.program, "train", CONFIG, "--quiet", *words]
        for setting in (f"data.path={tokens}", *TINY, *settings):
            command += ["--set", setting]
        return command, subprocess.run(command, capture_output=True, text=True, timeout=120)

    def losses(self, work, tokens, *settings, ranks=1):
        summary = work / "summary"
        command, done = self.train(tokens, *settings, words=("--nproc", str(ranks), "--summary", str(summary)))
        if done.returncode != 0:
            raise Failed(f"exit status {done.returncode} of {' '.join(command)}: {done.stderr}")
        return json.loads(summary.read_text())["losses"]


class Checks:
    def __init__(self):
        self.passed = self.failed = 0

    def equal(self, name, found, wanted):
        if found == wanted:
            self.passed += 1
            return
        self.failed += 1
        print(f"FAILED {name}: {str(found)[:300]}, wanted {str(wanted)[:300]}")

    def refused(self, name, strata, words, parts):
        done = strata.call(*words)
        one_line = done.stderr.count("\n") == 1 and all(part in done.stderr for part in parts)
        self.equal(f"{name} ({done.stderr!r} holds {parts})", (done.returncode, one_line), (2, True))


def ids(random, count, dtype):
    largest = min(numpy.iinfo(dtype).max, 2**40)
    tokens = random.integers(0, largest, count, endpoint=True)
    tokens[:2] = 0, largest
    return tokens


def check_flat_files(checks, strata, work, random):
    for dtype in (numpy.uint16, numpy.uint32):
        name, bits = numpy.dtype(dtype).name, numpy.dtype(dtype).itemsize * 8
        for count in (2, 3, 1000, 524289):  # the last: more than one block of a megabyte
            tokens = ids(random, count, dtype)
            path = work / f"nanogpt-{name}-{count}.bin"
            token_files.write_nanogpt(path, tokens, dtype)
            checks.equal(path.name, strata.tokens(path, count, "--set", f"token_type=u{bits}"), tokens.tolist())
            path = work / f"llmc-{name}-{count}.bin"
            token_files.write_llmc(path, tokens, dtype)
            checks.equal(path.name, strata.tokens(path, count), tokens.tolist())
            info = strata.info(path)
            found = [info[key] for key in ("plugin", "tokens", "token_type", "smallest_id", "largest_id", "distinct_ids")]
            distinct = numpy.unique(tokens)
            checks.equal(f"info of {path.name}", found,
                         ["data/llm_c", count, f"u{bits}", distinct[0], distinct[-1], len(distinct)])


def check_shards(checks, strata, work, random):
    tokens = ids(random, 1000, numpy.uint16)
    for shard, begin, end in (("000010", 700, 1000), ("000001", 0, 1), ("000002", 1, 700)):  # written in another order
        token_files.write_llmc(work / f"fineweb_train_{shard}.bin", tokens[begin:end], numpy.uint16)
    checks.equal("shards of llm.c", strata.tokens(work / "fineweb_train_*.bin", 1000), tokens.tolist())
    token_files.write_llmc(work / "fineweb_train_000003.bin", tokens, numpy.uint32)
    words = ("show", work / "fineweb_train_*.bin", "--seq-len", 9)
    checks.refused("shards of two types", strata, words, ["fineweb_train_000003.bin", "u32"])


def split(random, tokens, documents):
    """Cuts tokens into documents of sequences of uneven lengths, some of them empty."""
    cuts = numpy.sort(random.integers(0, len(tokens), 3 * documents - 1, endpoint=True))
    sequences = numpy.split(tokens, cuts)
    ends = numpy.sort(random.integers(0, len(sequences), documents - 1, endpoint=True))
    return [list(part) for part in numpy.split(numpy.array(sequences, object), ends)]


def check_megatron_files(checks, strata, work, random):
    for dtype in token_files.MEGATRON:
        tokens = ids(random, 5000, dtype)
        documents = split(random, tokens, 40)
        prefix = work / f"megatron-{numpy.dtype(dtype).name}"
        token_files.write_megatron(prefix, documents, dtype, modes=dtype == numpy.int32)
        for path in (prefix, f"{prefix}.bin", f"{prefix}.idx"):
            checks.equal(str(path), strata.tokens(path, 5000), tokens.tolist())
        info = strata.info(prefix)
        checks.equal(f"info of {prefix.name}", [info[key] for key in ("plugin", "tokens", "sequences", "documents")],
                     ["data/megatron", 5000, 120, 40])


def check_megatron_order(checks, strata, work, random):
    """Every token another id, so that equal tokens mean equal document, sample and shuffle indices."""
    # tokens, documents, seq_len, samples as parts of an epoch
    cases = [(997, 17, 8, (None, 0.5, 1, 1.1, 1.7, 1.9, 2.0, 3.3, 7.9)), (64, 1, 8, (None, 1.2, 2.9)),
             (5, 2, 1, (None, 2.3, 4)), (40, 9, 64, (3, 40)), (20000, 300, 128, (None, 2.5)), (1000, 1000, 1, (None, 1.5))]
    for count, documents, seq_len, parts in cases:
        tokens = numpy.arange(count)
        documents = split(random, tokens, documents)
        sequences = [sequence for document in documents for sequence in document]
        prefix = work / f"order-{count}"
        token_files.write_megatron(prefix, documents, numpy.int32)
        for part, seed in zip(parts, itertools.cycle((1234, 2**32 - 1, 0))):
            wanted = None if part is None else max(1, int(part * count / seq_len))
            reference = list(megatron_order.samples_in_order(sequences, seq_len, wanted, seed))
            words = (prefix, seq_len, "--order", "own", "--seed", seed, "--samples", wanted or 0)
            found = [(one["sample"], one["tokens"]) for one in strata.show(*words, "--count", len(reference))]
            checks.equal(f"order megatron of {prefix.name}, seq_len {seq_len}, {wanted} samples, seed {seed}",
                         found, reference)
    words = ("show", prefix, "--seq-len", seq_len, "--order", "own", "--sample", 999)
    checks.refused("a sample behind the last", strata, words, ["holds 999 samples"])


def check_jsonl(checks, strata, work, _):
    texts = ["plain", "", "two\nlines\t\"quoted\" \\", "Grüße, 世界, \U0001f600", "nul \0 byte", "x" * 3_000_000]
    raw = [text.encode() for text in texts]
    for key, options, end in (("text", (), b"\0"), ("body", ("--jsonl-key", "body", "--document-end", "none"), b""),
                              ("text", ("--document-end", 10), b"\n")):
        path, packed = work / "texts.jsonl", work / "packed.bin"
        token_files.write_jsonl(path, texts, key)
        strata.out("pack", path, "-o", packed, "--force", *options)
        wanted = numpy.frombuffer(b"".join(text + end for text in raw), numpy.uint8)
        checks.equal(f"JSON lines, {key} {options}", numpy.fromfile(packed, numpy.uint16).tolist(), wanted.tolist())
    bad = work / "bad.jsonl"
    for line, part in (('{"text": "cut', "is no JSON"), ('{"body": "x"}', "has no key 'text'"), ('{"text": 5}', "number"),
                       ('"text"', "object"), ('{"text": "\udcff"}', "is no JSON")):
        bad.write_bytes(b'{"text": "good"}\n\n' + line.encode(errors="surrogateescape") + b'\n{"text": "good"}\n')
        words = ("pack", bad, "-o", work / "none.bin")
        checks.refused(f"a line {line!a}", strata, words, ["bad.jsonl:3:", part])
    checks.equal("nothing is left of what was refused", (work / "none.bin").exists(), False)


def check_training(checks, strata, work, random):
    """The same tokens in every format make the same losses."""
    tokens = random.integers(0, 512, 400)
    token_files.write_nanogpt(work / "train.bin", tokens, numpy.uint16)
    token_files.write_llmc(work / "train-llmc.bin", tokens, numpy.uint16)
    token_files.write_megatron(work / "train-megatron", split(random, tokens, 9), numpy.int32)
    wanted = strata.losses(work, work / "train.bin")
    checks.equal("losses are there", len(wanted), 3)
    checks.equal("training on llm.c", strata.losses(work, work / "train-llmc.bin", "data.plugin=llm_c"), wanted)
    megatron = work / "train-megatron", "data.plugin=megatron"
    checks.equal("training on megatron", strata.losses(work, *megatron), wanted)
    order = "data.order=own"
    losses = strata.losses(work, *megatron, order)
    checks.equal("training in the order megatron sees other samples", losses != wanted, True)
    both = strata.losses(work, *megatron, order, ranks=2)
    checks.equal("training in the order megatron, 2 ranks", numpy.allclose(losses, both, rtol=1e-5, atol=0), True)


def check_resume(checks, strata, work, random):
    """A resumed run keeps its data plugin, its options and its order."""
    token_files.write_megatron(work / "resumed", split(random, random.integers(0, 512, 400), 9), numpy.uint16)
    checkpoints = f"checkpoint.path={work / 'checkpoints'}"
    strata.losses(work, work / "resumed", "data.plugin=megatron", "data.order=own", checkpoints)
    for settings, part in ((("data.plugin=megatron", "data.order=shuffled"), "data.order = own"),
                           (("data.plugin=nanogpt", "data.path=" + str(work / "resumed.bin")), "data.plugin = megatron"),
                           (("data.plugin=megatron", "data.order=own", "train.steps=4"), "train.steps = 3")):
        _, done = strata.train(work / "resumed", *settings, checkpoints, words=("--resume", "latest"))
        checks.equal(f"resumed with {settings} ({done.stderr!r} holds {part})", (done.returncode, part in done.stderr), (2, True))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strata", required=True, help="the program")
    options = parser.parse_args()
    checks, strata, random = Checks(), Strata(options.strata), numpy.random.default_rng(4)
    with tempfile.TemporaryDirectory(prefix="strata-data-") as work:
        work = pathlib.Path(work)
        for check in (check_flat_files, check_shards, check_megatron_files, check_megatron_order, check_jsonl, check_training, check_resume):
            try:
                check(checks, strata, work, random)
            except Failed as error:
                checks.failed += 1
                print(f"FAILED {check.__name__}: {error}")
    print(f"{checks.passed} passed, {checks.failed} failed")
    raise SystemExit(1 if checks.failed else 0)


main()
