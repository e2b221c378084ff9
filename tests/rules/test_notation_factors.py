"""Dims made of factors: ops that split and merge heads, from the rule to the ranks.

`S(2)/8` is a dim that holds 8 groups; ranks may share it where their number divides 8.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import Shard, distribute_tensor

import dtensor_registry as dr
from dtensor_registry import ShardingPlaceholder, case, frozen, like, notation, row, rows
from dtensor_registry.discovery import Origin
from dtensor_registry.lock import Lock, LockedOp, parse_lock, write_lock
from dtensor_registry.rules.signature import bind
from dtensor_registry.rules.strategy import SourceLine
from dtensor_registry.rules.well_formed import show_row
from dtensor_registry.torch_runtime.conversion import from_torch
from dtensor_registry.torch_runtime.installed_rule import InstalledRule
from dtensor_registry.torch_runtime.representative import typical_rows
from dtensor_registry.torch_runtime.schema import facts
from dtensor_registry_kit import check, check_installed, check_row, derive, draw, simulated_mesh

SPLIT = notation("b s (h d) -> b h s d", sizes={"d": "head_dim"})
MERGE = notation("b h s d -> b s (h d)")
SCALE = notation("b s (h d), h -> b s (h d)")


@torch.library.custom_op("factors::split", mutates_args=())
def split(x: Tensor, head_dim: int) -> Tensor:
    """Turn (B, S, H * D) into (B, H, S, D)."""
    heads = x.reshape(*x.shape[:2], -1, head_dim)
    return heads.transpose(1, 2).clone(memory_format=torch.contiguous_format)


@torch.library.custom_op("factors::merge", mutates_args=())
def merge(x: Tensor) -> Tensor:
    """Turn (B, H, S, D) into (B, S, H * D)."""
    return x.transpose(1, 2).flatten(2).clone()


@torch.library.custom_op("factors::scale", mutates_args=())
def scale(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply each of H heads in (B, S, H * D) by its weight (H)."""
    heads = x.reshape(*x.shape[:2], len(weight), -1)
    return (heads * weight[:, None]).flatten(2)


@split.register_fake
def _(x: Tensor, head_dim: int) -> Tensor:
    batch, sequence, width = x.shape
    return x.new_empty(batch, width // head_dim, sequence, head_dim)


@merge.register_fake
def _(x: Tensor) -> Tensor:
    batch, heads, sequence, head_dim = x.shape
    return x.new_empty(batch, sequence, heads * head_dim)


@scale.register_fake
def _(x: Tensor, weight: Tensor) -> Tensor:
    return torch.empty_like(x)


split.register_autograd(lambda ctx, gradient: (merge(gradient), None))
merge.register_autograd(
    lambda ctx, gradient: split(gradient, ctx.head_dim),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "head_dim", inputs[0].shape[3]),
)

OPS = torch.ops.factors
ORIGIN = Origin("acme", "acme", "1.0", SourceLine("acme.py", 1))
HEADS = (8, 6, 4, 3)


def calls(op: Any) -> list[Any]:
    return [(_call(op, heads), {}) for heads in HEADS]


def _call(op: Any, heads: int) -> tuple[Any, ...]:
    if op is OPS.split.default:
        return draw((4, 3, heads * 5), torch.float64, 0), 5
    if op is OPS.merge.default:
        return (draw((4, heads, 3, 5), torch.float64, 0),)
    return draw((4, 3, heads * 5), torch.float64, 0), draw((heads,), torch.float64, 1)


RULES = [(OPS.split.default, SPLIT), (OPS.merge.default, MERGE), (OPS.scale.default, SCALE)]


@pytest.fixture
def in_force() -> Iterator[None]:
    with ExitStack() as stack:
        for op, rule in RULES:
            stack.enter_context(dr.register_single_dim_strategy(op)(rule))
        yield


@pytest.mark.parametrize(
    ("op", "shown"),
    [
        (OPS.split.default, "S(1) <- S(2)/g"),
        (OPS.merge.default, "S(2)/g <- S(1)"),
        (OPS.scale.default, "S(2)/g <- S(2)/g, S(0)"),
    ],
)
def test_the_rule_is_sound_for_any_number_of_heads_and_no_row_could_do_without_groups(
    op: Any, shown: str
) -> None:
    rule = bound(op)
    report = check(op, calls(op), rule)
    assert report.errors == (), str(report)
    assert not any(f.kind == "missing" and "S(" in f.about for f in report.findings), str(report)
    assert shown in report.sound
    args = _call(op, 6)
    grouped = [entries for entries in rule(op, args, {}) if "/" in show_row(entries, 1)]
    for entries in grouped:
        verdict = check_row(op, args, {}, entries, 4)
        told = "holds 6 groups, which 4 ranks cannot share evenly"
        assert (verdict.outcome, told in verdict.evidence) == ("not applicable", True)
        assert check_row(op, args, {}, entries, 3).outcome == "sound"
        assert check_row(op, args, {}, list(map(_loose, entries)), 4).is_wrong
    assert len(grouped) == 1


