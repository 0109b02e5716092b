#!/usr/bin/env python3
"""Is configs/REFERENCE.md what `strata config reference` prints? With --write it becomes that.

options.py [--strata PROGRAM] [--repository DIR] [--write]

A build without CUDA has not all plugins of the tree: the sections of those that it has are compared, or written, and every folder
plugins/KIND/NAME has a section. The engine's keys, in sections without a slash, are compared in every build.
"""
import argparse
import os
import pathlib
import subprocess
import sys


def sections(text):
    """What stands before the first section, and each section by its plugin's name."""
    first, *parts = text.split("\n## ")
    return first.rstrip("\n"), {part.split("\n", 1)[0]: part.rstrip("\n") for part in parts}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--repository", type=pathlib.Path, default=here)
    parser.add_argument("--strata", default=here / "build/release/bin/strata")
    parser.add_argument("--write", action="store_true", help="bring the file up to date")
    arguments = parser.parse_args()
    file = arguments.repository / "configs/REFERENCE.md"
    environment = {name: value for name, value in os.environ.items() if name != "STRATA_PLUGIN_PATH"}
    printed = subprocess.run([arguments.strata, "config", "reference"], env=environment, check=True,
                             stdout=subprocess.PIPE, text=True).stdout
    head, built = sections(printed)
    old_head, written = sections(file.read_text()) if file.exists() else ("", {})
    tree = {f"{folder.parent.parent.name}/{folder.parent.name}" for folder in (arguments.repository / "plugins").glob("*/*/CMakeLists.txt")}
    keys = {name: text for name, text in built.items() if "/" not in name}
    built = {name: text for name, text in built.items() if name in tree}
    if not built:
        sys.exit(f"options.py: {arguments.strata} knows no plugin of {arguments.repository / 'plugins'}")
    wanted = {**keys, **{name: built.get(name, written.get(name)) for name in sorted(tree)}}
    missing = sorted(name for name, text in wanted.items() if text is None)
    if missing:
        sys.exit(f"options.py: configs/REFERENCE.md has no section of {', '.join(missing)}, and this build has no such plugin: build one that has "
                 "it, and run tests/readme/options.py --write there")
    if arguments.write:
        file.write_text(head + "\n" + "".join(f"\n## {text}\n" for text in wanted.values()))
        return
    stale = sorted(name for name in wanted.keys() | written.keys() if wanted.get(name) != written.get(name))
    if list(written) != list(wanted) or head != old_head:
        stale.append("its first line or its order")
    if stale:
        sys.exit(f"options.py: configs/REFERENCE.md is not what the engine and its plugins say ({', '.join(stale)}); run tests/readme/options.py --write")
    print(f"configs/REFERENCE.md: {len(keys)} sections of keys and {len(built)} of {len(tree)} plugins compared")


if __name__ == "__main__":
    main()
