#!/usr/bin/env python3
"""Writes configs/REFERENCE.md: what `strata config reference` prints.   options.py [--strata PROGRAM]

A build without CUDA has not all plugins of the tree: the sections of those that it has are written, and the others are left as they
are. options_test.py says whether the file is up to date.
"""
import argparse
import os
import pathlib
import subprocess

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
FILE = REPOSITORY / "configs/REFERENCE.md"


def sections(text):
    """What stands before the first section, and each section by its plugin's name."""
    first, *parts = text.split("\n## ")
    return first.rstrip("\n"), {part.split("\n", 1)[0]: part.rstrip("\n") for part in parts}


def wanted_sections(strata):
    """What is to stand before the first section, each section by its name in order (those of keys, without a slash, then those of
    plugins), and the names of those that this build has. A plugin of the tree that neither the build nor the file has is a ValueError."""
    environment = {name: value for name, value in os.environ.items() if name != "STRATA_PLUGIN_PATH"}
    printed = subprocess.run([strata, "config", "reference"], env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    head, built = sections(printed)
    written = sections(FILE.read_text())[1] if FILE.exists() else {}
    tree = {f"{folder.parent.parent.name}/{folder.parent.name}" for folder in (REPOSITORY / "plugins").glob("*/*/CMakeLists.txt")}
    keys = {name: text for name, text in built.items() if "/" not in name}
    built = {name: text for name, text in built.items() if name in tree}
    wanted = {**keys, **{name: built.get(name, written.get(name)) for name in sorted(tree)}}
    missing = sorted(name for name, text in wanted.items() if text is None)
    if missing:
        raise ValueError(f"configs/REFERENCE.md has no section of {', '.join(missing)}, and this build has no such plugin: build one that has "
                         "it, and run tests/readme/options.py there")
    return head, wanted, list(built)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", default=REPOSITORY / "build/release/bin/strata")
    head, wanted, _ = wanted_sections(parser.parse_args().strata)
    FILE.write_text(head + "\n" + "".join(f"\n## {text}\n" for text in wanted.values()))


if __name__ == "__main__":
    main()