@pytest.mark.parametrize("op", [op for op, _ in RULES], ids=str)
@pytest.mark.usefixtures("in_force")
def test_it_runs_right_on_simulated_meshes_forward_and_backward(op: Any) -> None:
    report = check_installed(op, calls(op), rule=bound(op), draws=6)
    assert report.errors == (), str(report)
    for ranks in ("2 ranks", "4 ranks", "2x2 ranks"):
        assert any(start.endswith(f"on {ranks}") for start in report.sound)


@pytest.mark.parametrize(
    ("heads", "mesh", "placements"),
    [(8, (2, 2), "S(1), S(1)"), (6, (2,), "S(1)"), (3, (2,), "R"), (6, (4,), "R")],
)
@pytest.mark.usefixtures("in_force")
def test_what_comes_cut_by_heads_stays_where_ranks_share_them_evenly(
    heads: int, mesh: tuple[int, ...], placements: str
) -> None:
    with simulated_mesh(*mesh) as ranks:
        x = distribute_tensor(
            draw((4, 3, heads * 5), torch.float32, 0), ranks, [Shard(2)] * len(mesh)
        )
        out = split(x, 5)
    shown = ", ".join(str(from_torch(placement)) for placement in out.placements)
    if placements != "R":
        assert shown == placements
    else:
        assert "S(1)" not in shown


@pytest.mark.usefixtures("in_force")
def test_explain_shows_groups_and_says_where_they_cannot_be_shared() -> None:
    told = dr.explain(
        "factors.merge.default",
        "f32[4,6,3,5]@S(1),S(1)",
        mesh="2x2",
        why_not="S(1),S(1) -> S(2),S(2)",
    )
    assert "S(2)/6 <- S(1)" in told.rows
    assert "output 0: dim 2 holds 6 groups, which 4 ranks cannot share evenly" in str(told)


def test_torchs_own_expansion_is_not_given_a_row_that_it_could_not_keep() -> None:
    rule = InstalledRule(bound(OPS.merge.default), ORIGIN)
    op, args = OPS.merge.default, _call(OPS.merge.default, 6)
    assert len(rule.rows(op, args, {})) == 3
    given = rule(op, args, {})
    assert [[entry.dim for entry in entries] for entries in given] == [[0, 0], [1, 2]]


def test_a_lock_file_holds_groups() -> None:
    shown = typical_rows(OPS.merge.default, InstalledRule(bound(OPS.merge.default), ORIGIN))
    assert shown is not None
    assert any("/" in line for line in shown)
    lock = Lock({}, (LockedOp("factors.merge.default", "acme", "acme 1", False, "r", shown),))
    assert parse_lock(write_lock(lock).encode(), "a lock") == lock


def test_rows_by_name_say_groups_as_they_are_printed() -> None:
    named = row(out="S(2)/8", x="S(1)")
    assert str(named) == 'row(out="S(2)/8", x="S(1)")'
    assert named != row(out="S(2)", x="S(1)")
    rule = rows(frozen(case([named], x=4)), row(out="S(0)", x="S(0)"))
    op, args = OPS.merge.default, _call(OPS.merge.default, 8)
    given = bind(rule, facts(op).signature, nobody)(op, args, {})
    assert [show_row(entries, 1) for entries in given] == ["S(2)/8 <- S(1)", "S(0) <- S(0)"]


def test_the_rule_of_another_op_brings_its_groups_along() -> None:
    def rule_of(name: str) -> Any:
        return bound(OPS.merge.default), facts(OPS.merge.default).signature

    for rule in (like("factors.merge.default"), like("factors.merge.default", x="x")):
        op, args = OPS.merge.default, _call(OPS.merge.default, 8)
        given = bind(rule, facts(op).signature, rule_of)(op, args, {})
        assert "S(2)/8 <- S(1)" in [show_row(entries, 1) for entries in given]


@pytest.mark.usefixtures("in_force")
def test_no_row_that_depends_on_groups_is_derived_without_them() -> None:
    samples: list[Any] = [(_call(OPS.merge.default, heads), {}) for heads in (6, 12)]
    derived = derive(OPS.merge.default, samples, lambda x: merge(x))
    assert 'row(out="S(0)", x="S(0)")' in str(derived.rule)
    assert 'row(out="S(2)", x="S(1)")' not in str(derived.rule)


def bound(op: Any) -> Any:
    """Bind the rule of an op to it, as an installation does."""
    (rule,) = (rule for each, rule in RULES if each is op)
    return bind(rule, facts(op).signature, nobody)


def nobody(name: str) -> Any:
    raise AssertionError(name)


def _loose(entry: Any) -> Any:
    return ShardingPlaceholder(entry.dim) if isinstance(entry, ShardingPlaceholder) else entry
