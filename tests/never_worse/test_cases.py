"""The table of cases names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
LINES = [
    line.split(" | ")
    for line in (FOLDER / "README.md").read_text("utf-8").splitlines()
    if re.match(r"\| [IJ]\d+ ", line)
]


def test_each_case_has_a_line() -> None:
    cases = [*(f"I{number}" for number in range(1, 15)), *(f"J{number}" for number in range(1, 10))]
    assert [line[0].strip("| ") for line in LINES] == cases


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[0].strip("| "))
def test_the_tests_of_a_case_exist(line: list[str]) -> None:
    for told in line[2].strip(" |").split("; "):
        file, _, names = told.partition(": ")
        defined = (FOLDER / file).read_text("utf-8")
        for name in names.split(", "):
            assert f"def {name}(" in defined, (file, name)
