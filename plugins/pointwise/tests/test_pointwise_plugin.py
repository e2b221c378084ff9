"""The plugin's tables: complete, alphabetical, said in the README, and free of torch."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

import dtensor_registry_pointwise
from dtensor_registry import SingleDimStrategy
from dtensor_registry_kit import overloads
from dtensor_registry_pointwise.families import Family
from dtensor_registry_pointwise.rules import FAMILIES, NOT_CLAIMED, UNTAGGED

README = Path(__file__).parents[1] / "README.md"
CLAIMED = [name for family in FAMILIES.values() for name in family.strategy.names]

every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


def tagged_overloads() -> set[str]:
    ops = chain(overloads("aten"), overloads("prims"))
    return {str(op) for op in ops if torch.Tag.pointwise in op.tags}


def test_every_overload_that_torch_tags_pointwise_is_claimed_or_left_out_for_a_reason() -> None:
    assert tagged_overloads() - set(CLAIMED) <= set(NOT_CLAIMED)


@pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="the tables were made from torch 2.13"
)
def test_what_is_claimed_is_tagged_by_torch_or_listed_as_untagged() -> None:
    assert set(CLAIMED) - tagged_overloads() == set(UNTAGGED)


def test_what_is_left_out_is_not_claimed() -> None:
    assert not set(CLAIMED) & set(NOT_CLAIMED)
    assert all(NOT_CLAIMED.values())


def test_no_overload_is_claimed_twice() -> None:
    assert len(CLAIMED) == len(set(CLAIMED))


@every_family
def test_a_table_is_alphabetical(family: Family) -> None:
    assert list(family.strategy.names) == sorted(family.strategy.names)


def test_the_families_are_alphabetical() -> None:
    assert list(FAMILIES) == sorted(FAMILIES)


def test_no_random_op_is_claimed() -> None:
    random = {name for name in CLAIMED if torch.Tag.nondeterministic_seeded in _overload(name).tags}

    assert random == set()


def test_the_hook_gives_one_strategy_per_family() -> None:
    strategies = list(dtensor_registry_pointwise.provide_single_dim_strategy())

    assert strategies == [family.strategy for family in FAMILIES.values()]
    assert all(isinstance(strategy, SingleDimStrategy) for strategy in strategies)


@every_family
def test_a_strategy_knows_the_table_that_it_was_written_in(family: Family) -> None:
    file, line = family.strategy.source.file, family.strategy.source.line
    call, _, first_name = Path(file).read_text().splitlines()[line - 1 : line + 2]

    assert call.strip() == "claim("
    assert first_name.strip() == f'"{family.strategy.names[0]}",'


@every_family
def test_numbers_in_tensor_places_are_in_the_cache_key_and_alpha_is_not(family: Family) -> None:
    keyword_only = {
        argument.name
        for name in family.strategy.names
        for argument in _overload(name)._schema.arguments
        if argument.kwarg_only and "Tensor" not in str(argument.type)
    }
    info = family.strategy.schema_info

    assert info.static_argnum == 0
    assert keyword_only - set(info.static_kwargkey) <= {"alpha", "value"}


def test_the_plugin_is_imported_and_asked_without_torch() -> None:
    code = (
        "import sys, dtensor_registry_pointwise as plugin;"
        "assert len(list(plugin.provide_single_dim_strategy())) > 20;"
        "sys.exit('torch was imported' if 'torch' in sys.modules else 0)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )

    assert done.stderr == ""
    assert done.returncode == 0


def test_the_readme_lists_every_family_with_its_rule_and_its_reason() -> None:
    text = README.read_text()

    for name, family in FAMILIES.items():
        line = f"| {name} | {len(family.strategy.names)} | `{family.identity}` |"
        assert line in text
        assert f"`{family.strategy.rule}`" in text


def test_the_readme_counts_the_overloads() -> None:
    text = " ".join(README.read_text().split())

    assert f"for {len(UNTAGGED)} that it does not: {len(CLAIMED)} functional, in-place" in text


def test_the_readme_lists_what_is_left_out_and_why() -> None:
    text = README.read_text()

    for name, reason in NOT_CLAIMED.items():
        assert f"| `{name}` | {reason} |" in text


def _overload(name: str) -> Any:
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)
