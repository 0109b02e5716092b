"""Outputs written at the end are tried at the start: every output of every command, as the help and the config reference list them, in every
way in which it cannot be written. The command ends before its work begins, in one sentence that names the path, and no file of the user's changes."""
import hashlib
import json
import os
import re
import shutil

import pytest
from engine import TINY_MODELS, write_tokens
from help_pages import pages
from place import REPOSITORY
from side_by_side import Commands

# --- the members, from the help of every command and from the config reference, which tests/readme compares with the program ----------

REFERENCE = (REPOSITORY / "configs/REFERENCE.md").read_text()
WRITES = re.compile(r"[Ww]rite\b.* (to|in) this (new )?(file|folder)|(file|folder) to write|page with .* to this file|Keep .* in this folder"
                    r"|continue the file", re.I)


def options_that_write():
    """(command, option) of each whose help says that it names what is written."""
    return [(page.command, option.name.split(",")[-1]) for page in pages() for option in page.options() if WRITES.search(option.text)]


def keys_that_write():
    """Config keys that affect files which are not read."""
    rows = re.findall(r"^\| `([\w.]+)` *\|.*\| (files[^|]*)\|", REFERENCE, re.M)
    return [("train", key) for key, affects in rows if "same content" not in affects]


# How a command is called with a path in place of OUT. `file`: what it writes there is a file; else a folder.
CALLS = {
    ("train", "--metrics"): ("file", "train CONFIG --metrics OUT"),
    ("train", "--summary"): ("file", "train CONFIG --summary OUT"),
    ("train", "--trace"): ("file", "train CONFIG --trace OUT"),
    ("train", "--export"): ("new folder", "train CONFIG --export OUT"),
    ("train", "export"): ("new folder", "train CONFIG --set export=OUT"),
    ("train", "metrics.csv"): ("folder", "train CONFIG --set metrics.csv=OUT"),
    ("train", "checkpoint.path"): ("folder", "train CONFIG --set checkpoint.path=OUT"),
    ("compare", "--html"): ("file", "compare CONFIG --vary train.seed=1,2 --html OUT"),
    ("verify", "--keep"): ("folder", "verify CONFIG --keep OUT"),
    ("config convert", "--output"): ("written file", "config convert CONFIG --format json -o OUT"),
    ("data pack", "--output"): ("written file", "data pack TEXT -o OUT"),
    ("checkpoint export", "folder"): ("new folder", "checkpoint export SAVED OUT"),
    ("plugins new", "folder"): ("folder", "plugins new optimizer mine OUT"),
}


# --- the ways in which a path cannot be written: each makes what is in the way and returns the path -------------------------------------


def folder_in_place(place):
    (place / "there").mkdir()
    (place / "there/mine.txt").write_text("mine")
    return place / "there"


def file_in_place(place):
    (place / "there").write_text("mine")
    return place / "there"


def no_folder(place):
    return place / "none" / "there"


def below_a_file(place):
    return file_in_place(place) / "there"


def name_too_long(place):
    return place / ("x" * 300)


def loop(place):
    (place / "one").symlink_to("two")
    (place / "two").symlink_to("one")
    return place / "one"


def link_to_nowhere(place):
    (place / "link").symlink_to("none/there")
    return place / "link"


def no_permission(place):
    return os.path.join("/sys" if os.path.ismount("/sys") else "/proc", "there")  # where even root cannot make a file; a chroot may have no /sys


ALL = [below_a_file, name_too_long, loop, link_to_nowhere, no_permission]
WAYS = {"file": [*ALL, no_folder, folder_in_place], "written file": [*ALL[:3], no_permission, no_folder, folder_in_place],
        "folder": [*ALL, file_in_place], "new folder": [*ALL, no_folder, file_in_place, folder_in_place]}
# Programs of their own, which take longer to start: some ways always, the others with --full.
SLOW = {"compare", "verify", "data pack", "plugins new"}
QUICK_WAYS = [no_permission]


def members():
    for (command, name), (kind, _) in CALLS.items():
        for way in WAYS[kind]:
            slow = command in SLOW and way not in QUICK_WAYS
            yield pytest.param(command, name, way, id=f"{command} {name}, {way.__name__.replace('_', ' ')}", marks=[pytest.mark.full] if slow else [])


