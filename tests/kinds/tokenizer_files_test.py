"""A tokenizer.json is read as Hugging Face's `tokenizers` reads it: every text has its ids and becomes its text again, or the file is refused
with the key. The members are the keys that the library writes, and its parts (normalizers, pre-tokenizers ...) by their classes; then drawn
variants, which tests/tokenizer/variants.py makes."""
import inspect
import json
import os
import sys
import time
import unicodedata

import pytest
from file_trials import FileTrials
from place import REPOSITORY

os.environ["RUST_BACKTRACE"] = "0"  # where the library fails
tokenizers = pytest.importorskip("tokenizers")
sys.path.insert(0, str(REPOSITORY / "tests/tokenizer"))
import variants  # noqa: E402
from texts import Writer  # noqa: E402

TEXTS = ["", " ", "the quick  brown\n\n fox\t12 345.6, <mask> x<mask>y <|endoftext|>it's IT'S we'll", "caf\u00e9 cafe\u0301 \u212b\u00c5A\u030a \u4e16\u754c \u00b2\u0661\u2167 12",
         "\n\n<s> the</s>  \n-\u0301 \U0001f468\u200d\U0001f469 \x00\x7f\ufffd", "\u3000\u00a0<mask>\u2003 x the\u00e9 a \u0930\u0941", " <|endoftext|> <|endoftext|><mask>[MASK] \u212b"]
PIECES = ["<|endoftext|>", "<mask>", " <mask> ", "x<mask>", "<s>", "\n", "\n\n", "  ", "   ", "\t\t", "the", "cafe\u0301", "caf\u00e9", "\u212b", "\u00c5", "\u4e16", "12", "345",
          "\u00b2", "\u0661", " ", "a", "\u0301", "-", "\u00e9t\u00e9", "hello", "'ll", "\U00011de0", "\U00016ff4"]


# --- the members -----------------------------------------------------------------------------------------------------------------------


