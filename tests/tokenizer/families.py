"""tokenizer.json files as the families have them, with smaller vocabularies: trained here by `tokenizers` on the tests' own text."""
import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LATER = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3, QWEN2 = LATER % r"\p{N}{1,3}", LATER % r"\p{N}"
VOCABULARY = 6000


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False)])


def trained(texts, pre_tokenizer, normalizer=None, special=()):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
                                  special_tokens=list(special))
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def add(tokenizer, *names, **settings):
    tokenizer.add_tokens([AddedToken(name, **settings) for name in names])


def saved(tokenizer, path, change=lambda data: None):
    """Writes what `change` makes of the tokenizer's JSON."""
    data = json.loads(tokenizer.to_str())
    change(data)
    path.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
    return path


def merges_as_lines(data):
    data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]


def every_merge(data):
    """As in Llama 3's file: all pairs of tokens that make a token, by the token's id, some tokens without any, ignore_merges."""
    model = data["model"]
    vocabulary, pairs = model["vocab"], []
    for token, rank in sorted(vocabulary.items(), key=lambda item: item[1]):
        if rank % 5 == 0 and len(token) > 3:
            continue  # reached by ignore_merges only
        cuts = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        known = [(vocabulary[left], vocabulary[right], [left, right]) for left, right in cuts if left in vocabulary and right in vocabulary]
        pairs += [pair for _, _, pair in sorted(known)]
    model["merges"], model["ignore_merges"] = pairs, True


def gpt2(texts, path):
    tokenizer = trained(texts, pre_tokenizers.ByteLevel(add_prefix_space=False))
    add(tokenizer, "<|endoftext|>", special=True, normalized=True)
    return saved(tokenizer, path, merges_as_lines)


def gpt2_prefix_space(texts, path):
    tokenizer = trained(texts, pre_tokenizers.ByteLevel(add_prefix_space=True))
    add(tokenizer, "<|endoftext|>", special=True)
    return saved(tokenizer, path, merges_as_lines)


def neox(texts, path):
    tokenizer = trained(texts, pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.NFC(), ["<|endoftext|>", "<|padding|>"])
    add(tokenizer, *(" " * count for count in range(24, 1, -1)), normalized=True)
    return saved(tokenizer, path)


def llama3(texts, path):
    tokenizer = trained(texts, split(LLAMA3))
    add(tokenizer, "<|begin_of_text|>", "<|end_of_text|>", *(f"<|reserved_special_token_{index}|>" for index in range(8)), "<|eot_id|>",
        special=True, normalized=False)
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                                      special_tokens=[("<|begin_of_text|>", begin)])])
    return saved(tokenizer, path, every_merge)


def qwen2(texts, path):
    tokenizer = trained(texts, split(QWEN2), normalizers.NFC())
    add(tokenizer, "<|endoftext|>", "<|im_start|>", "<|im_end|>", special=True, normalized=False)
    # Two that NFC changes, in the text too; the longest of several.
    add(tokenizer, "cafe\u0301", "<think>", "<think>>", "\u212b", normalized=True)
    return saved(tokenizer, path)


FAMILIES = {"gpt2": gpt2, "gpt2_prefix_space": gpt2_prefix_space, "neox": neox, "llama3": llama3, "qwen2": qwen2}


def characters_of_bytes():
    """How byte-level tokenizers write each byte."""
    printable = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = (code for code in range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def pairs(name, path):
    """A family's words and form, with tokens of two bytes, one of ASCII and one of another character: they show where each word ends."""
    pre_tokenizer, normalizer = PAIRS[name]
    characters = characters_of_bytes()
    merges = [pair for ascii in map(characters.__getitem__, b"a1. \n") for other in characters[128:] for pair in ((ascii, other), (other, ascii))]
    tokens = characters + ["".join(pair) for pair in merges]
    tokenizer = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer, decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    add(tokenizer, "<|endoftext|>", special=True)
    return saved(tokenizer, path)


PAIRS = {"gpt2": (pre_tokenizers.ByteLevel(add_prefix_space=False), None), "llama3": (split(LLAMA3), None), "qwen2": (split(QWEN2), normalizers.NFC())}