# --- the fixtures ------------------------------------------------------------------------------------------------------------------------


class Outputs:
    def __init__(self, plugins, folder):
        self.commands, self.folder, self.count = Commands(plugins), folder, 0
        self.user = folder / "user"  # what commands read
        self.user.mkdir()
        write_tokens(self.user / "tokens.bin", 2000)
        write_tokens(self.user / "validation.bin", 500, seed=6)
        (self.user / "text").write_text("A text of some words.\n")
        model, sizes = next(iter(TINY_MODELS.items()))
        tree = {"device": "cpu", "model": {"plugin": model, "seq_len": 16, **sizes}, "data": {"path": "tokens.bin"}, "learning_rate": {"base": 1e-3},
                "validation": {"path": "validation.bin"}, "train": {"steps": 2, "global_batch": 2}}
        (self.user / "config.json").write_text(json.dumps(tree))
        done = self.commands.call(self.user, "train", "config.json", "--quiet", "--set", "checkpoint.path=saved", "--export", "init")
        assert done.status == 0, done.says()

    def place(self):
        self.count += 1
        place = self.folder / f"place{self.count}"
        place.mkdir()
        return place

    def call(self, text, out, *more):
        """The command of CALLS, and that no file of the user's changed."""
        words = {"CONFIG": "config.json", "TEXT": "text", "SAVED": "saved"}
        arguments = [words.get(word, word.replace("OUT", str(out))) for word in text.split()]
        before = snapshot(self.folder)
        done = self.commands.call(self.user, *arguments, *more)
        after = snapshot(self.folder)
        changed = sorted({path for path in before.keys() | after.keys() if before.get(path) != after.get(path)})
        return done, changed


def snapshot(folder):
    """Every path below: what a link points to, what a file holds."""
    found = {}
    for place, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(place, name)
            if os.path.islink(path):
                found[path] = os.readlink(path)
            elif os.path.isfile(path):
                with open(path, "rb") as file:
                    found[path] = hashlib.sha256(file.read()).hexdigest()
            else:
                found[path] = "folder"
    return found


@pytest.fixture(scope="module")
def outputs(plugins, folder):
    return Outputs(plugins, folder)


def check_refused(done, changed, *said):
    assert done.status in (2, 3), done.says()
    missing = [text for text in said if text not in done.output]
    assert not missing, f"does not say {missing}: {done.says()}"
    assert "internal error" not in done.output and "step 1/" not in done.output, done.says()
    assert not changed, f"{changed}: {done.says()}"


# --- the tests ---------------------------------------------------------------------------------------------------------------------------


def test_every_output_is_a_member():
    assert set(options_that_write()) | set(keys_that_write()) == set(CALLS)


@pytest.mark.parametrize("command, name, way", members())
def test_cannot_be_written(outputs, command, name, way):
    place = outputs.place()
    out = way(place)
    done, changed = outputs.call(CALLS[command, name][1], out)
    check_refused(done, changed, os.path.basename(out)[:40])
    shutil.rmtree(place)


@pytest.mark.parametrize("command, name", [pytest.param(*member, marks=[pytest.mark.full] if member[0] in SLOW else []) for member in CALLS if "." not in member[1] and member[1] != "export"])
def test_an_empty_path(outputs, command, name):
    """As of an unset variable of a shell."""
    done, changed = outputs.call(CALLS[command, name][1], "")
    check_refused(done, changed, f"{name} is empty")


# What a run reads, and links to it.
READ = ["config.json", "tokens.bin", "validation.bin", "init/config.json", "init/model.safetensors", "saved/step-2/checkpoint.json", "text"]


@pytest.mark.parametrize("command, name", [member for member, (kind, _) in CALLS.items() if kind == "file" and member[0] not in SLOW])
def test_inputs_are_not_overwritten(outputs, command, name):
    """By its path, a link to it, and another name of it; with --resume too."""
    for number, read in enumerate(READ):
        place = outputs.place()
        (place / "link").symlink_to(outputs.user / read)
        os.link(outputs.user / read, place / "hard")
        ways = [outputs.user / read, place / "link", place / "hard"]
        out, more = ways[number % len(ways)], ["--resume", "saved"] if number % 2 else []
        done, changed = outputs.call(CALLS[command, name][1], out, "--set", "model.init=init", *more)
        check_refused(done, changed, name, "contains something other than", "is not overwritten")
        shutil.rmtree(place)


