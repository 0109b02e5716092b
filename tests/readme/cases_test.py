#!/usr/bin/env python3
"""Every case of the conformance kit that sdk/README.md names exists: cases.py REPOSITORY"""
import pathlib
import re
import sys

repository = pathlib.Path(sys.argv[1])
KINDS = "general|device|communicator|partitioner|precision|scheduler|offload|optimizer|model"
named = set(re.findall(rf"`((?:{KINDS})\.[a-z_0-9]+)`", (repository / "sdk/README.md").read_text()))
known = set()
for source in (repository / "sdk/conformance").rglob("*.cpp"):
    if "planted" not in source.parts:
        known |= set(re.findall(rf'"((?:{KINDS})\.[a-z_0-9]+)"', source.read_text()))
unknown = sorted(named - known)
if unknown or not named:
    sys.exit(f"cases.py: sdk/README.md names {', '.join(unknown) or 'no case'}, and sdk/conformance has no such case")
print(f"sdk/README.md: {len(named)} cases of {len(known)} are named")
