"""A made-up plugin whose rows are known, and the program on it alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from dtensor_registry.cli import main

SOURCE = """
    from dtensor_registry import SingleDimStrategy, einsum, hookimpl

    @hookimpl
    def provide_single_dim_strategy():
        return [SingleDimStrategy("aten.mm.default", einsum("mk,kn->mn", linearity=False))]
"""


@dataclass(frozen=True)
class Outcome:
    """What the program wrote, and its exit code."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(
    fake_distribution: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Run `explain` where acme-rules 2.3.0, with its module `acme_rules`, is the only plugin."""
    module = fake_distribution("acme-rules", SOURCE, version="2.3.0")
    monkeypatch.setenv("DTENSOR_REGISTRY_ALLOWED", '["acme-rules"]')

    def call(*arguments: str) -> Outcome:
        code = main(["explain", *arguments])
        written = capsys.readouterr()
        return Outcome(code, written.out.replace(module, "acme_rules"), written.err)

    return call
