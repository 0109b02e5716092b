"""`strata sample`: a person sees that a model learned, on any layout.

A model learns two sentences by heart, one of them with characters of several bytes; a second one, lines that end. Small as they are, both say
what they learned.
"""
import json
import os
import pathlib
import subprocess

import pytest
from commands import call, check_refused
from engine import TINY_MODELS, set_arguments

LEARNED = "the quick brown fox jumps over the lazy dog; \u00e9t\u00e9 \u20ac5 \U0001F600! "
LINES = ["one line ends", "two lines end"]
SEQUENCE = 64
SIZES = {**TINY_MODELS["gpt_neox"], "hidden_size": 64, "intermediate_size": 128}
# name -> ranks, settings
LAYOUTS = {
    "1 rank": (1, []),
    "2 ranks zero3": (2, ["partitioner.plugin=zero3"]),
    "2 stages": (2, ["parallel.pipeline=2", "scheduler.plugin=1f1b"]),
    "tensor 2 x pipeline 2, sequence": (4, ["parallel.tensor=2", "parallel.sequence=true", "parallel.pipeline=2", "scheduler.plugin=zero_bubble_v"]),
    "3 ranks zero3, offloaded": (3, ["partitioner.plugin=zero3", "offload.parameters.plugin=cpu"]),
}


class Sampling:
    def __init__(self, engine):
        self.engine = engine
        self.config = engine.write_config("sample.json", {
            "device": "cpu", "model": {"plugin": "gpt_neox", "seq_len": SEQUENCE, **SIZES},
            "train": {"steps": 120, "micro_batch": 8, "accumulation": 2}, "learning_rate": {"base": 1e-2, "warmup": 10},
            "communicator": {"timeout_s": 60}})
        self.learned = self.train("learned", "text.txt", LEARNED * 200)
        self.lines = self.train("lines", "lines.jsonl", "".join(json.dumps({"text": line}) + "\n" for line in LINES * 200))

    def train(self, name, file, text):
        """The folder of checkpoints."""
        work = pathlib.Path(self.engine.work)
        (work / file).write_text(text)
        tokens, checkpoints = work / f"{name}.bin", work / name
        call([self.engine.strata, "data", "pack", work / file, "-o", tokens])
        call([self.engine.strata, "train", self.config, "--quiet", "--export", work / f"{name} export",
              *set_arguments([f"data.path={tokens}", f"checkpoint.path={checkpoints}"])], env=self.engine.environment)
        return checkpoints

    def words(self, *words, ranks=1, settings=(), weights=None):
        chosen = ["--checkpoint", self.learned] if weights is None else weights
        return ["sample", self.config, *chosen, *words, *(["--nproc", ranks, "--oversubscribe"] if ranks > 1 else []), *set_arguments(settings)]

    def sample(self, *words, **options):
        return self.engine.call(*self.words(*words, "--format", "json", **options))


@pytest.fixture(scope="module")
def sampling(engine):
    return Sampling(engine)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_text_continues_as_learned(sampling, layout):
    ranks, settings = LAYOUTS[layout]
    prompt, text = LEARNED[:10], (2 * LEARNED)[10:100]
    made = sampling.sample("--prompt", prompt, "--tokens", len(text.encode()), "--temperature", 0, ranks=ranks, settings=settings)
    assert made == {"prompt": prompt, "text": text, "prompt_tokens": list(prompt.encode()), "tokens": list(text.encode()), "ended_by": "tokens"}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_seed_gives_the_same_text(sampling, layout):
    """So hot that nothing is certain; the model's window moves over the text."""
    ranks, settings = LAYOUTS[layout]
    words = ["--prompt", "fox", "--tokens", 80, "--temperature", 3, "--top-p", 0.9]
    if not hasattr(sampling, "hot"):
        sampling.hot = sampling.sample(*words)["tokens"]
    assert sampling.sample(*words, ranks=ranks, settings=settings)["tokens"] == sampling.hot
    if ranks == 1:
        assert len(set(sampling.hot)) > 15 and bytes(sampling.hot) not in (3 * LEARNED).encode()
        assert sampling.sample(*words, "--seed", 2)["tokens"] != sampling.hot
        assert (3 * LEARNED)[LEARNED.index(" jumps"):].encode().startswith(bytes(sampling.sample(*words, "--top-k", 1)["tokens"]))


def test_an_export_writes_the_checkpoints_text(sampling):
    words = ["--prompt", "lazy", "--tokens", 30]
    assert sampling.sample(*words) == sampling.sample(*words, weights=["--init", pathlib.Path(sampling.engine.work) / "learned export"])


def test_a_document_ends(sampling):
    def made(prompt, *words, weights=("--checkpoint", sampling.lines), **options):
        return sampling.sample("--prompt", prompt, "--tokens", 40, "--temperature", 0, *words, weights=weights, **options)
    for line in LINES:
        ended = made(line[:4])
        assert (ended["text"], ended["ended_by"]) == (line[4:], "document_end")
    going_on = made("one ", "--document-end", "none")
    assert going_on["ended_by"] == "tokens" and going_on["tokens"][:10] == [*b"line ends", 0] and len(going_on["tokens"]) == 40
    assert made("one ", "--document-end", ord("s"))["text"] == "line end"
    data = ["data.path=none", "data.documents=separate", f"data.document_end={ord('d')}"]
    assert made("one ", settings=data)["text"] == "line en"


