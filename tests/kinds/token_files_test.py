"""A file is what it holds: whatever is given as tokens or as text is read as its owner reads it, or refused with what it is and what to do.
The members are the data plugins of the registry, each with every type of file below, and the commands that open data."""
import array
import bz2
import gzip
import io
import itertools
import json
import lzma
import os
import pickle
import random
import struct
import tarfile
import zipfile

import pytest
from commands import check_refused, run
from file_trials import FileTrials
from place import usable_plugins

PLUGINS = [name.removeprefix("data/") for name in usable_plugins() if name.startswith("data/")]


def ids(code, count, vocabulary, seed=1):
    """Ids as texts have them, small ones often."""
    draw = random.Random(seed)
    return array.array(code, (int(vocabulary ** draw.random()) - 1 for _ in range(count))).tobytes()


TOKENS = ids("H", 3000, 50257)


def npy(descriptor, tokens):
    header = f"{{'descr': '{descriptor}', 'fortran_order': False, 'shape': ({len(tokens) // 2},), }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + tokens


def zipped(name):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, TOKENS)
    return file.getvalue()


def tarred():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("tokens.bin"), io.BytesIO())
    return file.getvalue()


def safetensors():
    header = json.dumps({"tokens": {"dtype": "U16", "shape": [3000], "data_offsets": [0, 6000]}}).encode()
    return struct.pack("<Q", len(header)) + header + TOKENS


LINES = b'{"text": "one"}\n{"text": "two"}\n'
# Of each type a file, and what is said of it.
FILES = {
    "npy of u16": (npy("<u2", TOKENS), ".npy"), "npy of i64": (npy("<i8", ids("q", 3000, 50257)), ".npy"), "npz": (zipped("a.npy"), "ZIP"),
    "torch.save": (zipped("archive/data.pkl"), "ZIP"), "old torch.save": (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19." + bytes(100), "torch.save"),
    **{f"pickle {protocol}": (pickle.dumps(list(range(1000)), protocol), "pickle") for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)},
    "gzip": (gzip.compress(TOKENS), "gzip"), "bzip2": (bz2.compress(TOKENS), "bzip2"), "xz": (lzma.compress(TOKENS), "xz"),
    "zstd": (b"\x28\xb5\x2f\xfd" + TOKENS, "zstd"), "lz4": (b"\x04\x22\x4d\x18" + TOKENS, "lz4"), "7-Zip": (b"7z\xbc\xaf\x27\x1c" + TOKENS, "7-Zip"),
    "tar": (tarred(), "tar"), "zip": (zipped("text.txt"), "ZIP"), "parquet": (b"PAR1" + TOKENS + b"PAR1", "Parquet"), "arrow": (b"ARROW1\0\0" + TOKENS, "Arrow"),
    "arrow stream": (b"\xff\xff\xff\xff\x88\1\0\0\x10\0\0\0" + TOKENS, "Arrow"), "hdf5": (b"\x89HDF\r\n\x1a\n" + TOKENS, "HDF5"),
    "safetensors": (safetensors(), "safetensors"), "gguf": (b"GGUF" + TOKENS, "GGUF"), "sqlite": (b"SQLite format 3\0" + TOKENS, "SQLite"), "pdf": (b"%PDF-1.7\n" + TOKENS, "PDF"),
    "png": (b"\x89PNG\r\n\x1a\n" + TOKENS, "picture"), "program": (b"\x7fELF" + TOKENS, "program"), "Megatron's index": (b"MMIDIDX\0\0" + TOKENS[1:], "Megatron"),
    "UTF-16": ("the quick brown fox\n".encode("utf-16"), "text"), "jpeg": (b"\xff\xd8\xff\xe0" + TOKENS, "picture"), "gif": (b"GIF89a" + TOKENS, "picture"),
    "wave": (b"RIFF\0\0\0\0WAVEfmt " + TOKENS, "sound"), "avro": (b"Obj\1" + TOKENS, "Avro"), "feather": (b"FEA1" + TOKENS, "Feather"),
}
# As text they are what they are; as tokens they are none.
TEXTS = {"text": b"The quick brown fox jumps.\n", "text of other scripts": "Ж世界, grün und \U0001f600".encode(), "JSON": b'{\n "text": "not a line"\n}\n',
         "source code": b"#include <vector>\n\tint main() {}\n", "one object": b'{"text": "one"}\n', "JSON lines": LINES, "JSON list": b'[{"text": "one"}, {"text": "two"}]'}
