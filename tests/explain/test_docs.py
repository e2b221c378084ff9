"""docs/explain.md shows what the command really prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import dtensor_registry as dr
from dtensor_registry.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "explain.md").read_text("utf-8")


def _blocks(language: str) -> list[str]:
    """List the blocks of a language, without their fences."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [text for fence, text in blocks if fence == language]


def _steady(text: str) -> list[str]:
    """Leave out versions and line numbers, which move by themselves."""
    text = re.sub(r"\(torch [^)]*\)", "(torch)", text)
    return re.sub(r"\.py:\d+|\d+\.\d+\.\d+", "", text).splitlines()


@pytest.mark.usefixtures("repository_plugins")
def test_the_output_is_real(capsys: pytest.CaptureFixture[str]) -> None:
    program, *arguments = shlex.split(_blocks("console")[0].replace("\\\n", "")[2:])
    assert (program, main(arguments)) == ("dtensor-registry", 0)
    real = iter(_steady(capsys.readouterr().out))
    for line in _steady(_blocks("")[0]):
        assert line == "  ..." or line in real, line  # in this order


@pytest.mark.usefixtures("repository_plugins")
def test_the_python_is_real() -> None:
    code, _, _ = _blocks("python")[0].partition("installation.explain")
    names: dict[str, dr.Settings] = {}
    exec(code, names)
    told: object = names["told"]
    assert getattr(told, "chosen").outputs == (("S(0)", "S(1)"),)  # noqa: B009


def test_every_decider_is_in_the_table() -> None:
    from typing import get_args

    from dtensor_registry.explanation.values import Decider

    assert set(re.findall(r"^\| `([a-z ]+)` \|", PAGE, re.MULTILINE)) == {*get_args(Decider)} | {
        "decider"
    }
