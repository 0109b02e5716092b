"""What `strata data pack --tokenizer` writes is what Hugging Face's tokenizers makes of the same documents, token for token. Runs in the
Python with tokenizers that `cmake/bootstrap.sh --for interop` makes; --full takes 50 MB of text a family instead of half a MB."""
import json
import os
import unicodedata

import pytest
from commands import call

numpy = pytest.importorskip("numpy")
tokenizers = pytest.importorskip("tokenizers")
from families import FAMILIES, PAIRS, pairs  # noqa: E402
from texts import Writer, all_characters, sections  # noqa: E402

MB = 1_000_000


@pytest.fixture(scope="module")
def full(request):
    return request.config.getoption("--full")


@pytest.fixture(scope="module")
def files(folder):
    texts = list(Writer(0).documents(MB))
    return {name: make(texts, folder / f"{name}.json") for name, make in FAMILIES.items()}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, files, strata, plugins, folder):
    return Family(files[request.param], strata, plugins, folder)


class Family:
    def __init__(self, path, strata, plugins, folder):
        self.path, self.program, self.folder = path, strata, folder
        self.reference = tokenizers.Tokenizer.from_file(str(path))
        self.reference.encode_special_tokens = False
        ends = (self.reference.token_to_id(name) for name in ("<|endoftext|>", "<|end_of_text|>"))
        self.end = next(end for end in ends if end is not None)
        self.environment = {**os.environ, "STRATA_PLUGIN_PATH": str(plugins)}

    def data(self, *words):
        return call([self.program, "data", *words], env=self.environment)

    def pack(self, *words, width=32):
        packed = self.folder / "packed.bin"
        self.data("pack", *words, "-o", packed, "--tokenizer", self.path, "--width", f"u{width}", "--force")
        return numpy.fromfile(packed, f"u{width // 8}")

    def pack_lines(self, documents, *words):
        path = self.folder / "documents.jsonl"
        with open(path, "w", encoding="utf-8") as file:
            for text in documents:
                file.write(json.dumps({"text": text}, ensure_ascii=len(text) % 2 == 0) + "\n")
        return self.pack(path, *words)

    def wanted(self, documents):
        return numpy.concatenate([numpy.array([*one.ids, self.end], "u4") for one in self.reference.encode_batch_fast(documents)])

    def check(self, found, documents):
        """Compares all tokens, and shows the first document with others."""
        wanted = self.wanted(documents)
        if numpy.array_equal(found, wanted):
            return
        at = 0
        for text in documents:
            ids = [*self.reference.encode(text).ids, self.end]
            assert found[at:at + len(ids)].tolist() == ids, text[:3000]
            at += len(ids)
        assert len(found) == len(wanted)


def batches(documents, count=2000):
    documents = iter(documents)
    while batch := [text for _, text in zip(range(count), documents)]:
        yield batch


def test_documents(family, full, seed):
    for batch in batches(Writer(seed).documents((50 if full else 0.5) * MB)):
        family.check(family.pack_lines(batch, "--threads", 2), batch)


@pytest.mark.parametrize("name", PAIRS)
def test_all_characters(strata, plugins, folder, full, name):
    family = Family(pairs(name, folder / "pairs.json"), strata, plugins, folder)
    for batch in batches(all_characters(full), 200):
        family.check(family.pack_lines(batch), batch)


def test_large_file(family, full, seed, tmp_path):
    """A file that is packed in parts, by any number of threads, is packed as a whole."""
    data = sections(6 * MB if full else 200_000, seed)
    (tmp_path / "large.txt").write_bytes(data)
    one, two, five = (family.pack(tmp_path / "large.txt", "--threads", threads) for threads in (1, 2, 5))
    assert numpy.array_equal(one, two) and numpy.array_equal(one, five)
    family.check(one, [data.decode(errors="replace")])


def test_files_and_ends(family, tmp_path):
    """Each file is a document, an empty one is none; u16; another end or none."""
    for name, text in {"a": "Hello world", "b": "", "c": "x\n"}.items():
        (tmp_path / name).write_text(text)
    wanted = [family.reference.encode(text).ids for text in ("Hello world", "x\n")]
    found = family.pack(tmp_path, width=16).tolist()
    assert found == [*wanted[0], family.end, *wanted[1], family.end]
    assert family.pack(tmp_path, "--document-end", "none").tolist() == wanted[0] + wanted[1]
    assert family.pack(tmp_path, "--document-end", 5).tolist() == [*wanted[0], 5, *wanted[1], 5]


def test_decoding(family, seed):
    """Tokens become text again as in the library: `strata data show --tokenizer`."""
    packed = family.pack_lines(list(Writer(seed).documents(200_000)))
    # The library gives an added token that NFC changes as bytes of Latin 1, which are broken UTF-8; Strata gives what was added.
    changed = [id for id, token in family.reference.get_added_tokens_decoder().items() if unicodedata.normalize("NFC", token.content) != token.content]
    packed = packed[~numpy.isin(packed, changed)]
    for part in (packed[:100], packed[1000:3000], packed):
        part.tofile(family.folder / "part.u32.bin")
        words = (family.folder / "part.u32.bin", "--seq-len", len(part) - 1, "--tokenizer", family.path, "--format", "json")
        shown = json.loads(family.data("show", *words))
        assert shown["tokens"] == part.tolist()
        assert shown["text"] == family.reference.decode(part.tolist(), skip_special_tokens=False)
