"""Every case of the conformance kit that sdk/README.md names exists."""
import re

from place import REPOSITORY

KINDS = "|".join(["general", *(folder.name for folder in (REPOSITORY / "plugins").iterdir() if folder.is_dir())])


def test_cases_of_the_readme_exist(repository):
    rows = [line for line in (repository / "sdk/README.md").read_text().splitlines() if line.startswith("|")]   # elsewhere stand config keys
    named = set(re.findall(rf"`((?:{KINDS})\.[a-z_0-9]+)`", "\n".join(rows)))
    known = set()
    for source in (repository / "sdk/conformance").rglob("*.cpp"):
        if "planted" not in source.parts:
            known |= set(re.findall(rf'"((?:{KINDS})\.[a-z_0-9]+)"', source.read_text()))
    assert named, "sdk/README.md names no case"
    assert not named - known, "sdk/conformance has no such case"
