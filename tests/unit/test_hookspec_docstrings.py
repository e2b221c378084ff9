"""Each hook's docstring holds a complete plugin, which works when it is installed."""

from __future__ import annotations

import inspect
import textwrap
from typing import Any

import pytest

from dtensor_registry import hookspecs
from dtensor_registry.discovery import Discovery, discover
from dtensor_registry.hookspecs import PROJECT
from dtensor_registry.settings import read_settings

HOOKS = [name for name, value in vars(hookspecs).items() if hasattr(value, f"{PROJECT}_spec")]


def plugin_in(hook: str) -> str:
    """Cut the indented block out of a hook's docstring."""
    paragraphs = inspect.cleandoc(getattr(hookspecs, hook).__doc__).split("\n\n")
    block = [text for text in paragraphs if text.startswith("    ")]
    assert block, f"the docstring of {hook} has no plugin"
    return textwrap.dedent("\n\n".join(block))


def contribution_of(hook: str, discovery: Discovery) -> list[str]:
    if hook == "provide_fallback":
        return [fallback.strategy.name for fallback in discovery.fallbacks]
    return [contribution.op for contribution in discovery.contributions]


def test_the_hooks_are_these() -> None:
    assert HOOKS == ["provide_single_dim_strategy", "provide_fallback"]


@pytest.mark.parametrize(
    ("hook", "contributes"),
    [
        ("provide_single_dim_strategy", ["acme.topk_last.default"]),
        ("provide_fallback", ["gather-all"]),
    ],
)
def test_the_plugin_in_the_docstring_contributes_what_it_says(
    fake_distribution: Any, hook: str, contributes: list[str]
) -> None:
    source = plugin_in(hook)
    assert f"def {hook}():" in source
    fake_distribution("acme-rules", source)
    discovery = discover(read_settings(allowed=["acme-rules"]))
    assert contribution_of(hook, discovery) == contributes
