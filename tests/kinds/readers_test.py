"""Every reader of foreign bytes is bounded: tests/readers/readers.cpp lists them. Whatever a file holds, its reader ends within seconds and little
memory, with what it read or with an error in Strata's words. `pytest --collect-only -q tests/kinds/readers_test.py` prints the members."""
import functools
import json
import os
import pathlib
import random
import re
import resource
import select
import struct
import subprocess

import pytest
from commands import run
from place import REPOSITORY, build_folder

PROGRAM = build_folder() / "bin/read_files"
SECONDS = 60              # that a reader may take, on a machine that is busy
MEMORY = 6 << 30          # address space, most of it libtorch's
DRAWN = 24                # files of a content and a reader that are read by default
FOREIGN_WORDS = ("json.exception", "internal error", "std::", "frame #", "/pytorch", ".cpp:", "basic_string", "stoull", "vector::")
READERS = [json.loads(line) for line in subprocess.run([PROGRAM], capture_output=True, text=True, check=True).stdout.splitlines()] if PROGRAM.exists() else []
BY_NAME = {reader["name"]: reader for reader in READERS}

# --- what is well-formed ---------------------------------------------------------------------------------------------------------------

BYTE_CHARACTERS = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
VOCABULARY = {chr(byte if byte in BYTE_CHARACTERS else 0x100 + [b for b in range(256) if b not in BYTE_CHARACTERS].index(byte)): byte for byte in range(256)}
TREES = {
    "json": {"train": {"steps": 3, "note": "x"}, "list": [1, {"a": True}]},
    "safetensors": {"__metadata__": {"a": "b"}, "x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}},
    "index": {"metadata": {"total_size": 8}, "weight_map": {"x": "shard.safetensors"}},
    "model config": {"model_type": "llama", "hidden_size": 8, "layers": [1]},
    "sealed checkpoint": {
        "format": 1, "step": 3, "updates": 3, "samples": 6, "data_samples": 100, "layout": {"world_size": 1, "pipeline": 1, "data": 1, "tensor": 1},
        "model_config": "{\"model_type\": \"llama\"}", "optimizer_updates": 2, "pending": {"learning_rate": 0.1, "updates": 1, "gradient_factor": 1.0, "momentum": 0.5},
        "config": {"train.steps": "3"},
        "parameters": [{"name": "w", "shape": [4, 2], "split": {"dimension": 0, "blocks": 1, "unit": 2, "padded": False}, "whole_states": {"a": 2}, "block_states": {"b": 2}}],
        "files": [{"name": "shard-0-of-1.safetensors", "bytes": 8, "xxh3": "00000000000000ff"}]},
    "rank file": {"plugins": [{"slot": "precision", "plugin": "precision/x", "state_version": 1, "values": {
        "a": {"integer": 3}, "b": {"number": "40f0000000000000"}, "c": {"bytes": "00ff"}, "d": {"text": "x"}, "e": {"rank_bytes": ""}}}]},
    "plugins of a checkpoint": [{"slot": "precision", "plugin": "precision/x", "state_version": 1, "values": {
        "a": {"integer": 3}, "b": {"number": "40f0000000000000"}, "d": {"text": "x"}}}],
    "index of shards": {"w|master|F32|0/1": {"dtype": "I64", "shape": [1, 4], "data_offsets": [0, 32]}},
    "tokenizer": {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}, "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                  "vocab": VOCABULARY, "merges": []}},
    "trace": {"strata": {"scheduler": "1f1b", "device": "cpu", "stages": 1, "chunks_per_stage": 1, "micro_batches": 1, "stage_of_chunk": [0],
                         "layers_of_chunk": [[0, 1]], "stage_of_rank": [0]},
              "traceEvents": [{"name": "x", "cat": "forward", "ph": "X", "pid": 0, "tid": 0, "ts": 1.5, "dur": 2.0,
                               "args": {"step": 1, "op": "Forward", "chunk": 0, "micro_batch": 0, "layer": 0, "waited_for_tensor_us": 1.0}}]},
    "json lines": {"text": "abc", "id": 3},
    "rank record": {"process": {"host": "h", "number": 1, "start": 2}, "beat": 1, "moves": 1, "state": 1, "doing": "x", "since_s": 0.5,
                    "waits_for": ["g", "n", 1, 2, "d", -1, -1], "needs": [0], "on_device": False, "begun": {"g": [["g", "n", 1, 2, "d", -1, -1]]}},
}


@functools.cache
def a_plugin():
    return next((build_folder() / "lib/strata/plugins").glob("libstrata_device_cpu.so")).read_bytes()


def manifest():
    begin = a_plugin().index(b'{"format":')
    return a_plugin()[begin:a_plugin().index(b"\0", begin)]


def tree_of(reader):
    return json.loads(manifest()) if reader == "manifest" else TREES.get(reader)


def sealed(reader, text):
    """The file of a reader whose JSON is this text."""
    text = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
    if reader == "safetensors":
        return struct.pack("<Q", len(text)) + text + bytes(8)
    if reader == "index of shards":
        return struct.pack("<Q", len(text)) + text + struct.pack("<4q", 0, 2, 0, 0)
    if reader == "plugins of a checkpoint":
        header = json.dumps({"__metadata__": {"plugins": text.decode(errors="replace")}, "00000000|precision|e": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}})
        return struct.pack("<Q", len(header)) + header.encode() + bytes(2)
    return text + (b"}\n" if reader == "sealed checkpoint" else b"")


