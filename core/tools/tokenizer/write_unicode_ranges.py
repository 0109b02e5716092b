"""Writes unicode_ranges.cpp. Runs in the Python with `tokenizers` that `cmake/bootstrap.sh --for interop` makes, and asks it about
every character, so that the tables are those of its Unicode versions:

  ~/.cache/strata/interop/bin/python core/tools/tokenizer/write_unicode_ranges.py
"""
import pathlib
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

CHARACTERS = [code for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]


def of_class(pattern):
    """The characters that a class of a regular expression holds."""
    others = pre_tokenizers.Split(Regex(pattern + "+"), "removed").pre_tokenize_str("".join(map(chr, CHARACTERS)))
    others = set("".join(part for part, _ in others))
    return [code for code in CHARACTERS if chr(code) not in others]


def digits():
    """The characters that the pre-tokenizer Digits takes for digits."""
    parts = pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str("".join("aa" + chr(code) for code in CHARACTERS))
    return [ord(part) for part, _ in parts if len(part) == 1]


def words():
    """The characters beside which an added token that is a single word is none."""
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    tokenizer.add_tokens([AddedToken("<t>", single_word=True, normalized=False)])
    found = []
    for begin in range(0, len(CHARACTERS), 128):  # the library looks at all that stands before
        codes = CHARACTERS[begin:begin + 128]
        encoding = tokenizer.encode("".join(chr(code) + "<t> " for code in codes))
        alone = {first for token, (first, _) in zip(encoding.tokens, encoding.offsets) if token == "<t>"}
        found += [code for index, code in enumerate(codes) if 5 * index + 1 not in alone]
    return found


def normalization_changes():
    """The characters that NFC replaces, moves, or merges with what stands before them."""
    nfc, nfd = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
    found = {code for code in CHARACTERS if nfc(chr(code)) != chr(code)}
    for code in CHARACTERS:
        parts = nfd(chr(code))
        if len(parts) > 1:
            found.add(ord(parts[-1]))
        # A mark of a class below 240 comes to stand in front of U+0345, one of a class above 1 behind U+0334.
        if unicodedata.combining(chr(code)) or unicodedata.category(chr(code)).startswith("M"):
            for marks in ("\u0345" + chr(code), chr(code) + "\u0334"):
                if nfd("q" + marks) != "q" + marks:
                    found.add(code)
    return sorted(found | {0x0345})


def ranges(codes):
    found = []
    for code in codes:
        if found and code == found[-1][1] + 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def table(name, codes):
    found = ranges(codes)
    words = [f"{{0x{first:x}, 0x{last:x}}}," for first, last in found]
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) > 116:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return (f"constexpr CharacterRange {name}_ranges[] = {{\n" + "".join(f"    {line}\n" for line in lines) + "};\n")


def main():
    letters, numbers = of_class(r"\p{L}"), of_class(r"\p{N}")
    assert set(letters) < set(words()) and set(numbers) < set(digits())
    names = {"letter": letters, "number": numbers, "newer_number": sorted(set(digits()) - set(numbers)),
             "other_word_character": sorted(set(words()) - set(letters)), "normalization": normalization_changes()}
    text = (f"// Written by write_unicode_ranges.py beside Hugging Face tokenizers {tokenizers.__version__}; not to be edited.\n"
            '#include "tokenizer/unicode_ranges.hpp"\n\n// clang-format off\nnamespace strata::tokenizer {\nnamespace {\n\n')
    text += "\n".join(table(name, codes) for name, codes in names.items())
    text += "\n}  // namespace\n\n"
    for name in names:
        text += f"std::span<const CharacterRange> {name}s() {{\n  return {name}_ranges;\n}}\n\n"
    text = text.replace("normalizations()", "changed_by_normalization()")
    pathlib.Path(__file__).with_name("unicode_ranges.cpp").write_text(text + "}  // namespace strata::tokenizer\n")


if __name__ == "__main__":
    main()
