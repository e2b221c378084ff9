"""How rules behave when they are asked, and whether what they read is in the cache key."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from dtensor_registry.placements import REPLICATE, ShardingPlaceholder
from dtensor_registry.rules.metadata import TensorMeta
from dtensor_registry.rules.strategy import Rule, SchemaInfo
from dtensor_registry_kit.judging.behaviour import (
    changed_mind,
    described,
    missing_from_key,
    query,
    repeated,
)
from dtensor_registry_kit.samples.sample import Sample

S = ShardingPlaceholder
X = torch.ones(4, 6)


def sharded(op: Any, args: Any, kwargs: Any) -> list[list[Any]]:
    return [[S(0), S(0)], [S(1), S(1)]]


def test_a_rule_sees_metadata_in_the_place_of_every_tensor() -> None:
    sample = Sample(([X, None], 3), {"out": X.t()})
    assert described(sample) == (
        ([TensorMeta((4, 6), (6, 1), torch.float32), None], 3),
        {"out": TensorMeta((6, 4), (1, 6), torch.float32)},
    )


def test_what_a_rule_raises_is_its_own_failure_with_file_and_line() -> None:
    def rule(op: Any, args: Any, kwargs: Any) -> Any:
        return kwargs["dim"]

    finding = query(rule, None, Sample((X,), {})).finding
    assert finding is not None
    assert (finding.kind, finding.sample) == ("raises", "f32[4,6]")
    line = rule.__code__.co_firstlineno + 1
    assert finding.evidence == f"KeyError: 'dim' at {__file__}:{line}"


@pytest.mark.parametrize("rows", [None, "S(0)", {1: 2}, (row for row in ())])
def test_an_answer_that_is_no_list_of_rows_is_malformed(rows: Any) -> None:
    finding = query(lambda op, args, kwargs: rows, None, Sample((X,), {})).finding
    assert finding is not None
    assert finding.kind == "malformed"
    assert finding.evidence.startswith(f"it returned {type(rows).__name__} ")


@pytest.mark.parametrize("argument", ["list", "kwargs"])
def test_a_rule_that_changes_its_arguments_is_impure(argument: str) -> None:
    def rule(op: Any, args: Any, kwargs: Any) -> list[Any]:
        if argument == "list":
            args[1].pop()
        else:
            kwargs.pop("dim")
        return []

    finding = query(rule, None, Sample((X, [1, 2]), {"dim": 0})).finding
    assert finding is not None
    assert finding.kind == "impure"


def changes(rule: Rule, *samples: Sample) -> list[str]:
    answers = [query(rule, None, sample) for sample in samples]
    return [finding.evidence for finding in changed_mind(rule, None, answers)]


def test_a_rule_that_counts_its_calls_changes_its_answer() -> None:
    calls: list[int] = []

    def rule(op: Any, args: Any, kwargs: Any) -> list[Any]:
        calls.append(1)
        return sharded(op, args, kwargs)[: len(calls)]

    assert changes(rule, Sample((X,), {})) == [
        "first ['S(0) <- S(0)'], then ['S(0) <- S(0)', 'S(1) <- S(1)']"
    ]


def test_a_rule_that_remembers_an_earlier_call_changes_its_answer() -> None:
    last: list[int] = []

    def rule(op: Any, args: Any, kwargs: Any) -> list[Any]:
        ranks = [*last, len(args[0].shape)]
        last[:] = [len(args[0].shape)]
        return [[S(0), S(0)]] * min(ranks)

    assert changes(rule, Sample((X,), {}), Sample((X[0],), {}))


@pytest.mark.parametrize(
    "reads",
    [
        lambda: random.random() < 0.5,
        lambda: bool(torch.rand(()) < 0.5),
        torch.is_grad_enabled,
    ],
)
def test_a_rule_that_reads_the_state_of_the_process_changes_its_answer(reads: Any) -> None:
    random.seed(0)
    torch.manual_seed(3)
    asked = [Sample((torch.ones(n, 2),), {}) for n in range(2, 12)]
    assert changes(lambda op, args, kwargs: sharded(op, args, kwargs)[reads() :], *asked)


def test_asking_again_leaves_random_state_and_grad_mode_as_they_were() -> None:
    before = (random.getstate(), torch.random.get_rng_state(), torch.is_grad_enabled())
    assert changes(sharded, Sample((X,), {})) == []
    after = (random.getstate(), torch.random.get_rng_state(), torch.is_grad_enabled())
    assert (before[0], before[2]) == (after[0], after[2])
    assert torch.equal(before[1], after[1])


def test_a_row_that_stands_twice_or_is_implied_is_told() -> None:
    rows = [[S(0), S(0)], [S(0), S(0)], [REPLICATE, REPLICATE], [None, REPLICATE]]
    found = list(repeated(query(lambda op, args, kwargs: rows, None, Sample((X,), {}))))
    assert [(finding.about, finding.evidence) for finding in found] == [
        ("S(0) <- S(0)", "the row stands there twice"),
        ("R <- R", "the all-Replicate row is implied for every op"),
        ("- <- R", "the all-Replicate row is implied for every op"),
    ]


def by_flag(op: Any, args: Any, kwargs: Any) -> list[Any]:
    return sharded(op, args, kwargs)[1 if args[1] else 0 :]


def by_keyword(op: Any, args: Any, kwargs: Any) -> list[Any]:
    return sharded(op, args, kwargs)[1 if kwargs.get("mode") else 0 :]


@pytest.mark.parametrize(
    ("rule", "sample", "info", "place"),
    [
        (by_flag, Sample((X, False), {}), SchemaInfo(), "argument 1"),
        (by_flag, Sample((X, False), {}), SchemaInfo(2), "argument 1"),
        (by_flag, Sample((X, 0), {}), SchemaInfo(), "argument 1"),
        (by_flag, Sample((X, 0.0), {}), SchemaInfo(), "argument 1"),
        (by_keyword, Sample((X,), {"mode": False}), SchemaInfo(1), "argument 'mode'"),
        (by_keyword, Sample((X,), {"mode": 0}), SchemaInfo(1, ("dim",)), "argument 'mode'"),
    ],
)
def test_an_argument_that_changes_the_rows_must_be_in_the_key(
    rule: Rule, sample: Sample, info: SchemaInfo, place: str
) -> None:
    found = list(missing_from_key(rule, None, [query(rule, None, sample)], info))
    assert {(finding.kind, finding.about) for finding in found} == {("cache key", place)}
    assert "torch would go on with those of the first call" in found[0].evidence


@pytest.mark.parametrize(
    ("rule", "sample", "info"),
    [
        (by_flag, Sample((X, False), {}), None),
        (by_flag, Sample((X, False), {}), SchemaInfo(1)),
        (by_keyword, Sample((X,), {"mode": False}), SchemaInfo(1, ("mode",))),
        (sharded, Sample((X, False, 1.5), {"mode": True}), SchemaInfo()),
    ],
)
def test_an_argument_in_the_key_or_without_influence_is_no_finding(
    rule: Rule, sample: Sample, info: SchemaInfo | None
) -> None:
    assert list(missing_from_key(rule, None, [query(rule, None, sample)], info)) == []


def test_values_of_other_samples_are_tried_too() -> None:
    def rule(op: Any, args: Any, kwargs: Any) -> list[Any]:
        return sharded(op, args, kwargs)[args[1] == "mean" :]

    samples = [Sample((X, "sum"), {}), Sample((X, "mean"), {})]
    answers = [query(rule, None, sample) for sample in samples]
    found = list(missing_from_key(rule, None, answers, SchemaInfo()))
    assert [finding.about for finding in found] == ["argument 1", "argument 1"]


def test_a_keyword_that_only_another_sample_gives_is_tried_too() -> None:
    samples = [Sample((X,), {}), Sample((X,), {"mode": True})]
    answers = [query(by_keyword, None, sample) for sample in samples]
    assert list(missing_from_key(by_keyword, None, answers, SchemaInfo()))


@pytest.mark.parametrize(
    ("info", "found"),
    [(SchemaInfo(1), ["argument 'out'"]), (SchemaInfo(1, ()), []), (SchemaInfo(1, ("out",)), [])],
)
def test_a_keyword_tensor_needs_keywords_in_the_key(info: SchemaInfo, found: list[str]) -> None:
    def rule(op: Any, args: Any, kwargs: Any) -> list[Any]:
        return [[S(0), S(0), S(0)]]

    answers = [query(rule, None, Sample((X,), {"out": X})) for _ in range(2)]
    assert [f.about for f in missing_from_key(rule, None, answers, info)] == found