def written_keys():
    """The keys of a file that the library writes, each with the keys within it."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={"a": 0, "b": 1, "ab": 2}, merges=[("a", "b")]))
    tokenizer.pre_tokenizer, tokenizer.decoder = tokenizers.pre_tokenizers.ByteLevel(), tokenizers.decoders.ByteLevel()
    tokenizer.normalizer, tokenizer.post_processor = tokenizers.normalizers.NFC(), tokenizers.processors.ByteLevel()
    tokenizer.add_tokens([tokenizers.AddedToken("<mask>")])
    data = json.loads(tokenizer.to_str())
    for key, value in data.items():
        yield key
        within = value[0] if isinstance(value, list) else value
        yield from (f"{key}.{name}" for name in within or () if isinstance(within, dict))


def parts():
    """The classes of each kind of part."""
    for key, module in (("normalizer", tokenizers.normalizers), ("pre_tokenizer", tokenizers.pre_tokenizers), ("post_processor", tokenizers.processors),
                        ("decoder", tokenizers.decoders), ("model", tokenizers.models)):
        base = {"normalizer": "Normalizer", "pre_tokenizer": "PreTokenizer", "post_processor": "PostProcessor", "decoder": "Decoder", "model": "Model"}[key]
        for name, one in inspect.getmembers(module, inspect.isclass):
            if issubclass(one, getattr(module, base)) and name != base:
                yield f"{key}.{name}"


ARGUMENTS = {"Split": ("\\s+", "isolated"), "CharDelimiterSplit": ("-",), "Replace": ("a", "b"), "Prepend": ("x",), "Precompiled": None, "Strip": (), "Sequence": ([],),
             "BertProcessing": (("</s>", 4), ("<s>", 3)), "RobertaProcessing": (("</s>", 4), ("<s>", 3)), "TemplateProcessing": ("$A", None, [])}
WRONG = [None, variants.ABSENT, -1, "x", True, [], {}, {"type": "x"}, 10**30]


def instance(part):
    """A part of the library in its own words; None where it cannot be made without more."""
    key, name = part.split(".")
    module = {"normalizer": "normalizers", "pre_tokenizer": "pre_tokenizers", "post_processor": "processors", "decoder": "decoders", "model": "models"}[key]
    arguments = ARGUMENTS.get(name, ())
    if arguments is None:
        return None
    made = getattr(getattr(tokenizers, module), name)(*(arguments if (key, name) != ("decoder", "Strip") else ()))
    if key == "model":
        return json.loads(tokenizers.Tokenizer(made).to_str())["model"]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    setattr(tokenizer, key, made)
    return json.loads(tokenizer.to_str())[key]


# --- the comparison --------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trials():
    trials = FileTrials()
    yield trials
    trials.close()


@pytest.fixture(scope="module")
def draws(seed):
    writer = Writer(0)
    return variants.Draws([writer.prose(300) for _ in range(20)], seed)


class Comparison:
    def __init__(self, trials, folder):
        self.trials, self.path = trials, folder / "tokenizer.json"
        self.equal = self.refused = 0

    def reference(self, written, texts):
        """What the library makes of the texts, or None where it takes no such file."""
        try:
            tokenizer = tokenizers.Tokenizer.from_str(written)
            tokenizer.no_truncation()  # as transformers does
            tokenizer.no_padding()
            ids = [tokenizer.encode(text).ids for text in texts]
            return ids, [tokenizer.decode(one, skip_special_tokens=False) for one in ids]
        except BaseException as error:  # a panic of the library is no Exception
            if isinstance(error, KeyboardInterrupt):
                raise
            return None

    def check(self, data, texts, obeyed=False):
        written = json.dumps(data)
        self.path.write_text(written)
        answer = self.trials.ask(tokenizer=self.path, texts=texts)
        if "refused" in answer:
            said = answer["refused"]
            assert said.startswith(str(self.path)) and "\n" not in said and len(said) < 1000, said
            assert any(key in said for key in (*data, *variants.KEYS, "JSON", "key")), said
            chance = "by chance" in said  # of two equal tokens the library finds either
            assert not obeyed or chance or self.reference(written, texts) is None, said
            self.refused += 1
            return
        assert "results" in answer, f"{answer}\n{written[:3000]}"
        wanted = self.reference(written, texts)
        if wanted is None:
            return
        raw = any(token["normalized"] and unicodedata.normalize("NFC", token["content"]) != token["content"] for token in data.get("added_tokens", ()))
        for text, ids, decoded, found in zip(texts, *wanted, answer["results"], strict=True):
            assert found["ids"] == ids, f"{text!r} with {self.described(data)}"
            assert found["same_in_parts"], f"{text!r} with {self.described(data)}"
            # An added token that NFC changes is given by the library as bytes of Latin 1, which are broken UTF-8.
            assert raw or found["text"] == decoded, f"{text!r} with {self.described(data)}"
        self.equal += 1

    def described(self, data):
        model = {key: value for key, value in data["model"].items() if key not in ("vocab", "merges")}
        return json.dumps({**data, "model": model})


@pytest.fixture
def comparison(trials, tmp_path):
    return Comparison(trials, tmp_path)


@pytest.mark.parametrize("key", sorted(set(written_keys())))
def test_key(comparison, draws, key):
    """Absent, null, of every type, and what the library takes there."""
    for value in [*variants.OBEYED.get(key, ()), *variants.OTHERS.get(key, ()), *WRONG]:
        data = draws.plain()
        variants.put(data, key, value)
        comparison.check(data, TEXTS)


@pytest.mark.parametrize("part", sorted(parts()))
def test_part(comparison, draws, part):
    """Alone, and in a sequence as the first and as the last."""
    made = instance(part)
    if made is None:
        made = {"type": part.split(".")[1]}
    key = part.split(".")[0]
    names = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors", "decoder": "decoders"}
    files = [made]
    if key in names:
        usual = {"normalizer": {"type": "NFC"}}.get(key, variants.byte_level())
        files += [variants.sequence(*order, key=names[key]) for order in ((made,), (made, usual), (usual, made), (made, made, usual))]
    for value in files:
        data = draws.plain()
        data[key] = value
        comparison.check(data, TEXTS)


# --- shapes of files in use ------------------------------------------------------------------------------------------------------------


SHAPES = {
    # pythia, gpt-neox, OLMo 1, StableLM: 13 bytes missing, rows of spaces added
    "GPT-NeoX": lambda draws: draws.plain(1, normalizer={"type": "NFC"}, extra=[variants.added("<|endoftext|>"), *(variants.added(" " * count, normalized=True, special=False) for count in range(24, 1, -1))]),
    "trained without the full alphabet": lambda draws: draws.plain(3, post_processor=None),
    "SmolLM, StarCoder": lambda draws: draws.plain(pre_tokenizer=variants.sequence(variants.digits(True), variants.byte_level())),
    "Command R": lambda draws: draws.plain(normalizer={"type": "NFC"}, pre_tokenizer=variants.sequence(variants.digits(True), variants.byte_level())),
    "OLMo 2, GPT-4": lambda draws: draws.plain(pre_tokenizer=variants.sequence(variants.split(variants.LLAMA3, "Removed", True), variants.byte_level(regex=False))),
    "ModernBERT": lambda draws: draws.plain(1, extra=[variants.added("[MASK]", lstrip=True), variants.added("<|endoftext|>")], truncation=variants.TRUNCATION, padding=variants.PADDING,
                                            post_processor=variants.template(variants.CLS, variants.TEXT, variants.SEP, ids={"<s>": 3, "</s>": 4})),
    "RoBERTa": lambda draws: draws.plain(extra=[variants.added("<mask>", lstrip=True)], truncation=variants.TRUNCATION,
                                         post_processor={"type": "RobertaProcessing", "sep": ["</s>", 4], "cls": ["<s>", 3], "trim_offsets": True, "add_prefix_space": False}),
    "without a decoder": lambda draws: draws.plain(decoder=None), "a normalizer in a sequence": lambda draws: draws.plain(normalizer=variants.sequence({"type": "NFC"}, key="normalizers")),
    "single words": lambda draws: draws.plain(extra=[variants.added("the", single_word=True, special=False), variants.added("<mask>", single_word=True, rstrip=True)]),
    "an unknown token": lambda draws: draws.plain(3, **{"model.unk_token": "<unk>", "model.fuse_unk": True}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_shape(comparison, draws, shape):
    writer = Writer(2)
    comparison.check(SHAPES[shape](draws), [*TEXTS, *(writer.prose(40) for _ in range(10))], obeyed=True)
    assert comparison.equal == 1


@pytest.mark.parametrize("files, said", [
    ({"added_tokens.json": {"<|new|>": 900}}, "added_tokens.json: adds the token"),
    ({"tokenizer_config.json": {"added_tokens_decoder": {"900": {"content": "<|new|>"}}}}, "tokenizer_config.json: adds the token"),
    ({"tokenizer_config.json": {"added_tokens_decoder": {"0": {"content": "<|endoftext|>"}}}, "added_tokens.json": {"<|new|>": 900}}, ""),
    ({"added_tokens.json": {"<|endoftext|>": 0}, "tokenizer_config.json": {"model_max_length": 1e30}}, "")], ids=["older file", "decoder", "both", "equal"])
def test_tokens_of_other_files_of_a_folder(trials, draws, tmp_path, files, said):
    for name, content in {"tokenizer.json": draws.plain(), **files}.items():
        (tmp_path / name).write_text(json.dumps(content))
    if said:
        assert said in trials.refused(tokenizer=tmp_path, texts=["a"])
    else:
        assert "results" in trials.ask(tokenizer=tmp_path, texts=["a"])
    assert "results" in trials.ask(tokenizer=tmp_path / "tokenizer.json", texts=["a"])


# --- drawn -----------------------------------------------------------------------------------------------------------------------------


def drawn_text(writer):
    draw = writer.random
    if draw.random() < 0.5:
        return writer.prose(draw.randint(1, 40))
    return "".join(draw.choice(PIECES) if draw.random() < 0.8 else draw.choice(writer.words) for _ in range(draw.randint(0, 40)))


def check_drawn(comparison, draws, seed, files):
    writer = Writer(seed)
    for index in range(files):
        obeyed = index % 2 == 0
        comparison.check(draws.file() if obeyed else draws.other_file(), [drawn_text(writer) for _ in range(5)], obeyed)
    assert comparison.equal > files // 2 and comparison.refused > files // 40


def test_drawn_files(comparison, draws, seed):
    check_drawn(comparison, draws, seed, 100)


@pytest.mark.full
def test_many_drawn_files(comparison, draws, seed):
    check_drawn(comparison, draws, seed + 1, 6000)


# --- bounds ----------------------------------------------------------------------------------------------------------------------------


def hostile(folder):
    """Files that hang, end or fill a reader without bounds."""
    deep = "[" * 200_000 + "]" * 200_000
    texts = {"deep": deep, "deep type": '{"version": "1.0", "model": {"type": %s}}' % deep, "deep normalizer": '{"model": {}, "normalizer": %s}' % ('{"type":"Sequence","normalizers":[' * 3000),
             "cut": '{"model": {"vocab": {"a', "empty": "", "not UTF-8": '{"model": "\udcff"}', "text": "hello", "NaN": '{"model": NaN}', "two values": "{} {}"}
    for name, text in texts.items():
        (folder / name).write_bytes(text.encode(errors="surrogateescape"))
        yield name
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    with open(folder / "huge", "wb") as file:
        file.truncate(1 << 33)
    yield from ("pipe", "folder", "huge", "missing", "/dev/zero")


def test_hostile_files(trials, tmp_path):
    for name in hostile(tmp_path):
        begin = time.monotonic()
        said = trials.refused(tokenizer=tmp_path / name, texts=["text"])
        assert name in said and time.monotonic() - begin < 20, said


def test_large_ids_and_many_tokens(trials, draws, tmp_path):
    """Time and memory go with the file, not with the numbers in it."""
    data = draws.plain(extra=[])
    data["model"]["vocab"]["far"] = 2**31 - 2
    data["added_tokens"] = []
    (tmp_path / "t.json").write_text(json.dumps(data))
    begin = time.monotonic()
    assert trials.ask(tokenizer=tmp_path / "t.json", texts=["far"])["results"][0]["text"] == "far"
    data = draws.plain(extra=[variants.added("<|%05d|>" % index, rstrip=True) for index in range(20_000)] + [variants.added("\n", rstrip=True, lstrip=True)])
    (tmp_path / "t.json").write_text(json.dumps(data))
    answer = trials.ask(tokenizer=tmp_path / "t.json", texts=["\n" * 300_000, "<|00001" * 20_000, "<|00001|>" * 20_000])
    assert len(answer["results"][0]["ids"]) == 1
    assert time.monotonic() - begin < 20
