"""Drawn variants of tokenizer.json: every key that the library writes, absent, null or another one, alone and together; and the shapes of
files that are in use. None of them is a real file."""
import copy
import json
import random

from families import GPT2, LLAMA3, QWEN2, characters_of_bytes
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

ABSENT = object()
NEVER = [0xc0, 0xc1, *range(0xf5, 0x100)]  # bytes that no text has, and of which the files of GPT-NeoX have no tokens
ADDED = ["<|endoftext|>", "<|padding|>", "<mask>", "<s>", "</s>", "<unk>", "  ", "   ", "\n", "\t\t", " x", "x ", "the", "a", "cafe\u0301", "caf\u00e9", "\u212b",
         "\u00c5", "\u4e16", "[MASK]", "-", "\u0301"]


def byte_level(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def digits(each):
    return {"type": "Digits", "individual_digits": each}


def sequence(*parts, key="pretokenizers"):
    return {"type": "Sequence", key: list(parts)}


def added(content, **flags):
    return {"id": 0, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True, **flags}


def with_ids(tokens, vocabulary):
    """Added tokens with the ids that the library gives them."""
    size = len(vocabulary)
    for token in tokens:
        token["id"] = vocabulary.get(token["content"], size)
        size = max(size, token["id"] + 1)
    return tokens


def template(*pieces, ids):
    return {"type": "TemplateProcessing", "single": list(pieces), "pair": list(pieces),
            "special_tokens": {name: {"id": name, "ids": [id], "tokens": [name]} for name, id in ids.items()}}


TEXT, CLS, SEP = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}
TRUNCATION = {"direction": "Right", "max_length": 12, "strategy": "LongestFirst", "stride": 0}
PADDING = {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 1, "pad_type_id": 0, "pad_token": "<pad>"}
BEHAVIORS = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]

