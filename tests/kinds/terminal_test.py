"""Nothing that comes from a file, a name, the environment or another process reaches a terminal as it came. Besides, conftest.py scans the
output of every other test. Each source below puts TITLE, which sets a terminal's title, into one place, and runs commands that print it."""
import fcntl
import json
import os
import pathlib
import re
import struct
import subprocess
import termios

import loaded_programs
import pytest
from commands import check_printable
from place import build_folder
from pseudo_terminal import open_terminal

TITLE = "\x1b]0;owned\x07\x9b2J\x7f"              # ESC, BEL, a C1 character and DEL
ESCAPED = re.compile(r"\\u001b\]0;owned\\u0007")
RAW = b"\x1b]0;owned\x07\x9b2J"                  # in names of files, where U+009B is a byte that is no UTF-8
BASE = "device: cpu\nmodel: {plugin: gpt_neox, seq_len: 32, hidden_size: 40, layers: 1, heads: 4, vocabulary: 257}\ndata: {path: none.bin}\ntrain: {steps: 2, global_batch: 2}\nlearning_rate: {base: 1e-3}\n"


class Terminal:
    def __init__(self, strata, plugins, folder):
        self.strata, self.folder = strata, folder
        self.environment = {**os.environ, "STRATA_PLUGIN_PATH": str(plugins), "OMP_NUM_THREADS": "1"}

    def write(self, name, content):
        path = os.path.join(os.fsencode(self.folder), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return path

    def base(self):
        return self.write("base.yaml", BASE)

    def run(self, *words, **environment):
        """What a command prints, checked."""
        done = loaded_programs.run([self.strata, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**self.environment, **environment},
                                   cwd=self.folder, timeout=120)
        check_printable(done.stdout)
        return done.stdout.decode()


@pytest.fixture
def terminal(strata, plugins, tmp_path):
    return Terminal(strata, plugins, tmp_path)


def tensors(name):
    header = json.dumps({name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(8)


def yaml_value(t):
    return t.run("config", "show", t.write("a.yaml", "model: {plugin: \"\\e]0;owned\\a\\x9b2J\\x7f\"}\n"))


def json_value(t):
    return t.run("config", "show", t.write("a.json", json.dumps({"model": {"plugin": TITLE}})))


def toml_value(t):
    return t.run("config", "show", t.write("a.toml", '[model]\nplugin = "\\u001b]0;owned\\u0007\\u009b2J\\u007f"\n'))


def value_that_is_shown(t):
    shown = t.run("config", "show", t.base(), "--set", "data.path=" + json.dumps(TITLE))
    again = t.run("config", "show", t.base(), "--format", "json", "--set", "data.path=" + json.dumps(TITLE))
    assert any(TITLE in row["value"] for row in json.loads(again)), "JSON that is read again has another text"
    return shown


def key(t):
    return t.run("config", "show", t.write("a.json", json.dumps({TITLE: 1}))) + t.run("config", "show", t.write("b.json", json.dumps({"train": {TITLE: 1}})))


def text_of_a_config(t):
    return t.run("config", "show", t.write("a.yaml", b"train: \x1b]0;owned\x07\n")) + r"\u001b]0;owned\u0007"


def setting(t):
    return t.run("config", "show", t.base(), "--set", "train." + TITLE.replace("=", "") + "=3") + t.run("config", "show", t.base(), "--set", TITLE)


def name_of_a_config(t):
    return t.run("config", "show", t.write(RAW + b".yaml", "a: 1")) + t.run("config", "show", b"none" + RAW + b".yaml")


def folder_of_a_config(t):
    return t.run("config", "show", t.write(RAW + b"/a.yaml", "a: 1"))


def name_of_data(t):
    return t.run("train", t.base(), "--set", "data.path=" + json.dumps(TITLE))


def words_of_a_command_line(t):
    return t.run(TITLE) + t.run("train", "--" + TITLE) + t.run("train", t.base(), TITLE) + t.run("trace", TITLE) + t.run("data", TITLE)


def input_of_data(t):
    return t.run("data", "pack", t.write(RAW + b".jsonl", "{"), "-o", "o.bin") + t.run(
        "data", "pack", t.write("a.jsonl", json.dumps({TITLE: 1})), "-o", "o.bin")


def packed_text(t):
    t.run("data", "pack", t.write("a.txt", TITLE.encode() * 40), "-o", "o.bin")
    return t.run("data", "info", "o.bin") + t.run("data", "show", "o.bin") + r"\u001b]0;owned\u0007"


def folder_of_weights(t):
    t.write("hf/config.json", "{}")
    t.write("hf/model.safetensors.index.json", json.dumps({"weight_map": {TITLE: TITLE}}))
    first = t.run("train", t.base(), "--set", "model.init=hf")
    t.write("hf/model.safetensors.index.json", json.dumps({"weight_map": {TITLE: TITLE + "b"}}))
    t.write(b"hf/" + (TITLE + "b").encode(), tensors(TITLE))
    t.write("hf/config.json", json.dumps({"model_type": TITLE}))
    return first + t.run("train", t.base(), "--set", "model.init=hf")


def name_of_weights(t):
    return t.run("train", t.base(), "--set", "model.init=none", "--set", "model.init=" + json.dumps(TITLE))


def checkpoint(t):
    t.write("tokens.bin", struct.pack("<1000H", *(i % 257 for i in range(1000))))
    t.run("train", t.base(), "--quiet", "--set", "data.path=tokens.bin", "--set", "checkpoint.path=saved")
    path = t.folder / "saved/step-2/checkpoint.json"
    if not path.exists():
        pytest.fail("no checkpoint was saved")
    body = path.read_text().split("\n", 1)[1]
    t.write("body.json", body.replace('"gpt_neox"', json.dumps(TITLE)).replace(".safetensors", json.dumps(TITLE)[1:-1]))
    subprocess.run([build_folder() / "bin/read_files", "files"], input=f"sealed checkpoint\t{t.folder / 'body.json'}\n".encode(), check=True, stdout=subprocess.DEVNULL)
    path.write_bytes((t.folder / "sealed/checkpoint.json").read_bytes())  # with the checksum of the text that it has now
    shown = t.run("checkpoint", "info", "saved") + t.run("checkpoint", "export", "saved", "out")
    rank = t.folder / "saved/step-2/rank-0-of-1.json"
    rank.write_text(json.dumps({"plugins": [{"slot": TITLE, "plugin": TITLE}]}))
    return shown + t.run("checkpoint", "info", "saved/" + TITLE) + t.run("train", t.base(), "--resume", "--set", "checkpoint.path=" + json.dumps(TITLE))


def plugin_files(t):
    t.write(b"more/libstrata_" + RAW + b".so", b"no library")
    listed = t.run("plugins", "list", STRATA_PLUGIN_PATH=str(t.folder / "more") + ":" + TITLE)
    json.loads(t.run("plugins", "list", "--format", "json", STRATA_PLUGIN_PATH=str(t.folder / "more")))
    return listed + t.run("plugins", "show", TITLE) + t.run("plugins", "check", TITLE)


def manifest(t):
    plugin = (pathlib.Path(t.environment["STRATA_PLUGIN_PATH"]) / "libstrata_device_cpu.so").read_bytes()
    begin = plugin.index(b'{"format":')
    text = plugin[begin:plugin.index(b"\0", begin)]
    version = re.search(rb'"description":"([^"]{30})', text)
    altered = text.replace(version[1], rb"\u001b]0;owned\u0007\u009b" + b"x" * 5 if len(version[1]) == 30 else version[1])[:len(text)].ljust(len(text))
    t.write("more/libstrata_device_cpu.so", plugin.replace(text, altered))
    t.run("plugins", "show", "device/cpu", STRATA_PLUGIN_PATH=str(t.folder / "more"))
    return t.run("plugins", "list", STRATA_PLUGIN_PATH=str(t.folder / "more")) + r"\u001b]0;owned\u0007"


def environment(t):
    said = ""
    for variables in ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_STEP_NODELIST": TITLE, "SLURM_JOB_ID": "1"},
                      {"RANK": TITLE}, {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": TITLE, "MASTER_PORT": "1", "LOCAL_RANK": "0"},
                      {"STRATA_TORCH_DIR": TITLE}, {"STRATA_CONFIGS": TITLE}):
        said += t.run("train", t.base(), **variables)
    return said + t.run("verify", t.base(), TMPDIR=TITLE)


def tokenizer(t):
    path = t.write("t.json", json.dumps({"version": TITLE, "model": {"type": TITLE}, TITLE: 1}))
    return t.run("data", "pack", t.base(), "-o", "o.bin", "--tokenizer", path)


def trace(t):
    shape = {"device": TITLE, "stages": 1, "chunks_per_stage": 1, "micro_batches": 1, "stage_of_chunk": [0], "layers_of_chunk": [[0, 1]], "stage_of_rank": [0]}

    def event(op):
        return {"name": TITLE, "cat": op.lower(), "ph": "X", "pid": 0, "tid": 0, "ts": 1.5, "dur": 2.0, "args": {"step": 1, "op": op, "chunk": 0, "micro_batch": 0, "layer": 0}}

    path = t.write("trace.json", json.dumps({"strata": {"scheduler": TITLE, **shape}, "traceEvents": [event("Forward"), event("Backward")]}))
    said = t.run("trace", path) + t.run("trace", path, "--format", "svg")
    json.loads(t.run("trace", path, "--format", "json"))
    return said + t.run("trace", t.write("wrong.json", json.dumps({"strata": {"scheduler": "x", "device": {TITLE: 1}}, "traceEvents": []}))) + t.run(
        "trace", t.write(RAW + b".json", "{}"))


def ds_config(t):
    return t.run("config", "convert", t.write("ds.json", json.dumps({"train_batch_size": 4, TITLE: 1, "optimizer": {"type": TITLE}})))


def lines_of_ranks(t):
    script = t.write("say.sh", b"printf '\\033]0;owned\\007\\302\\2332J\\233\\n'; printf '\\033]0;owned\\007\\n' >&2; exit 5\n")
    return t.run("launch", "--nproc", "2", "sh", "-c", "[ $RANK = 0 ] || . " + os.fsdecode(script))


def export(t):
    return t.run("train", t.base(), "--set", "data.path=none.bin", "--export", b"none/" + RAW) + t.run(
        "train", t.base(), "--metrics", b"none/" + RAW, "--set", "data.path=" + json.dumps(TITLE))


SOURCES = (yaml_value, json_value, toml_value, value_that_is_shown, key, text_of_a_config, setting, name_of_a_config, folder_of_a_config, name_of_data,
           words_of_a_command_line, input_of_data, packed_text, folder_of_weights, name_of_weights, checkpoint, plugin_files, manifest, environment, tokenizer,
           trace, ds_config, lines_of_ranks, export)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.__name__)
def test_source(terminal, source):
    said = source(terminal)
    assert ESCAPED.search(said), f"does not print what it should refuse: {said}"


@pytest.mark.full
def test_each_key(terminal):
    """The title as the value of each key."""
    names = [row["key"] for row in json.loads(terminal.run("config", "show", terminal.base(), "--format", "json"))]
    assert len(names) > 50
    for name in names:
        terminal.run("config", "show", terminal.base(), "--set", f"{name}={json.dumps(TITLE)}")


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_help_fits_the_terminal(strata, columns):
    """Descriptions of options are broken at its width."""
    main, terminal = open_terminal()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen([strata, "train", "--help"], stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        text = b""
        while piece := read_terminal(main):
            text += piece
    os.close(main)
    assert process.returncode == 0
    widest = max(len(line) for line in text.decode().splitlines() if line.startswith(" " * 30))
    assert columns - 20 < widest <= columns if columns < 140 else 100 < widest <= 140


def read_terminal(main):
    try:
        return os.read(main, 1 << 16)
    except OSError:  # closed by the process
        return b""


@pytest.mark.parametrize("bad", [b"\x1b[0m", b"\x07", b"\xc2\x9b", b"a\rb", b"\x7f"], ids=repr)
def test_a_raw_character_is_seen(bad):
    with pytest.raises(AssertionError):
        check_printable(b"text " + bad)
    check_printable("text\twith é and \u4e2d\n")


def test_captured_output_is_checked():
    with pytest.raises(AssertionError, match="control character"):
        subprocess.run(["printf", r"\033[2J"], capture_output=True, check=True)