NO_TOKENS = {"text in Latin-1": "été déjà vu à Noël ".encode("latin-1") * 20, "text in Shift JIS": "text と日本 words. ".encode("shift_jis") * 20}
# Token ids of another type than the name says.
TYPES = {
    "u32 of 128256": ("tokens.bin", ids("I", 3000, 128256)), "u32 of 70000": ("tokens.bin", ids("I", 3000, 70000)), "u32 of 300": ("tokens.bin", ids("I", 3000, 300)),
    "u32 behind zeros": ("tokens.bin", bytes(60000) + ids("I", 30000, 151936)), "few u32": ("tokens.bin", ids("I", 100, 128256)),
    "i64 of 128256": ("tokens.bin", ids("q", 3000, 128256)), "i64 of 300": ("tokens.bin", ids("q", 3000, 300)), "i64 named u32": ("tokens.u32.bin", ids("q", 3000, 128256)),
    "u16 named u32": ("tokens.u32.bin", TOKENS), "u16 of 60 named u32": ("tokens.u32", ids("H", 3000, 60)),
}


ids_of_text = ids("I", 3000, 50257)
TYPES |= {f"{described} {code}": (name, array.array(code, array.array("I", ids_of_text)).tobytes()) for described, name, code in (
    ("floats", "tokens.bin", "f"), ("floats", "tokens.bin", "d"), ("floats named u32", "tokens.u32.bin", "f"))}


def swapped(name, code):
    numbers = array.array(code, array.array("I", ids_of_text))
    numbers.byteswap()
    return name, numbers.tobytes()


TYPES |= {f"big-endian {code} in {name}": swapped(name, code) for name, code in itertools.product(("tokens.bin", "tokens.u32.bin"), "HIq")}
# What these look like and are not: few small ids, and many of a pad token that is a multiple of 256.
PADDED = array.array("H", (32000 if index % 3 == 0 else 300 + index * 7919 % 30000 for index in range(6000))).tobytes()


def test_padded_ids_are_tokens(trials, tmp_path):
    (tmp_path / "tokens.bin").write_bytes(PADDED)
    assert json.loads(trials.open("info", tmp_path / "tokens.bin")["out"])["tokens"] == 6000


@pytest.fixture(scope="module")
def trials():
    trials = FileTrials()
    yield trials
    trials.close()


def check_said(answer, name, *words):
    said = answer.get("refused", "")
    assert said and "\n" not in said and name in said, answer
    assert not words or any(word in said for word in words), answer


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize("type", FILES | TEXTS | NO_TOKENS)
def test_other_files_are_not_tokens(trials, tmp_path, plugin, type):
    content, word = FILES.get(type) or ({**TEXTS, **NO_TOKENS}[type], "text")
    for name in ("tokens.bin", "tokens.u32.bin", "tokens"):
        (tmp_path / name).write_bytes(content if "text" in word else content + bytes(-len(content) % 4))
        for command, path in itertools.product(("info", "show"), (tmp_path / name, tmp_path / "token*")):
            answer = trials.open(command, path, plugin)
            # The others know their own files by a header, or by a file beside them.
            check_said(answer, "tokens" if path.name == name else "token", *([word] if plugin == "nanogpt" else []))
        (tmp_path / name).unlink()


@pytest.mark.parametrize("type", TYPES)
def test_ids_of_another_type(trials, tmp_path, type):
    """Refused with the remedy, in every place of a pattern; and what is said there is obeyed."""
    name, content = TYPES[type]
    (tmp_path / name).write_bytes(content)
    for path in (tmp_path / name, tmp_path / "*"):
        check_said(trials.open("info", path), name, "token_type")
        check_said(trials.open("show", path, "nanogpt"), name, "token_type")
    for token_type in ("u16", "u32"):
        answer = trials.open("info", tmp_path / name, "nanogpt", f"token_type={token_type}")
        assert json.loads(answer["out"])["tokens"] == 8 * len(content) // int(token_type[1:]), answer


@pytest.mark.parametrize("plugin", PLUGINS)
def test_paths_that_are_not_files(trials, tmp_path, plugin):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    (tmp_path / "odd").write_bytes(TOKENS[:-1])
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    for name in ("folder", "pipe", "empty", "odd", "dangling", "missing", "missing*"):
        for command in ("info", "show"):
            check_said(trials.open(command, tmp_path / name, plugin), name)
        if plugin == "megatron":
            (tmp_path / "set.idx").unlink(missing_ok=True)
            os.symlink(tmp_path / name, tmp_path / "set.idx")
            check_said(trials.open("info", tmp_path / "set", plugin), "set.idx")
    check_said(trials.open("info", tmp_path / "missing", plugin), "missing", "strata data pack")
    check_said(trials.open("info", "/dev/zero", plugin), "/dev/zero")


