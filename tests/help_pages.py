"""The pages that --help prints: every command of `strata`, with its positional arguments and options."""
import dataclasses
import os
import re

import loaded_programs
from place import program

COLUMN = 30  # where an option's text begins


@dataclasses.dataclass
class Option:
    name: str  # as in the page: config, --set, -o,--output
    required: bool
    text: str


@dataclasses.dataclass
class Page:
    command: str  # "config show"; "" for strata itself
    text: str

    def options(self):
        """Positional arguments, then options, in the page's order."""
        return [option for title in ("Positionals", "Options") for option in self._section(title)]

    def subcommands(self):
        return [option.name for option in self._section("Subcommands")]

    def _section(self, title):
        found = []
        for line in re.search(rf"^{title}:\n((?:  .*\n?)*)|\Z", self.text, re.M)[0].splitlines()[1:]:
            if line.startswith(" " * COLUMN):
                found[-1].text = f"{found[-1].text} {line.strip()}".strip()
                continue
            beside = line[COLUMN - 2:COLUMN] == "  "  # else the text is in the lines below
            head = line[:COLUMN] if beside else line
            found.append(Option(head.split()[0], " REQUIRED" in head, line[COLUMN:].strip() if beside else ""))
        return found


def pages(*words):
    """The page of this command and those of its subcommands, in the order of the page."""
    done = loaded_programs.run([program(), *words, "--help"], capture_output=True, text=True, env={**os.environ, "COLUMNS": "120"})
    assert done.returncode == 0, done.stderr
    page = Page(" ".join(words), done.stdout)
    yield page
    for name in page.subcommands():
        yield from pages(*words, name)
