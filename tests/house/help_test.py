"""Scripts depend on the names of commands and options: help.txt has them, and which are required. `STRATA_WRITE_HELP=1 pytest tests/house` writes it
anew. The texts of a page are free, within its width."""
import os
import pathlib

import pytest
from help_pages import Page, pages

FROZEN = pathlib.Path(__file__).with_name("help.txt")
WIDTH = 140  # as in core/tools/command/help_format.cpp


@pytest.fixture(scope="module")
def printed():
    return list(pages())


def names(page):
    lines = [f"  {option.name}{' REQUIRED' if option.required else ''}" for option in page.options()]
    return "\n".join([f"$ strata {page.command} --help".replace("  ", " "), *lines]) + "\n"


def test_names_are_as_frozen(printed):
    text = "\n".join(names(page) for page in printed)
    if os.environ.get("STRATA_WRITE_HELP"):
        FROZEN.write_text(text)
    assert len(printed) > 20
    assert text == FROZEN.read_text()


def test_every_command_and_option_has_a_text(printed):
    assert not [f"strata {page.command}: {option.name}" for page in printed for option in page.options() if not option.text]
    assert not [f"strata {page.command}" for page in printed if page.text.startswith("Usage:")]


def test_no_line_is_too_wide(printed):
    assert not [f"strata {page.command}: {line}" for page in printed for line in page.text.splitlines() if len(line) > WIDTH]


PAGE = """Make a thing
Usage: strata make [OPTIONS] what

Positionals:
  what TEXT REQUIRED          What to make

Options:
  -h,--help                   Print this help message and exit
  --wide INT:INT in [1 - 4096] REQUIRED
                              A text of
                              two lines
  --bare
  --long-without-a-text INT:INT in [1 - 4096]

Subcommands:
  again                       Make it again

  --no-option of an example
"""


def test_a_page_is_read():
    page = Page("make", PAGE)
    assert [(option.name, option.required, option.text) for option in page.options()] == [
        ("what", True, "What to make"), ("-h,--help", False, "Print this help message and exit"), ("--wide", True, "A text of two lines"),
        ("--bare", False, ""), ("--long-without-a-text", False, "")]
    assert page.subcommands() == ["again"]