# What a key may hold. Those of the first list are obeyed, those of the second may be refused.
OBEYED = {
    "truncation": [None, TRUNCATION], "padding": [None, PADDING],
    "normalizer": [None, {"type": "NFC"}, sequence({"type": "NFC"}, key="normalizers"), sequence(key="normalizers"),
                   sequence(sequence({"type": "NFC"}, key="normalizers"), {"type": "NFC"}, key="normalizers")],
    "pre_tokenizer": [byte_level(), byte_level(prefix=True), sequence(byte_level()), sequence(sequence(byte_level(prefix=True))),
                      sequence(digits(True), byte_level()), sequence(digits(False), byte_level()), sequence(digits(True), byte_level(prefix=True)),
                      *(sequence(split(pattern), byte_level(regex=False)) for pattern in (GPT2, LLAMA3, QWEN2)),
                      sequence(split(LLAMA3, "Removed", True), byte_level(regex=False)), sequence(split(QWEN2, "MergedWithNext", True), byte_level()),
                      sequence(split(QWEN2), digits(True), byte_level(prefix=True, regex=False)),
                      sequence(digits(False), split(LLAMA3), byte_level(regex=False)), sequence(split(LLAMA3), byte_level(prefix=True))],
    "post_processor": [None, byte_level(), template(CLS, TEXT, ids={"<s>": 3}), template(CLS, TEXT, SEP, ids={"<s>": 3, "</s>": 4}), template(TEXT, ids={}),
                       sequence(byte_level(), template(TEXT, SEP, ids={"</s>": 4}), key="processors"),
                       {"type": "RobertaProcessing", "sep": ["</s>", 4], "cls": ["<s>", 3], "trim_offsets": True, "add_prefix_space": False},
                       {"type": "BertProcessing", "sep": ["</s>", 4], "cls": ["<s>", 3]}],
    "decoder": [byte_level(), None, sequence(byte_level(), key="decoders"), sequence(key="decoders")],
    "model.unk_token": [None, "a", "<unk>"], "model.fuse_unk": [False, True], "model.byte_fallback": [False, True], "model.ignore_merges": [False, True],
    "model.dropout": [None, 0.0], "model.continuing_subword_prefix": [None, ""], "model.end_of_word_suffix": [None, ""],
}
OTHERS = {
    "version": ["2.0", None, 1],
    "normalizer": [{"type": name} for name in ("NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")] + [
        {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Prepend", "prepend": "\u2581"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}, {"type": "ByteLevel"}, 5, "NFC", [],
        sequence({"type": "NFC"}, {"type": "Lowercase"}, key="normalizers")],
    "pre_tokenizer": [None, 5, byte_level(regex=False), sequence(), sequence(digits(True)), sequence(byte_level(), digits(True)), {"type": "Whitespace"},
                      {"type": "Punctuation", "behavior": "Contiguous"}, sequence({"type": "Punctuation", "behavior": "Contiguous"}, byte_level()),
                      {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}, sequence(split("\\w+"), byte_level()),
                      sequence({"type": "Split", "pattern": {"String": "e"}, "behavior": "Isolated", "invert": False}, byte_level()),
                      *(sequence(split(pattern, behavior, invert), byte_level(regex=False)) for pattern in (GPT2, QWEN2) for behavior in BEHAVIORS
                        for invert in (False, True))],
    "post_processor": [5, template(TEXT, TEXT, ids={}), sequence(template(CLS, TEXT, ids={"<s>": 3}), template(TEXT, SEP, ids={"</s>": 4}), key="processors")],
    "decoder": [{"type": "Fuse"}, {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}, {"type": "BPEDecoder", "suffix": "</w>"},
                {"type": "WordPiece", "prefix": "##", "cleanup": True}, sequence({"type": "Fuse"}, byte_level(), key="decoders"), {"type": "ByteFallback"}, 5],
    "truncation": [5, []], "padding": ["x"], "added_tokens": [None, 5],
    "model.unk_token": ["nope", 5], "model.dropout": [0.1, "x"], "model.continuing_subword_prefix": ["##"], "model.end_of_word_suffix": ["</w>"],
    "model.fuse_unk": [None, "x"], "model.byte_fallback": [None], "model.ignore_merges": [None], "model.type": ["Unigram", "WordPiece", None],
    "model.vocab": [None, {}, []], "model.merges": [None, ["a"], [["a"]], ["no such"], 5],
}
KEYS = sorted({*OBEYED, *OTHERS, "model", "version", "added_tokens"})


def put(data, key, value):
    *folders, name = key.split(".")
    for folder in folders:
        data = data.get(folder)
        data = data[0] if isinstance(data, list) and data else data
        if not isinstance(data, dict):
            return
    if value is ABSENT:
        data.pop(name, None)
    else:
        data[name] = copy.deepcopy(value)


class Draws:
    """Files drawn from these keys. `texts` train the vocabularies."""

    def __init__(self, texts, seed):
        self.random = random.Random(seed)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        characters = characters_of_bytes()
        without_never = [characters[byte] for byte in range(256) if byte not in NEVER]
        self.models = [self.trained(texts, letters) for letters in (alphabet, without_never, [], [characters[byte] for byte in b"abcdefgh <>"])]

    def trained(self, texts, alphabet):
        """The vocabulary and the merges of a tokenizer trained from these characters and those of one text."""
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False, special_tokens=["<|endoftext|>", "<unk>", "<pad>", "<s>", "</s>"])
        tokenizer.train_from_iterator(texts if len(alphabet) > 200 else texts[:1], trainer)
        model = json.loads(tokenizer.to_str())["model"]
        return {"vocab": model["vocab"], "merges": model["merges"]}

    def plain(self, number=0, extra=None, **keys):
        """A file of GPT-2's kind with one of the vocabularies; `extra` are its added tokens."""
        drawn = copy.deepcopy(self.models[number])
        data = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": with_ids(extra if extra is not None else [added("<|endoftext|>")], drawn["vocab"]),
                "normalizer": None, "pre_tokenizer": byte_level(), "post_processor": None, "decoder": byte_level(), "model": {"type": "BPE", "dropout": None, **drawn}}
        for key, value in keys.items():
            put(data, key, value)
        return data

    def added_tokens(self, vocabulary):
        draw, tokens = self.random, []
        for content in draw.sample(ADDED, draw.choice([0, 1, 1, 2, 3, 6, 12])):
            flags = {flag: draw.random() < chance for flag, chance in (("single_word", 0.25), ("lstrip", 0.3), ("rstrip", 0.3), ("normalized", 0.4), ("special", 0.6))}
            tokens.append(added(content, **flags))
        return with_ids(tokens, vocabulary)

    def file(self, model=None):
        """A file whose keys are all obeyed."""
        draw, drawn = self.random, copy.deepcopy(model or self.random.choice(self.models))
        if draw.random() < 0.4:
            drawn["merges"] = [" ".join(pair) for pair in drawn["merges"]]
        data = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": self.added_tokens(drawn["vocab"]), "normalizer": None,
                "pre_tokenizer": byte_level(), "post_processor": None, "decoder": byte_level(), "model": {"type": "BPE", **drawn}}
        for key, values in OBEYED.items():
            if draw.random() < 0.6:
                put(data, key, draw.choice(values))
        return data

    def other_file(self):
        """The same with a key or two that may be refused."""
        data, draw = self.file(), self.random
        for _ in range(draw.choice([1, 1, 2])):
            key = draw.choice(KEYS)
            put(data, key, draw.choice([*OTHERS.get(key, []), None, ABSENT]))
        return data