def well_formed(reader):
    if reader == "yaml":
        return b"train: {steps: 3}\nmodel: &m [1, {a: b}]\nagain: *m\n"
    if reader == "toml":
        return b"[train]\nsteps = 3\nlist = [1, {a = true}]\n"
    if reader == "plugin file":
        return a_plugin()
    if reader == "manifest":
        return manifest()
    if reader == "checkpoint":
        return b"not sealed"
    return sealed(reader, json.dumps(tree_of(reader)))


# --- what is hostile -------------------------------------------------------------------------------------------------------------------

def deep(reader):
    opening = [b"[" * 200_000, b'{"a":' * 200_000, b"[" * 200_000 + b"]" * 200_000, b'{"a":[' * 5_000 + b"]}" * 5_000]
    if reader == "yaml":
        return opening + [b"- " * 100_000, b"? " * 50_000, b"&a " * 50_000, b"[" * 5000 + b"]" * 5000, b"a: {" * 3000]
    if reader == "toml":
        return opening + [b"a = " + b"[" * 100_000, b"a = " + b"{a = " * 50_000, b".".join([b"a"] * 50_000) + b" = 1", b"[" + b".".join([b"a"] * 2000) + b"]"]
    return [*opening, *(sealed(reader, text) for text in opening)]


def wide(reader):
    """More than the reader takes, of the kind that it takes."""
    pairs = ['"k%d":%d' % (i, i) for i in range(30_000)]
    texts = ["{" + ",".join(pairs) + "}", "[" + "0," * 2_000_000 + "0]", '{"a":"' + "x" * 2_000_000 + '"}', '{"' + "k" * 2_000_000 + '":1}']
    if reader == "yaml":
        bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
        long = "a: &a " + "x" * 500_000 + "\nb: [" + ", ".join(["*a"] * 15_000) + "]\n"
        nested = "a: " + "".join(f"&b{i} [" for i in range(60)) + "x, " * 15_000 + "x" + "]" * 60 + "\n"
        return [bomb.encode(), long.encode(), nested.encode()] + [text.encode() for text in texts]
    if reader == "toml":
        return ["".join(f"k{i} = {i}\n" for i in range(30_000)).encode(), ("a = [" + "1," * 100_000 + "]").encode()] + [text.encode() for text in texts]
    return [sealed(reader, text) for text in texts]


