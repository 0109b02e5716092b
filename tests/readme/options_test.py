"""configs/REFERENCE.md is what the plugins say of themselves: a section for every folder plugins/KIND/NAME, those of the plugins that this build
has compared word for word."""
from options import FILE, sections, wanted_sections


def test_options_are_up_to_date(strata):
    head, wanted, built = wanted_sections(strata)
    assert built, f"{strata} knows no plugin of the tree"
    old_head, written = sections(FILE.read_text())
    stale = sorted(name for name in wanted.keys() | written.keys() if wanted.get(name) != written.get(name))
    assert not stale and head == old_head and list(written) == list(wanted), "run tests/readme/options.py, which writes configs/REFERENCE.md"
