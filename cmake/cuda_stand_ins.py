#!/usr/bin/env python3
"""cuda_stand_ins.py WHEEL TARGET: lets `import torch` work on a machine without NVIDIA's libraries.

Python's torch of the wheel is linked against cuBLAS, cuDNN, NCCL and nine more (2 GB) although a machine without a GPU never
calls them. For each that is missing beside WHEEL/torch a tiny library of the same name is written to TARGET; every function in
it traps. Only the environment of the interop tests loads them (TARGET/strata_stand_ins.py); Strata itself never does.
"""
import pathlib
import re
import subprocess
import sys

LOADER = '''import ctypes
import pathlib

for library in sorted(pathlib.Path(__file__).parent.glob("lib*.so.*")):
    ctypes.CDLL(str(library))
'''


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def is_nvidia(name):
    return re.match(r"lib(cu|nv|nccl)", name) and not name.startswith("libcuda.")  # libcuda is the driver's: never pretended


def main(wheel, target):
    # libcaffe2_nvrtc is loaded with the driver only.
    libraries = [path for path in sorted((wheel / "torch/lib").glob("*.so")) if path.name != "libcaffe2_nvrtc.so"]
    present = {path.name for path in [*libraries, *wheel.glob("nvidia/*/lib/*.so.*")]}
    needed, version_owner = set(), {}  # version_owner: symbol version -> the library that defines it
    for library in libraries:
        owner = None
        for line in output("objdump", "-p", library).splitlines():
            if found := re.match(r"\s+NEEDED\s+(\S+)", line):
                needed.add(found[1])
            elif found := re.match(r"\s+required from (\S+):", line):
                owner = found[1]
            elif found := re.match(r"\s+0x\w+ 0x\w+ \d+ (\S+)", line):
                version_owner[found[1]] = owner
    missing = {name for name in needed - present if is_nvidia(name)}

    # What is asked of the missing libraries. A symbol without a version may come from any of them: the first one gets it.
    asked = {name: set() for name in sorted(missing)}
    defined = set()
    for path in [*libraries, *wheel.glob("nvidia/*/lib/*.so.*")]:
        defined.update(re.findall(r"^\w+ \w (\w+)", output("nm", "-D", "--defined-only", path), re.M))
    for library in libraries:
        for symbol, version in re.findall(r"^\s+[Uw] ([a-z]\w*)(?:@(\S+))?$", output("nm", "-D", "--undefined-only", library), re.M):
            owner = version_owner.get(version, next(iter(asked), None)) if version else next(iter(asked), None)
            if owner in missing and symbol not in defined:
                asked[owner].add((symbol, version))

    target.mkdir(parents=True, exist_ok=True)
    for name, symbols in asked.items():
        lines = [f".globl {symbol}\n.type {symbol},@function\n{symbol}: ud2" for symbol, _ in sorted(symbols)]
        (target / "stand_in.s").write_text("\n".join(lines) + "\n")
        script = ""
        for version in sorted({version for _, version in symbols if version} | {v for v, o in version_owner.items() if o == name}):
            script += version + " { global: " + "".join(f"{s}; " for s, v in sorted(symbols) if v == version) + "};\n"
        (target / "stand_in.map").write_text(script)
        output("gcc", "-shared", "-nostdlib", f"-Wl,-soname,{name}", *([f"-Wl,--version-script={target}/stand_in.map"] if script else []),
               "-o", target / name, target / "stand_in.s")
    (target / "strata_stand_ins.py").write_text(LOADER)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
