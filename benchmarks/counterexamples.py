"""Numbers that refute a row of torch's where drawn ones do not: one element, two ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch

from dtensor_registry.placements import Partial, parse_placements
from dtensor_registry_kit.judging.judge import check_row
from dtensor_registry_kit.simulation.distribute import reduce_parts

NAN, INF = math.nan, math.inf


@dataclass(frozen=True)
class Counterexample:
    """What two ranks hold of each tensor argument, and the other positional arguments.

    Attributes:
        ops: a glob.
        rows: the rows that it refutes, or may.
        held: of each tensor, what rank 0 and rank 1 hold.
        numbers: what comes after the tensors.
        dtype: of the tensors.
    """

    ops: str
    rows: tuple[str, ...]
    held: tuple[tuple[Any, Any], ...]
    numbers: tuple[Any, ...] = ()
    dtype: torch.dtype = torch.float64


_UINT8, _BOOL = torch.uint8, torch.bool
_ONE_MAX, _ONE_MIN = "P(max) <- P(max)", "P(min) <- P(min)"

COUNTEREXAMPLES = (
    Counterexample("aten.add*", (_ONE_MAX, "P(max) <- P(max), R"), ((0, 255), (1, 1)), (), _UINT8),
    Counterexample("aten.add*", (_ONE_MIN, "P(min) <- P(min), R"), ((0, 255), (1, 1)), (), _UINT8),
    Counterexample("aten.sub*", (_ONE_MAX, "P(max) <- P(max), R"), ((0, 3), (1, 1)), (), _UINT8),
    Counterexample("aten.sub*", (_ONE_MIN, "P(min) <- P(min), R"), ((0, 3), (1, 1)), (), _UINT8),
    Counterexample("aten.neg*", ("P(min) <- P(max)", "P(max) <- P(min)"), ((0, 1),), dtype=_UINT8),
    Counterexample("aten.threshold*", (_ONE_MAX, _ONE_MIN), ((-1, 1),), (0, 5)),
    Counterexample("aten.nan_to_num*", (_ONE_MAX,), ((NAN, 3),)),
    Counterexample("aten.nan_to_num*", (_ONE_MIN,), ((NAN, -3),)),
    Counterexample(
        "*.fmax*", ("P(max) <- P(max), R", "P(min) <- P(min), R"), ((NAN, -3), (-7, -7))
    ),
    Counterexample("*.fmax*", ("P(max) <- R, P(max)",), ((-7, -7), (NAN, -3))),
    Counterexample("*.fmax*", ("P(min) <- R, P(min)",), ((7, 7), (NAN, -3))),
    Counterexample("*.fmax*", ("P(min) <- P(min), R",), ((NAN, -3), (7, 7))),
    Counterexample("*.fmax*", ("P(max) <- P(max), P(max)",), ((NAN, 3), (1, 2))),
    Counterexample("*.fmin*", ("P(min) <- P(min), R",), ((NAN, 3), (7, 7))),
    Counterexample("*.fmin*", ("P(max) <- P(max), R",), ((NAN, 3), (-7, -7))),
    Counterexample("*.fmin*", ("P(min) <- R, P(min)",), ((7, 7), (NAN, 3))),
    Counterexample("*.fmin*", ("P(max) <- R, P(max)",), ((-7, -7), (NAN, 3))),
    Counterexample("*.fmin*", ("P(min) <- P(min), P(min)",), ((NAN, -5), (1, 2))),
    Counterexample(
        "*xlog1py*", ("P(sum) <- P(sum), R", "P(avg) <- P(avg), R"), ((1, -1), (-1, -1))
    ),
    Counterexample("*", ("P(sum) <- P(sum)",), ((True, True),), (2.0,), _BOOL),
    Counterexample("*", ("P(avg) <- P(avg)",), ((1, 2),), (2,), torch.int64),
    Counterexample("*", ("P(avg) <- P(avg), R",), ((1, 2), (2, 2)), (), torch.int64),
    Counterexample("*", ("P(avg) <- R, P(avg)",), ((2, 2), (1, 2)), (), torch.int64),
)


def counterexample(op: str, row: str) -> str:
    """Find numbers that refute a row of an op, and say what they give; empty if there are none."""
    if op == "aten._scaled_mm.default":
        return _scaled(row)
    outs = [argument for argument in _overload(op)._schema.arguments if argument.is_out]
    entries = row.split(", ")
    row = ", ".join(entries[: len(entries) - len(outs)])  # an `out` lies as the output does
    for each in COUNTEREXAMPLES:
        if fnmatchcase(op, each.ops) and row in each.rows:
            told = _refutes(each, op, row, [argument.name for argument in outs])
            if told:
                return told
    return ""


def _overload(op: str) -> Any:
    namespace, packet, kind = op.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), kind)


def _refutes(example: Counterexample, op: str, row: str, outs: Sequence[str]) -> str:
    def call(*args: Any) -> torch.Tensor:
        written = {name: torch.empty(0, dtype=example.dtype) for name in outs}
        result = _overload(op)(*args, **written)
        assert isinstance(result, torch.Tensor)
        return result

    output, *inputs = parse_placements(row.replace(" <- ", ", "))
    parts = [[torch.tensor([v], dtype=example.dtype) for v in held] for held in example.held]
    parts = parts[: len(inputs)]
    rest = example.numbers
    try:
        whole = [_together(p, placed) for p, placed in zip(parts, inputs, strict=True)]
        want = call(*(value.clone() for value in whole), *rest)
        locals_ = [call(*(v.clone() for v in local), *rest) for local in zip(*parts, strict=True)]
        got = _together(locals_, output)
    except (RuntimeError, ValueError, TypeError):
        return ""
    if torch.equal(got.nan_to_num(-99), want.nan_to_num(-99)):
        return ""
    held = "; ".join(
        f"{parts[at][0].item():g}, {parts[at][1].item():g}" for at in range(len(parts))
    )
    after = f" and {', '.join(map(str, rest))}" if rest else ""
    name = str(example.dtype).removeprefix("torch.")
    return (
        f"two ranks hold {held}{after} ({name}): the row gives {got.item():g},"
        f" the op {want.item():g}"
    )


def _scaled(row: str) -> str:
    """Refute a row that takes operands of 8 bits, or their scales, as parts of a sum.

    The whole operand is what is left of the sum in 8 bits, as after a reduction.
    """
    low = torch.float8_e4m3fn
    output, *inputs = parse_placements(row.replace(" <- ", ", "))
    if not any(isinstance(placed, Partial) for placed in inputs[:2]):
        args = (torch.ones(4, 8).to(low), torch.ones(8, 6).to(low), torch.ones(4, 1))
        rest = (torch.ones(1, 6), None, None, torch.float32)
        op = torch.ops.aten._scaled_mm.default
        verdict = check_row(op, (*args, *rest), {}, [output, *inputs], 2, allow_empty=True)
        return f"scales (4, 1) and (1, 6): {verdict.evidence}" if verdict.is_wrong else ""
    held = [
        _filled((1.0, 0.0625), (16, 16), low),
        _filled((1.0, 0.0625), (16, 16), low),
        _filled((0.5, 0.25), (), torch.float32),
        _filled((0.5, 0.25), (), torch.float32),
    ]
    whole, local = [], []
    for parts, placed in zip(held, inputs[:4], strict=True):
        wide = [part.float() for part in parts]
        total = _together(wide, placed).to(parts[0].dtype)
        whole.append(total)
        local.append(parts if isinstance(placed, Partial) else [total, total])
    op = torch.ops.aten._scaled_mm.default
    want = op(*whole, None, None, torch.float32)[0, 0]
    got = _together(
        [op(*(p[rank] for p in local), None, None, torch.float32)[0, 0] for rank in range(2)],
        output,
    )
    if torch.allclose(got, want):
        return ""
    return (
        f"two ranks hold 1, 0.0625 in 8 bits, and scales 0.5, 0.25 where partial: the row gives"
        f" {got.item():g}, the op {want.item():g}"
    )


def _filled(values: tuple[float, float], shape: tuple[int, ...], dtype: torch.dtype) -> list[Any]:
    return [torch.full(shape, value).to(dtype) for value in values]


def _together(parts: Sequence[torch.Tensor], placed: Any) -> torch.Tensor:
    return reduce_parts(parts, placed.reduce_op) if isinstance(placed, Partial) else parts[0]
