"""Every defect of defects.py can still be planted, and its cases are there: its old text is in its file, once. mutate.py plants them, which takes a
build each."""
import collections
import fnmatch
import re

import pytest
from defects import DEFECTS
from place import REPOSITORY

CASES = [name for path in (REPOSITORY / "tests").rglob("*_test.cpp") for name in re.findall(r'TEST_CASE\(\s*"(.*?)"', path.read_text())]


def misses(cases):
    """Filters that no case has; Catch takes a comma for the end of one, and a run of no case succeeds."""
    return [case for case in cases if not case.startswith("[") and ("," in case or not fnmatch.filter(CASES, case))]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_can_be_planted(defect):
    assert defect.old != defect.new
    assert (REPOSITORY / defect.file).read_text().count(defect.old) == 1, f"change {defect.name} in tests/mutations/defects.py with {defect.file}"


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_its_cases_are_there(defect):
    assert not misses(defect.cases)


def test_a_case_that_is_gone_is_seen():
    assert misses(("a case that nobody has*", "twenty updates, each*", "[.full]")) == ["a case that nobody has*", "twenty updates, each*"]


def test_names_are_different():
    assert max(collections.Counter(defect.name for defect in DEFECTS).values()) == 1