def cut(reader):
    whole = well_formed(reader)
    return [whole[:len(whole) * part // 24] for part in range(24)]


def damaged(reader):
    """Some bytes are others; of a plugin those of its tables."""
    draw, whole = random.Random(7), well_formed(reader)
    places = len(whole)
    files = []
    for i in range(120):
        copy = bytearray(whole)
        for _ in range(1 + i % 3):
            at = draw.randrange(64) if reader == "plugin file" and i % 2 else draw.randrange(places - 4096 if reader == "plugin file" and i % 4 == 0 else 0, places)
            copy[at] = draw.choice((0, 0xff, 0x22, 0x2d, 0x39, 0x5b, 0x7b, draw.randrange(256)))
        files.append(bytes(copy))
    return files


def twice(reader):
    """Each key of each object, twice."""
    tree = tree_of(reader)
    if tree is None:
        return {"yaml": [b"a: 1\na: 2\n", b"{a: 1, a: 2}"], "toml": [b"a = 1\na = 2\n", b"[a]\n[a]\n"]}.get(reader, [])
    text = json.dumps(tree if reader != "tokenizer" else {**tree, "model": {**tree["model"], "vocab": {"a": 0}}})
    keys = list(re.finditer(r'"(\w+)": ', text))
    return [sealed(reader, text[:key.start()] + key[0] + "null, " + text[key.start():]) for key in keys]


OTHERS = (None, True, -1, 0, 2**31, 2**59 + 1, 2**63, 2**64 + 1, -2**63, 1.5, 1e300, "", "x", "\x1b\x9b", "\0", "../up", [], [[]], [-1], [2**40, 2**40], {}, {"a": 1})


def places(tree, path=()):
    yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in list(items)[:12]:
        yield from places(value, (*path, key))


def with_value(tree, path, value):
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = with_value(tree[path[0]], path[1:], value)
    return copy


def without(tree, path):
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    if len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = without(tree[path[0]], path[1:])
    return copy


def other_types(reader):
    """Each value is in turn missing, and of each other type."""
    tree = tree_of(reader)
    if tree is None:
        return []
    trees = [with_value(tree, path, other) for path in places(tree) for other in OTHERS]
    trees += [without(tree, path) for path in places(tree) if path]
    return [sealed(reader, json.dumps(one)) for one in trees]


CONTENTS = {"deep": deep, "wide": wide, "cut": cut, "damaged": damaged, "each key twice": twice, "each value of another type": other_types,
            "empty": lambda reader: [b"", sealed(reader, b"")], "no text": lambda reader: [bytes(range(256)) * 64, b"\0" * 1000, sealed(reader, b"\xff\xfe")]}


def make_pipe(path):
    os.mkfifo(path)


def make_huge(path):
    path.touch()
    os.truncate(path, 1 << 40)


PLACES = {"missing": lambda path: None, "folder": pathlib.Path.mkdir, "pipe": make_pipe, "device": lambda path: path.symlink_to("/dev/zero"),
          "link to itself": lambda path: path.symlink_to(path), "a terabyte": make_huge}

# --- reading ---------------------------------------------------------------------------------------------------------------------------


class Reading:
    """The program, begun again where it ended."""

    def __init__(self):
        self.process = None

    def outcome(self, reader, path):
        if self.process is None:
            limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))  # noqa: E731
            self.process = subprocess.Popen([PROGRAM, "files"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=limit,
                                            env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.process.stdin.write(f"{reader}\t{path}\n".encode())
        self.process.stdin.flush()
        line = self.process.stdout.readline() if select.select([self.process.stdout], [], [], SECONDS)[0] else None
        if not line:
            self.process.kill()
            status, self.process = self.process.wait(), None
            return {"kind": f"no answer within {SECONDS} s" if line is None else f"the program ended with status {status}", "text": ""}
        return json.loads(line)

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()


@pytest.fixture(scope="module")
def reading():
    program = Reading()
    yield program
    program.close()


@pytest.fixture
def place(tmp_path):
    """A function: the path for a reader's file, in a folder with what stands beside it."""

    def make(reader):
        folder = tmp_path / reader
        folder.mkdir()
        tensors = sealed("safetensors", json.dumps(TREES["safetensors"]))
        if reader == "index":
            (folder / "config.json").write_text("{}")
            (folder / "shard.safetensors").write_bytes(tensors)
        if reader == "model config":
            (folder / "model.safetensors").write_bytes(tensors)
        return folder / BY_NAME[reader]["file"]

    return make


def check(outcome, file, reader):
    assert outcome["kind"] in ("read", "user", "environment"), f"{outcome}: {file}"
    found = [word for word in FOREIGN_WORDS if word in outcome["text"]]
    assert not found, f"{found} in {outcome['text']!r}: {file}"
    assert len(outcome["text"]) < 1500, outcome["text"]


def shown(content):
    return content if len(content) < 2000 else content[:1000] + b"..."


def test_there_are_readers():
    assert len(READERS) > 12, f"build {PROGRAM.name} first"


@pytest.mark.parametrize("reader", BY_NAME)
def test_well_formed(reading, place, reader):
    path = place(reader)
    path.write_bytes(well_formed(reader))
    outcome = reading.outcome(reader, path)
    assert outcome["kind"] == ("user" if reader == "checkpoint" else "read"), outcome


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("reader", BY_NAME)
def test_content(reading, place, reader, content, request, seed):
    """By default of each content and reader some files, drawn by --seed; --full: all."""
    path = place(reader)
    files = list(CONTENTS[content](reader))
    if not request.config.getoption("--full") and len(files) > DRAWN:
        files = random.Random(f"{seed} {reader} {content}").sample(files, DRAWN)
    for one in files:
        path.write_bytes(one)
        outcome = reading.outcome(reader, path)
        check(outcome, shown(one), reader)
        if content == "deep" and reader != "toml" or content == "each key twice":
            assert outcome["kind"] != "read", shown(one)


# Readers of a text: others open its file.
TEXTS = ("sealed checkpoint", "manifest", "rank record")


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("reader", [reader for reader in BY_NAME if reader not in TEXTS])
def test_place(reading, place, reader, kind):
    path = place(reader)
    PLACES[kind](path)
    outcome = reading.outcome(reader, path)
    check(outcome, kind, reader)
    assert outcome["kind"] != "read"
    if (reader, kind) != ("json lines", "folder"):  # which stands for the files in it
        assert path.name in outcome["text"] or str(path.parent) in outcome["text"], outcome


# --- no reader but those ---------------------------------------------------------------------------------------------------------------

# Sources that parse and are no reader of their own; why their texts are no foreign bytes, or whose reader they call.
PARSES = {
    "core/engine/checkpoint/hugging_face_export.cpp": "the model's own config.json, by text::JsonDocument",
    "core/engine/checkpoint/weights.cpp": "the run's own config.json, by text::JsonDocument",
    "core/engine/group/board.cpp": "the verdict, by text::JsonDocument",
    "core/engine/text/json.cpp": "the reader itself",
    "core/engine/text/json.hpp": "the reader itself",
    "core/engine/report/metrics_file.cpp": "what an earlier run wrote, by text::JsonDocument",
    "core/engine/report/summary_sink.cpp": "what an earlier run wrote, by text::JsonDocument",
    "core/tools/config/write_tree.cpp": "asks whether a scalar is a number",
    "core/tools/data/json_lines.cpp": "asks whether a line is an object",
    "core/tools/compare/variant_runs.cpp": "what its own runs wrote, by text::JsonDocument",
    "sdk/conformance/model/files.cpp": "what a plugin under test writes",
    "sdk/fakes/src/plugin_library.cpp": "the manifest of a library that is loaded",
    "core/tools/plan/plan_table.cpp": "a config.json, by text::read_json",
    "sdk/toolbox/include/strata/toolbox/config_file.hpp": "a config.json that the engine's reader took",
}
# Sources that open files otherwise than by InputFile, and which.
OPENS = {
    "core/engine/checkpoint/folder_lock.cpp": "locks of folders",
    "core/engine/data/file.cpp": "files that are written; flushing folders",
    "core/engine/group/process_identity.cpp": "/proc",
    "core/interface/src/input_file.cpp": "InputFile itself",
    "core/engine/plugins/elf_section.cpp": "the reader of plugin files",
    "core/engine/plugins/shutdown_watch.cpp": "/proc",
    "core/tools/ranks/host_resources.cpp": "/proc and /sys",
    "core/tools/ranks/rank_process.cpp": "/proc and /dev/null",
    "core/tools/launcher/launcher.cpp": "the beginning of regular files of an installation",
    "core/engine/text/standard_streams.hpp": "/dev/null",
    "core/tools/ranks/machine.cpp": "/proc and /sys",
    "core/engine/report/rank_usage.cpp": "/proc",
    "core/engine/report/report_file.cpp": "a file that is written, and what an earlier run wrote there",
    "plugins/communicator/shm/arena.cpp": "/proc, and memory of its own",
    "plugins/device/cpu/host_memory.cpp": "/proc and /sys",
    "plugins/offload/cpu/host_memory.cpp": "/proc and /sys",
    "plugins/offload/cpu/numa_node.cpp": "/sys",
    "plugins/offload/nvme/striped_files.cpp": "files of its own",
    "core/tools/compare/run_in_turns.cpp": "a file that is written",
    "core/tools/new_plugin/new_plugin.cpp": "templates of the installation",
    "sdk/toolbox/src/token_files.cpp": "a file that is written",
}
PARSING = re.compile(r"\b(?:[Jj]son|ordered_json)::(?:parse|accept|sax_parse|from_\w+)\(|YAML::(?:Load|Parser)\b|toml::parse(?:_file)?\(|JsonDocument\b|text::read_json\(")
OPENING = re.compile(r"std::(?:ifstream|fstream|basic_ifstream)\b|\bfopen\(|(?<![\w.>:])(?:::)?open(?:at)?\(.*\bO_|(?<![\w>])::open\(")


def sources():
    for top in ("core", "sdk", "plugins", "examples"):
        for path in sorted((REPOSITORY / top).rglob("*")):
            if path.suffix in (".cpp", ".hpp") and "build" not in path.parts[len(REPOSITORY.parts):]:
                yield str(path.relative_to(REPOSITORY)), path.read_text()


def matching(pattern):
    return {name for name, text in sources() if any(pattern.search(line.split("//")[0]) for line in text.splitlines())}


def test_whoever_parses_is_a_reader():
    known = {reader["source"] for reader in READERS} | set(PARSES)
    found = matching(PARSING)
    assert found <= known, "parse foreign bytes and stand in no list: add a reader to tests/readers/readers.cpp"
    assert set(PARSES) <= found, "no longer parse"


def test_whoever_opens_files_takes_regular_ones():
    found = {name for name in matching(OPENING) if not name.startswith(("sdk/conformance/", "core/tools/bench/", "sdk/template/"))}
    assert found <= set(OPENS), "open files without InputFile, which refuses pipes, folders and devices"
    assert set(OPENS) <= found, "no longer open files"


@pytest.mark.parametrize("line", ["json::parse(text)", "YAML::Load(text)", "toml::parse_file(path)", "nlohmann::json::from_cbor(bytes)"])
def test_a_parser_is_seen(line):
    assert PARSING.search(line)


@pytest.mark.parametrize("line", ["std::ifstream file(path);", "fopen(path, \"r\")", "const int handle = open(path, O_RDONLY);", "::open(path, flags)"])
def test_an_opened_file_is_seen(line):
    assert OPENING.search(line)


# --- the commands take these readers ---------------------------------------------------------------------------------------------------

COMMANDS = {
    "config": lambda path: ["config", "show", path],
    "tokenizer": lambda path: ["data", "pack", REPOSITORY / "README.md", "-o", path.parent / "o.bin", "--tokenizer", path],
    "json lines": lambda path: ["data", "pack", path, "-o", path.parent / "o.bin"],
    "trace": lambda path: ["trace", path],
    "checkpoint": lambda path: ["checkpoint", "info", path.parent],
    "model config": lambda path: ["plan", "--table", "--model", f"llama:{path}", "--ranks", "1"],
    "plugin file": lambda path: ["config", "show", "--set", f"device.plugin={path}", REPOSITORY / "configs/quickstart.yaml"],
}
FILES = {"config": "run.json", **{name: BY_NAME[name]["file"] for name in COMMANDS if name in BY_NAME}}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(strata, plugins, tmp_path, command):
    if command == "checkpoint":
        (tmp_path / "step-1").mkdir()
    path = (tmp_path / "step-1" if command == "checkpoint" else tmp_path) / FILES[command]
    for kind in ("deep", "pipe"):
        path.write_bytes(b'{"model":{"type":' + b"[" * 100_000 + b"]" * 100_000 + b"}}") if kind == "deep" else make_pipe(path)
        done = run([strata, *COMMANDS[command](path)], timeout=60, env={**os.environ, "STRATA_PLUGIN_PATH": str(plugins)})
        assert done.returncode in (2, 3) and len(done.stderr.splitlines()) == 1, f"{kind}: {done}"
        assert not [word for word in FOREIGN_WORDS if word in done.stderr], done.stderr
        path.unlink()
