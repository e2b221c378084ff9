"""What the table of differences says of the running torch is so, on each side of a difference."""

from __future__ import annotations

from typing import Any

import pytest

from dtensor_registry.torch_runtime.compat import TESTED
from tests.versions.differences import DIFFERENCES, PAGE, Difference, write


@pytest.mark.parametrize("difference", DIFFERENCES, ids=[d.name for d in DIFFERENCES])
def test_torch_does_it_as_the_table_says_for_this_version(
    difference: Difference, local_mesh: Any
) -> None:
    assert difference.before != difference.after
    assert difference.seen(local_mesh(2)) == difference.expected


def test_both_sides_of_each_difference_are_in_the_tested_range() -> None:
    for difference in DIFFERENCES:
        sides = {version >= difference.since for version in TESTED}
        assert sides == {False, True}, f"{difference.name}: its older side can go"


def test_the_page_has_the_table() -> None:
    page = PAGE.read_text()
    assert write(page) == page, "python -m tests.versions.differences"
