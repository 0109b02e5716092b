"""Every defect of defects.py can still be planted: its old text is in its file, once. mutate.py plants them, which takes a build each."""
import collections

import pytest
from defects import DEFECTS
from place import REPOSITORY


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_can_be_planted(defect):
    assert defect.old != defect.new
    assert (REPOSITORY / defect.file).read_text().count(defect.old) == 1, f"change {defect.name} in tests/mutations/defects.py with {defect.file}"


def test_names_are_different():
    assert max(collections.Counter(defect.name for defect in DEFECTS).values()) == 1
