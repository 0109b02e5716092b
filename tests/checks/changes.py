"""Which C++ files a change is about, and how each is compiled."""
import json
import pathlib
import re
import shlex
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ("*.cpp", "*.hpp", "*.c", "*.cu", "*.cuh")


def git(*words):
    """Lines that git says, or None where it cannot."""
    try:
        done = subprocess.run(["git", "-c", f"safe.directory={ROOT}", *words], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.splitlines() if done.returncode == 0 else None


def base():
    """The commit that a change begins at: where it left the main branch, or the commit before it; None where there is none."""
    head = git("rev-parse", "HEAD")
    for found in (git("merge-base", "HEAD", "origin/main"), git("rev-parse", "HEAD~1")):
        if found and found != head:
            return found[0]
    return None


def changed_files(patterns):
    """Files of these patterns that differ from base(), in commits or in the working tree, as paths in the tree; None without a base."""
    start = base()
    if start is None:
        return None
    named = (git("diff", "--name-only", "--diff-filter=d", start, "--", *patterns) or []) + (git("ls-files", "-o", "--exclude-standard", "--", *patterns) or [])
    return sorted({name for name in named if (ROOT / name).is_file()})


class Commands:
    """How the files of a build folder are compiled, those of a unity build among them."""

    def __init__(self, build):
        self.by_file = {}
        for entry in json.loads((pathlib.Path(build) / "compile_commands.json").read_text()):
            path = pathlib.Path(entry["file"])
            sources = [path]
            if path.name.startswith("unity_") and path.exists():
                sources = [pathlib.Path(name) for name in re.findall(r'#include "(/[^"]+)"', path.read_text())]
            for source in sources:
                self.by_file.setdefault(source.resolve(), (self.words(entry, path), entry["directory"]))

    @staticmethod
    def words(entry, source):
        """Without what it is compiled to, and from which file, and the precompiled header."""
        words = shlex.split(entry["command"])
        words = words[next(i for i, word in enumerate(words) if re.search(r"(\+\+|gcc|clang|cc)(-\d+)?$", word)):]  # without ccache
        kept, skip = [], 0
        for at, word in enumerate(words):
            if skip:
                skip -= 1
            elif word in ("-o", "-MF", "-MT"):
                skip = 1
            elif word == "-include" and words[at + 1].endswith("cmake_pch.hxx"):
                skip = 1
            elif word not in ("-c", "-Winvalid-pch", str(source)) and not word.endswith("cmake_pch.hxx"):
                kept.append(word)
        return kept

    def of(self, name):
        """(words, folder to call them in) of a source; of a header, those of the nearest source. None for what is compiled in no target here."""
        path = (ROOT / name).resolve()
        if path.suffix == ".cpp":
            return self.by_file.get(path)
        for folder in path.parents:
            if folder == ROOT:
                return None
            for source, command in sorted(self.by_file.items()):
                if source.is_relative_to(folder):
                    return command
        return None