def test_text_comes_in_whole_characters(sampling):
    words = [sampling.engine.strata, *map(str, sampling.words("--prompt", "the lazy", "--tokens", "60", "--temperature", "0"))]
    process = subprocess.Popen(words, env=sampling.engine.environment, stdout=subprocess.PIPE)
    pieces = list(iter(lambda: os.read(process.stdout.fileno(), 4096), b""))
    assert process.wait() == 0
    text = "".join(piece.decode() for piece in pieces)  # none ends within a character
    assert len(pieces) > 10, "all came at once"
    assert text.endswith("\n") and (2 * LEARNED)[LEARNED.index("the lazy"):].startswith(text[:-1]) and "\U0001F600" in text


def test_numbers_in_and_out(sampling):
    prompt = ",".join(map(str, b"the quick"))
    words = ["--prompt-tokens", prompt, "--tokens", 6, "--temperature", 0]
    assert sampling.sample(*words) == {"prompt_tokens": list(b"the quick"), "tokens": list(b" brown"), "ended_by": "tokens"}
    text = call([sampling.engine.strata, *sampling.words(*words)], env=sampling.engine.environment)
    assert text == " ".join(map(str, b"the quick brown")) + "\n"


def small_tokenizer(path, more=0):
    """Of bytes, and of `more` runs of the letter h; <|endoftext|> is the last token. Bytes that do not print are written as characters from 256 on."""
    printed = {*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)}
    others = [byte for byte in range(256) if byte not in printed]
    vocabulary = {chr(byte if byte in printed else 256 + others.index(byte)): byte for byte in range(256)}
    vocabulary |= {"h" * (number + 2): 256 + number for number in range(more)}
    path.write_text(json.dumps({
        "version": "1.0", "added_tokens": [{"id": 256 + more, "content": "<|endoftext|>", "special": True, "normalized": False}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}, "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [["h" * (number + 1), "h"] for number in range(more)]}}))
    return path


def test_a_tokenizer_reads_and_writes(sampling, tmp_path):
    made = sampling.sample("--prompt", "the quick", "--tokens", 6, "--temperature", 0, "--tokenizer", small_tokenizer(tmp_path / "tokenizer.json"))
    assert (made["text"], made["prompt_tokens"]) == (" brown", list(b"the quick"))


REFUSED = {
    "no weights": (["--prompt", "a"], [], ["no weights to sample from", "--checkpoint PATH or --init FOLDER"]),
    "no prompt": ([], None, ["--prompt TEXT"]),
    "an empty prompt": (["--prompt", ""], None, ["the prompt is empty"]),
    "empty numbers": (["--prompt-tokens", " "], None, ["the prompt is empty"]),
    "a long prompt": (["--prompt", "a" * 65], None, ["the prompt has 65 tokens, and model.seq_len is 64", "model.seq_len=65"]),
    "longer than the model takes": (["--prompt", "a", "--set", "model.seq_len=5000"], None, ["model.seq_len is 5000", "at most 2048"]),
    "an unknown token": (["--prompt-tokens", "5,257"], None, ["token 1 of the prompt, counted from 0, is 257", "0 to 256"]),
    "no numbers": (["--prompt-tokens", "5,x"], None, ["'5,x'", "separated by commas"]),
    "no checkpoint": (["--prompt", "a"], ["--checkpoint", "nowhere"], ["nowhere"]),
    "no end": (["--prompt", "a", "--document-end", "soon"], None, ["'soon'", "none, auto or a token id"]),
}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", REFUSED)
def test_refused(sampling, name, ranks):
    words, weights, said = REFUSED[name]
    check_refused(sampling.engine.run(*sampling.words(*words, "--tokens", 8192, ranks=ranks, weights=weights)), *said)


def test_a_tokenizer_of_another_model(sampling, tmp_path):
    large = small_tokenizer(tmp_path / "large.json", more=3)
    check_refused(sampling.engine.run(*sampling.words("--prompt", "hhh", "--tokenizer", large)), "is 257", str(large))


def test_a_model_of_other_tokens_than_bytes(sampling, tmp_path):
    """Weights of chance hold tokens that are no bytes for more likely than not."""
    sizes = [f"data.path={pathlib.Path(sampling.engine.work) / 'learned.bin'}", "model.vocabulary=2000", "train.steps=1", "learning_rate.base=0"]
    export = tmp_path / "export"
    call([sampling.engine.strata, "train", sampling.config, "--quiet", "--export", export, *set_arguments(sizes)], env=sampling.engine.environment)
    done = sampling.engine.run(*sampling.words("--prompt", "a", weights=["--init", export], settings=sizes[1:2]))
    assert done.returncode == 2 and not done.stdout and "256 or above with probability 0.8" in done.stderr and "give the --tokenizer" in done.stderr


@pytest.mark.parametrize("words", [["--tokens", "0"], ["--top-p", "1.5"], ["--temperature", "-1"], ["--prompt-tokens", "1"], ["--format", "csv"]], ids=" ".join)
def test_the_command_line_is_checked(sampling, words):
    done = sampling.engine.run(*sampling.words("--prompt", "a", *words))
    assert done.returncode == 2 and words[0] in done.stderr