@pytest.mark.parametrize("type", FILES)
def test_other_files_are_not_text(trials, tmp_path, type):
    content, word = FILES[type]
    (tmp_path / "folder").mkdir()
    for name in ("text.txt", "lines.jsonl", "text", "folder/text.txt"):
        (tmp_path / name).write_bytes(content)
    for name, key in itertools.product(("text.txt", "lines.jsonl", "text"), ("", "text")):
        check_said(trials.pack(tmp_path / name, output=tmp_path / "out.bin", jsonl_key=key), name, word, "UTF-16")
    check_said(trials.pack(tmp_path / "folder", output=tmp_path / "out.bin"), "nothing to pack")
    assert "out" in trials.pack(tmp_path / "text", output=tmp_path / "out.bin", as_is=True)
    assert (tmp_path / "out.bin").stat().st_size == 2 * len(content)


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.json", "corpus.ndjson", "corpus.txt", "corpus"])
@pytest.mark.parametrize("type", TEXTS)
def test_text_is_packed_by_its_content(trials, tmp_path, name, type):
    content = TEXTS[type]
    path = tmp_path / name
    path.write_bytes(content)
    lines, doubtful = type in ("one object", "JSON lines"), type in ("one object", "JSON lines", "JSON list")
    answer = trials.pack(path, output=tmp_path / "out.bin")
    if name == "corpus.jsonl":
        assert lines if "out" in answer else "corpus.jsonl:1" in answer["refused"], answer
    elif doubtful:
        check_said(answer, name, "--jsonl-key")
    else:
        assert (tmp_path / "out.bin").stat().st_size == 2 * len(content), answer
    answer = trials.pack(path, output=tmp_path / "out.bin", jsonl_key="text")
    assert ("out" in answer) == lines, answer
    if lines:
        assert (tmp_path / "out.bin").stat().st_size == 2 * 4 * content.count(b"\n"), answer
    trials.pack(path, output=tmp_path / "out.bin", as_is=True)
    assert (tmp_path / "out.bin").stat().st_size == 2 * len(content)


CONFIG = ("device: cpu\nmodel: {plugin: gpt_neox, hidden_size: 8, layers: 1, heads: 1, vocabulary: 70000, seq_len: 8}\ndata: {path: good.bin}\n"
          "train: {steps: 1, micro_batch: 1}\nlearning_rate: {base: 0}\n")
COMMANDS = {
    "train": ("train", "run.yaml", "--set", "data.path=FILE"), "train with validation": ("train", "run.yaml", "--set", "validation.path=FILE", "--set", "validation.every=1"),
    "eval": ("eval", "run.yaml", "--init", "weights", "--data", "FILE"), "data info": ("data", "info", "FILE", "--plugin", "nanogpt"),
    "data show": ("data", "show", "FILE", "--seq-len", "8", "--plugin", "nanogpt", "--set", "token_type=auto"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_opens_data(strata, plugins, tmp_path, command):
    """All of them open it in one place; of each one file, of a type that is found by its numbers."""
    (tmp_path / "run.yaml").write_text(CONFIG)
    (tmp_path / "good.bin").write_bytes(TOKENS)
    (tmp_path / "wide.bin").write_bytes(ids("I", 1000, 70000))
    environment = {**os.environ, "STRATA_PLUGIN_PATH": str(plugins), "OMP_NUM_THREADS": "1"}
    if command == "eval":
        done = run([strata, "train", "run.yaml", "--export", "weights", "--quiet"], env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    words = [word.replace("FILE", "wide.bin") for word in COMMANDS[command]]
    check_refused(run([strata, *words], env=environment, cwd=tmp_path), "wide.bin: every second token is", "token_type")


def test_data_info_and_show_obey_the_plugin(strata, plugins, tmp_path):
    """The plugin and its options are obeyed."""
    (tmp_path / "wide.bin").write_bytes(ids("I", 1000, 70000))
    environment = {**os.environ, "STRATA_PLUGIN_PATH": str(plugins)}
    words = ("--plugin", "nanogpt", "--set", "token_type=u32")
    for command, length in (("info", ()), ("show", ("--seq-len", "999"))):
        done = run([strata, "data", command, "wide.bin", *length, "--format", "json", *words], env=environment, cwd=tmp_path)
        found = json.loads(done.stdout)["tokens"]
        assert (found if command == "info" else len(found)) == 1000, done
        check_refused(run([strata, "data", command, "wide.bin", *length, "--plugin", "llm_c"], env=environment, cwd=tmp_path), "data/llm_c", "magic number")
