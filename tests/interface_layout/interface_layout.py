#!/usr/bin/env python3
"""Holds the headers that core and plugins share to the ABI number that says so.

A plugin loads when the ABI number in its manifest is the host's. So every change of <strata/...>, but for comments and white space,
needs another number: vectors of those structs, their fields' order and the order of virtual functions cross between libraries that
were compiled apart, and inline functions are compiled into both. core/interface/abi.txt holds the number and, for every header, a
digest of its tokens.

  interface_layout.py          says which headers have changed under the number; exit status 1 when some have
  interface_layout.py --raise  raises the minor in fingerprint.hpp when some have, and writes abi.txt
"""
import argparse
import hashlib
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEADERS = os.path.join("core", "interface", "include", "strata")
RECORD = os.path.join("core", "interface", "abi.txt")
COMMAND = "python3 tests/interface_layout/interface_layout.py --raise"
NUMBER = re.compile(r"#define STRATA_ABI_(MAJOR|MINOR) (\d+)\n")
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|\\\n|\s+|R"\((?:.*?)\)"|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|\w+|.', re.S)


def digest(text):
    tokens = [token for token in TOKEN.findall(NUMBER.sub("", text)) if not token.startswith(("//", "/*")) and token != "\\\n" and token.strip()]
    return hashlib.sha256("\n".join(tokens).encode()).hexdigest()[:16]


class Interface:
    """The headers below one folder, and what is recorded of them."""

    def __init__(self, root):
        self.headers, self.record = os.path.join(root, HEADERS), os.path.join(root, RECORD)

    def read(self, name):
        with open(os.path.join(self.headers, name)) as file:
            return file.read()

    def number(self):
        parts = dict(NUMBER.findall(self.read("fingerprint.hpp")))
        return int(parts["MAJOR"]), int(parts["MINOR"])

    def digests(self):
        return {name: digest(self.read(name)) for name in sorted(os.listdir(self.headers))}

    def recorded(self):
        with open(self.record) as file:
            lines = [line.split() for line in file if not line.startswith("#")]
        major, minor = lines[0][1].split(".")
        return (int(major), int(minor)), dict(lines[1:])

    def problem(self):
        """What a developer has to be told, or nothing."""
        number, (recorded_number, recorded) = self.number(), self.recorded()
        now = self.digests()
        changed = sorted(name for name in {*now, *recorded} if now.get(name) != recorded.get(name))
        if changed and number == recorded_number:
            return (f"{', '.join(changed)}: changed under the ABI number {text(number)}. Plugins of before and after would load into each "
                    f"other's engine and read its objects wrongly: run `{COMMAND}`, which raises the number, and commit what it writes.")
        if changed or number != recorded_number:
            return f"{RECORD} is of ABI {text(recorded_number)}, and the headers are of {text(number)}: run `{COMMAND}` and commit what it writes."
        return None

    def raise_number(self):
        if self.problem() is None:
            return print(f"ABI {text(self.number())}: the headers are as recorded")
        if self.number() == self.recorded()[0]:
            minor = self.number()[1]
            path = os.path.join(self.headers, "fingerprint.hpp")
            content = self.read("fingerprint.hpp").replace(f"STRATA_ABI_MINOR {minor}\n", f"STRATA_ABI_MINOR {minor + 1}\n")
            with open(path, "w") as file:
                file.write(content)
        with open(self.record, "w") as file:
            file.write(f"# Written by {COMMAND}: the ABI number, and each header's digest under it.\nabi {text(self.number())}\n")
            file.writelines(f"{name} {value}\n" for name, value in self.digests().items())
        print(f"ABI {text(self.number())} is recorded")


def text(number):
    return f"{number[0]}.{number[1]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--raise", dest="raises", action="store_true", help="raise the number where headers have changed, and record them")
    options = parser.parse_args()
    interface = Interface(ROOT)
    if options.raises:
        interface.raise_number()
        return 0
    problem = interface.problem()
    print(problem or f"ABI {text(interface.number())}: the headers are as recorded")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
