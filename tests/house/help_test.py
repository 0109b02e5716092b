"""What the command line prints is frozen: every --help, as help.txt has it. `STRATA_WRITE_HELP=1 pytest tests/house` writes it anew."""
import os
import pathlib
import re

import loaded_programs
from place import program

FROZEN = pathlib.Path(__file__).with_name("help.txt")


def help_of(*words):
    done = loaded_programs.run([program(), *words, "--help"], capture_output=True, text=True, env={**os.environ, "COLUMNS": "120"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def pages(*words):
    """This command's page and those of its subcommands, in the order of the page."""
    text = help_of(*words)
    yield "$ strata " + " ".join([*words, "--help"]) + "\n" + text.rstrip() + "\n"
    listed = text.split("Subcommands:")[1].split("\n\n")[0] if "Subcommands:" in text else ""
    for name in re.findall(r"^  (\w+)\s", listed, re.MULTILINE):
        yield from pages(*words, name)


def test_every_help_page_is_as_frozen():
    printed = "\n".join(pages())
    if os.environ.get("STRATA_WRITE_HELP"):
        FROZEN.write_text(printed)
    assert printed.count("$ strata") > 20
    assert printed == FROZEN.read_text()