@pytest.mark.parametrize("call, read", [("config convert CONFIG -o OUT", "config.json"), ("data pack TEXT --force -o OUT", "text"),
                                        pytest.param("compare CONFIG --vary train.seed=1,2 --html OUT", "config.json", marks=pytest.mark.full),
                                        pytest.param("verify CONFIG --keep .", "tokens.bin", marks=pytest.mark.full)])
def test_the_input_is_not_overwritten(outputs, call, read):
    done, changed = outputs.call(call, outputs.user / read)
    check_refused(done, changed, read)


@pytest.mark.parametrize("one, other, said", [
    ("--metrics both", "--summary both", "are one file"), ("--metrics both", "--trace both", "are one file"), ("--summary both", "--trace both", "are one file"),
    ("--export out", "--set checkpoint.path=out", "which must be empty until the end"),
    ("--export out", "--set checkpoint.path=out/saved", "which must be empty until the end"),
    ("--export out", "--set metrics.csv=out/figures", "which must be empty until the end")])
def test_two_outputs_in_one_place(outputs, one, other, said):
    done, changed = outputs.call(f"train CONFIG {one} {other}", "")
    check_refused(done, changed, said, other.split()[0].removeprefix("--set"))


def test_place_of_the_latest_link(outputs):
    place = outputs.place()
    (place / "latest").mkdir()
    done, changed = outputs.call("train CONFIG --set checkpoint.path=OUT", place)
    check_refused(done, changed, "latest: is where the link")


def train(outputs, place, *more):
    return outputs.commands.call(outputs.user, "train", "config.json", "--quiet", "--set", f"checkpoint.path={place}/saved", "--set", "checkpoint.every=2",
                               "--set", f"metrics.csv={place}/figures", "--metrics", place / "metrics", "--summary", place / "summary", *more)


def test_files_of_an_earlier_run(outputs):
    """Refused by another run; continued by the one that goes on: each step once, whatever a killed run left behind its checkpoint."""
    place = outputs.place()
    figure = place / "figures/Train_Samples_train_loss.csv"
    done = train(outputs, place, "--set", "train.steps=3")
    assert done.status == 0, done.says()
    once = place / "metrics", figure
    texts = [path.read_text() for path in once]
    for option in (["--metrics", place / "metrics"], ["--set", f"metrics.csv={place}/figures"]):
        done, changed = outputs.call("train CONFIG", "", *option)
        check_refused(done, changed, "of an earlier run", "--resume")
    # As if the run had been killed after more steps, in the middle of a line.
    (place / "metrics").write_text(texts[0] + texts[0].splitlines(True)[-1].replace('"step":3', '"step":4') + texts[0][:100])
    figure.write_text(texts[1] + "8,1.5\n10")
    done = train(outputs, place, "--resume", "--set", "train.steps=5")
    assert done.status == 0, done.says()
    lines = [json.loads(line) for line in (place / "metrics").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5] and (place / "metrics").read_text().startswith(texts[0])
    assert [line.split(",")[0] for line in figure.read_text().splitlines()] == ["step", "2", "4", "6", "8", "10"]
    summary = json.loads((place / "summary").read_text())
    assert summary["first_step"] == 4 and summary["validation"]["last"]["step"] == 5
    # A file in which an earlier version repeated steps holds each once.
    twice = (place / "metrics").read_text().splitlines(True)
    (place / "metrics").write_text("".join(twice[:4] + twice[2:5]))
    done = train(outputs, place, "--resume", "--set", "train.steps=6")
    assert done.status == 0, done.says()
    assert [json.loads(line)["step"] for line in (place / "metrics").read_text().splitlines()] == [1, 2, 3, 4, 5, 6]


def test_outputs_that_fail_leave_nothing(outputs):
    """What was made for a run that is then refused is removed."""
    place = outputs.place()
    done, changed = outputs.call("train CONFIG --set data.path=/none", "", "--metrics", place / "m", "--summary", place / "s", "--trace", place / "t")
    check_refused(done, changed, "/none")
