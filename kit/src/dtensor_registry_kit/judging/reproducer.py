"""Print a program of a few lines that shows a wrong row again on one CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dtensor_registry.errors import InvalidContributionError
from dtensor_registry.placements import Partial, Replicate, Shard
from dtensor_registry.rules.metadata import is_tensor
from dtensor_registry.rules.strategy import op_name
from dtensor_registry.rules.well_formed import plain
from dtensor_registry_kit.judging.judge import judge
from dtensor_registry_kit.samples.sample import Sample, draw
from dtensor_registry_kit.simulation.distribute import is_inexact
from dtensor_registry_kit.simulation.reference_run import run_reference


def name_of(op: Any) -> str:
    """Write an op as messages do, or a plain function by its module and name.

    >>> name_of(torch.ops.aten.mm.default), name_of(name_of)
    ('aten.mm.default', 'dtensor_registry_kit.judging.reproducer.name_of')
    """
    try:
        return op_name(op)
    except InvalidContributionError:
        return f"{getattr(op, '__module__', '')}.{getattr(op, '__qualname__', op)}"


def program(
    op: Callable[..., Any],
    sample: Sample,
    rows: Sequence[Sequence[Any]],
    mesh: Sequence[int],
    seed: int,
    *,
    allow_empty: bool = False,
) -> str:
    """Write a program that judges rows, one per mesh dim, for one call.

    Numbers are drawn again where that shows the fault too, else written out.
    """
    is_drawn = _is_wrong(op, drawn_again(sample), rows, mesh, seed, allow_empty)
    used = ["check_row"] if len(mesh) == 1 else ["judge", "run_reference"]
    lines = [
        "import torch",
        "from dtensor_registry.placements import REPLICATE, Partial, Shard",
        f"from dtensor_registry_kit import {', '.join([*used, *['draw'] * is_drawn])}",
    ]
    more_lines, called = written_call(op, sample, is_drawn)
    lines += more_lines
    listed = [f"[{', '.join(map(_placement, row))}]" for row in rows]
    more = (f", seed={seed}" if seed else "") + ", allow_empty=True" * allow_empty
    if len(mesh) == 1:
        lines.append(f"print(check_row({called}, {listed[0]}, {mesh[0]}{more}))")
    else:
        lines.append(f"whole = run_reference({called})")
        lines.append(f"print(judge(whole, [{', '.join(listed)}], {tuple(mesh)}{more}))")
    return "\n".join(lines)


def written_call(op: Callable[..., Any], sample: Sample, is_drawn: bool) -> tuple[list[str], str]:
    """Write the lines that make a call's tensors, and the call: `op, (args), {kwargs}`.

    Args:
        op: what is called.
        sample: the call.
        is_drawn: whether numbers are drawn, as in `drawn_again`, or written out.
    """
    lines = [f"# import here what defines {name_of(op)}"] if _is_custom(op) else []
    names = []
    for position, tensor in enumerate(sample.inputs):
        names.append(f"x{position}")
        lines.append(f"x{position} = {_tensor(position, tensor, is_drawn)}")
    given = iter(names)
    args = ", ".join(_argument(value, given) for value in sample.args)
    kwargs = ", ".join(f"{k!r}: {_argument(v, given)}" for k, v in sample.kwargs.items())
    return lines, f"{_callable(op)}, ({args}{',' * (len(sample.args) == 1)}), {{{kwargs}}}"


def drawn_again(sample: Sample) -> Sample:
    """Make the same call with numbers that can be drawn again from the position alone."""
    return sample.changed(_again, sample.origin, sample.role)


def _again(position: int, tensor: torch.Tensor) -> torch.Tensor:
    return draw(tensor.shape, tensor.dtype, position) if is_inexact(tensor) else tensor


def _is_wrong(
    op: Callable[..., Any],
    sample: Sample,
    rows: Sequence[Sequence[Any]],
    mesh: Sequence[int],
    seed: int,
    allow_empty: bool,
) -> bool:
    try:
        whole = run_reference(op, sample.args, sample.kwargs)
    except Exception:
        return False  # drawn numbers are outside the op's domain: the sample's own are printed
    return judge(whole, rows, tuple(mesh), seed=seed, allow_empty=allow_empty).is_wrong


def _tensor(position: int, tensor: torch.Tensor, is_drawn: bool) -> str:
    if is_drawn and is_inexact(tensor):
        return f"draw({list(tensor.shape)}, {tensor.dtype}, seed={position})"
    if not tensor.numel():
        return f"torch.empty({list(tensor.shape)}, dtype={tensor.dtype})"
    return f"torch.tensor({tensor.tolist()}, dtype={tensor.dtype})"


def _argument(value: Any, names: Any) -> str:
    if is_tensor(value):
        return str(next(names))
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_argument(entry, names) for entry in value)}]"
    return repr(value)


def _callable(op: Any) -> str:
    name = name_of(op)
    is_op = hasattr(op, "overloadpacket") or hasattr(op, "overloads")
    return f"torch.ops.{name}" if is_op else name


def _is_custom(op: Any) -> bool:
    return name_of(op).split(".")[0] not in ("aten", "prims", "torch")


def _placement(entry: Any) -> str:
    placement = plain(entry)
    if isinstance(placement, Replicate):
        return "REPLICATE"
    if isinstance(placement, Shard):
        return f"Shard({placement.tensor_dim})"
    if isinstance(placement, Partial):
        return f"Partial({placement.reduce_op!r})"
    return repr(entry)
