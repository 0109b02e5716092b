"""Text of many kinds, the same for the same seed: what is in this repository, and words drawn at random."""
import itertools
import random

from place import REPOSITORY

SCRIPTS = {"latin": (0x61, 0x7a), "accents": (0xe0, 0x17f), "greek": (0x3b1, 0x3c9), "cyrillic": (0x410, 0x44f), "hebrew": (0x5d0, 0x5ea),
           "arabic": (0x621, 0x64a), "devanagari": (0x905, 0x94d), "thai": (0xe01, 0xe3a), "hiragana": (0x3041, 0x3096),
           "han": (0x4e00, 0x6fff), "hangul": (0xac00, 0xc0ff), "jamo": (0x1100, 0x11ff), "vietnamese": (0x1ea0, 0x1ef9),
           "mathematical": (0x1d400, 0x1d4ff), "cuneiform": (0x12000, 0x120ff), "compatibility": (0xf900, 0xfa6d)}
MARKS = [chr(code) for code in (*range(0x300, 0x370), 0x591, 0x5b0, 0x64b, 0x653, 0x93c, 0x94d, 0x3099, 0x1dc0, 0x20d0, 0x1d165,
                                0x8ca, 0x1df7, 0xa82c, 0x11a99, 0x1e130)]  # the last five: newer than Unicode 10
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'Ve", "'M", "'lL", "'D", "'\u017f", "\u2019s", "'x", "''s"]
SPACES = [" ", "  ", "   ", "\t", "\t\t", "\n", "\n\n", "\r\n", " \n", "\n ", "\n\t", "\u00a0", "\u3000", "\u2003", "\u0085", "\u2028",
          "\x0b", "\x1c", "\u180e", "\u200b", "\ufeff", " " * 25, "\r", " \r\n  \n \t"]
SIGNS = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["...", "--", "://", "->", "\u3002", "\uff0c", "\u00bf", "\u2026", "\u20ac", "**", "\x00", "\x7f"]
EMOJI = ["\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\U0001f44d\U0001f3fd", "\u2764\ufe0f", "\u0031\ufe0f\u20e3"]
NUMBERS = ["0", "7", "42", "123", "1234", "1234567", "3.14", "\u0661\u0662\u0663", "\u00bd", "\u2167", "\u2460", "\U0001d7d8"]
ADDED = ["<|endoftext|>", "<|padding|>", "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>", "<|endoftext", "|>",
         "<|reserved_special_token_7|>", "cafe\u0301", "caf\u00e9", "<think>", "<think>>", "\u212b", "\u00c5", "A\u030a"]
OTHERS = [*CONTRACTIONS, *SIGNS, *EMOJI, *NUMBERS]


class Writer:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.words = [self.new_word() for _ in range(4000)]
        sources = itertools.chain(*(sorted((REPOSITORY / folder).rglob(f"*{suffix}")) for folder in ("core", "sdk", "tests", "configs")
                                    for suffix in (".cpp", ".hpp", ".py", ".md")))
        self.sources = [path.read_text(encoding="utf-8") for path in itertools.islice(sources, 0, None, 4)]

    def new_word(self):
        draw = self.random
        first, last = draw.choice(list(SCRIPTS.values()))
        word = "".join(chr(draw.randint(first, last)) for _ in range(min(40, 1 + int(draw.expovariate(0.22)))))
        if draw.random() < 0.15:
            at = draw.randint(0, len(word))
            word = word[:at] + "".join(draw.choices(MARKS, k=draw.randint(1, 3))) + word[at:]
        return word.upper() if draw.random() < 0.1 else word

    def prose(self, pieces):
        draw, parts = self.random, []
        for _ in range(pieces):
            kind = draw.random()
            # Few of the words are most of the text, as in a language.
            parts.append(self.words[min(int(draw.paretovariate(0.6)) - 1, 3999)] if kind < 0.8 else draw.choice(OTHERS) if kind < 0.97
                         else draw.choice(ADDED) if kind < 0.98 else self.new_word())
            if draw.random() < 0.8:
                parts.append(" " if draw.random() < 0.85 else draw.choice(SPACES))
        return "".join(parts)

    def document(self):
        draw = self.random
        if draw.random() < 0.02:
            return ""
        if draw.random() < 0.3:
            text = draw.choice(self.sources)
            begin = draw.randrange(len(text))
            return text[begin:begin + draw.randint(1, 20000)]
        return self.prose(1 + int(draw.expovariate(1 / 300)))

    def documents(self, size):
        """Documents of about `size` bytes in all."""
        done = 0
        while done < size:
            text = self.document()
            done += len(text.encode()) + 1
            yield text


def broken(text, seed):
    """Bytes of a text with some changed, so that they are no UTF-8."""
    draw, data = random.Random(seed), bytearray(text.encode())
    for _ in range(len(data) // 50):
        at = draw.randrange(len(data))
        if draw.random() < 0.5:
            data[at] = draw.randrange(256)
        else:
            del data[at:at + draw.randint(1, 3)]
        if not data:
            break
    return bytes(data)


def sections(size, seed):
    """Bytes of one document of four kinds of about `size` bytes: as it comes, without spaces, in one line, no UTF-8."""
    texts = ["".join(Writer(seed + kind).documents(size)) for kind in range(4)]
    texts[1] = "".join(character for character in texts[1] if not character.isspace() or character == "\n")
    texts[2] = texts[2].replace("\n", "").replace("\r", "")
    return b"".join([*(text.encode() for text in texts[:3]), broken(texts[3], seed)])


# Ideographs and syllables, a block's first and last ones left out: all are alike.
ALIKE = [range(*ends) for ends in ((0x3440, 0x4D80), (0x4E40, 0x9FC0), (0xAC40, 0xD780), (0x20040, 0x2A6C0), (0x2A740, 0x2B700), (0x2B840, 0x2CE80),
                                   (0x2CEC0, 0x2EBC0), (0x30040, 0x31300), (0x31380, 0x32380))]


def all_characters(every):
    """Characters between and beside others of all classes, and beside marks that NFC moves or merges, in documents of a thousand. Without
    `every`, those that Unicode has assigned, of which few that are alike, and a few others."""
    codes = range(0x110000) if every else [code for code in [*range(0x32400), *range(0xE0000, 0xE0200)]
                                           if code % 16 == 0 or not any(code in block for block in ALIKE)]
    codes = [code for code in codes if not 0xD800 <= code <= 0xDFFF]
    for begin in range(0, len(codes), 1000):
        yield "".join(f"a{c}a1{c}1.{c}. {c}\n{c}'{c}q\u0345{c}\u0334e{c}\u0301" for c in map(chr, codes[begin:begin + 1000]))
