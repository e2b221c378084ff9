"""Ops that torch itself has only a decomposition for, and a plugin a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch.nn import functional

import dtensor_registry as dr
from dtensor_registry import SchemaInfo, errors
from tests.never_worse.comparison import Comparison, Program


@pytest.fixture
def no_rows() -> Iterator[Callable[[str], None]]:
    """Give an op a rule of this process that has no row but the one that nobody writes."""
    with ExitStack() as stack:

        def register(op: str) -> None:
            info = SchemaInfo(static_kwargkey=("out",))  # as a rule that reads no number has it
            undo = dr.register_single_dim_strategy(op, schema_info=info)(lambda *_: [])
            stack.callback(undo.undo)

        yield register


def test_a_call_that_no_row_fits_runs_by_torchs_decomposition_as_on_bare_torch(
    compare: Callable[..., Comparison], no_rows: Callable[[str], None]
) -> None:
    no_rows("aten.hardswish_.default")
    program = {"hardswish_": torch.ops.aten.hardswish_.default}
    found = compare(2).assert_none_worse(program, (torch.randn(4, 4), "S(0)"))
    assert not found["hardswish_"].error


def test_what_a_decomposition_does_with_a_number_is_not_used_for_another(
    compare: Callable[..., Comparison], no_rows: Callable[[str], None]
) -> None:
    # With beta = 0 the decomposition does not read the bias, wherever it is.
    no_rows("aten.addr.out")

    def program(bias: Any, x: Any, y: Any, out: Any) -> Any:
        first = torch.addr(bias, x, y, beta=0.0, out=torch.empty_like(out)).clone()
        return first, torch.addr(bias, x, y, beta=2.0, out=torch.empty_like(out))

    shapes = ((4, 6), (4,), (6,), (4, 6))
    placed = zip(map(torch.rand, shapes), ("R", "P(sum)", "R", "P(sum)"), strict=True)
    found = compare(2).assert_none_worse({"beta": program}, *placed)
    assert not found["beta"].error


def test_explain_says_that_the_rule_has_no_way_and_the_decomposition_decides(
    repository_plugins: None, no_rows: Callable[[str], None]
) -> None:
    no_rows("aten.hardswish_.default")
    with dr.install():
        told = dr.explain("aten.hardswish_.default", "f32[4,4]@S(0)", mesh="2")
    assert (told.decider, told.error) == ("decomposition", None)
    assert told.chosen is not None
    assert told.chosen.inputs == (("S(0)",),)
    decides = [provider.rule for provider in told.providers if provider.decides]
    assert decides == ["the op's decomposition"]
    assert any("local has no way to run it: " in note for note in told.notes)


def test_an_error_says_what_stops_the_rule_and_what_stops_the_decomposition(
    compare: Callable[..., Comparison],
) -> None:
    x = compare(2).place(torch.rand(4, 4), "P(sum)")
    with dr.install(), pytest.raises(RuntimeError, match="no row of the rule keeps it") as raised:
        torch.ops.aten.hardswish_.default(x)
    assert isinstance(raised.value.__cause__, errors.InPlacePlacementError)
    said = str(raised.value.__cause__)
    assert "Nor can torch run it by the op's decomposition: " in said
    assert "no choice that leaves 'self' where it is, (Partial(sum),)" in said


@pytest.mark.parametrize("op", ["addmv_", "addr_", "addbmm_", "baddbmm_", "addmm_"])
def test_a_product_is_added_in_place_to_a_pending_average(
    compare: Callable[..., Comparison], op: str
) -> None:
    shapes = {
        "addmv_": ((4,), (4, 6), (6,)),
        "addr_": ((4, 6), (4,), (6,)),
        "addbmm_": ((4, 6), (2, 4, 2), (2, 2, 6)),
        "baddbmm_": ((2, 4, 6), (2, 4, 2), (2, 2, 6)),
        "addmm_": ((4, 6), (4, 2), (2, 6)),
    }[op]

    def program(bias: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = getattr(bias, op)(x, y, beta=3, alpha=2)
        return result

    placed = [
        (torch.rand(s), p) for s, p in zip(shapes, ("P(avg)", "P(sum)", "P(sum)"), strict=True)
    ]
    found = compare(2).assert_none_worse({op: program}, *placed)
    if op.rstrip("_") in ("addmv", "addbmm"):  # the others are torch's own to decide
        assert not found[op].error


def test_a_fallback_before_decompositions_runs_an_op_that_corrections_amend(
    compare: Callable[..., Comparison],
) -> None:
    x = compare(2).place(torch.arange(8.0).view(4, 2), "S(0)")
    with dr.install(fallback={"mode": "silent", "before_decomposition": True}):
        for _ in range(2):
            loss = functional.huber_loss(x, x + 2.0)
        assert loss.full_tensor().item() == 1.5
        tensor = "f32[4,2]@S(0)"
        told = dr.explain("aten.huber_loss.default", tensor, tensor, mesh=x.device_mesh)
    assert told.decider == "fallback"
    assert [p.name for p in told.providers if p.decides] == ["fallback replicate"]
    assert told.providers[0].name == "corrections"


WRITES: dict[str, tuple[Program, tuple[torch.Tensor, ...], tuple[str, ...]]] = {
    "index_copy_": (
        lambda x, i, y: x.index_copy_(1, i, y),
        (torch.zeros(4, 4), torch.tensor([3, 1]), torch.ones(4, 2)),
        ("S(1)", "R", "S(1)"),
    ),
    "masked_fill_": (
        lambda x, m, v: x.masked_fill_(m, v),
        (torch.zeros(4, 4), torch.eye(4) > 0, torch.tensor(3.0)),
        ("P(sum)", "S(0)", "R"),
    ),
}
"""Writes that torch decides by a decomposition, and moves what is written to."""


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_a_decomposition_would_lose_is_refused_by_name(
    compare: Callable[..., Comparison], name: str
) -> None:
    program, tensors, placements = WRITES[name]
    found = compare(2).outcomes({name: program}, *zip(tensors, placements, strict=True))
    assert found[name].error.startswith(f"MovedArgumentError: aten.{name}.")
    assert "no choice that leaves 'self' where it is" in found[name].error


MEANS: dict[str, tuple[Program, tuple[str, ...]]] = {
    "l1_loss": (lambda x, y, _: torch.ops.aten.l1_loss.default(x, y), ("S(0)", "S(0)", "R")),
    "triplet_margin_loss": (
        lambda x, y, _: torch.ops.aten.triplet_margin_loss.default(x, y, y.flip(1)),
        ("S(0)", "S(0)", "R"),
    ),
    "soft_margin_loss.out": (
        lambda x, y, out: torch.ops.aten.soft_margin_loss.out(x, y, out=out),
        ("S(0)", "S(0)", "P(avg)"),
    ),
}
"""Means that torch decides by a decomposition."""


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")  # inside
@pytest.mark.parametrize("size", [5, 6])
@pytest.mark.parametrize("name", MEANS)
def test_the_means_of_uneven_pieces_are_not_averaged(
    compare: Callable[..., Comparison], name: str, size: int
) -> None:
    program, placements = MEANS[name]
    tensors = (torch.randn(size, 3), torch.randn(size, 3), torch.zeros(()))

    def whole_op(*given: Any) -> Any:
        with torch.inference_mode():
            return program(*given)

    placed = zip(tensors, placements, strict=True)
    found = compare(2).assert_none_worse({name: whole_op}, *placed)
    if found[name].error:
        assert (name, size) == ("soft_margin_loss.out", 5)
        assert "no choice that leaves 'out' where it is, (Partial(avg),)" in found[name].error
