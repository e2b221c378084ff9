"""What torch does without the registry, asked of torch itself: call by call, and op by op.

`explain` dispatches a call on tensors without data, as DTensor would. Asked with no plugin, it
says what torch alone does; asked again, what the registry does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import dtensor_registry as dr

MESH = "2x2"

CALLS: tuple[tuple[Any, ...], ...] = (
    ("acme.rms_norm", "f32[8,64,64]@S(0),R", "f32[64]", 1e-5),
    (
        "aten._scaled_dot_product_flash_attention_for_cpu",
        *["f32[8,4,64,16]@S(0),S(1)"] * 3,
        0.0,
        True,
    ),
    ("aten.mish_backward.default", *["f32[8,64,64]@S(0),R"] * 2),
    ("aten.searchsorted.Tensor", "f32[5]", "f32[512]@S(0),R"),
    ("aten.bincount", "i64[512]@S(0),R"),
    ("aten._unique2", "i64[512]@S(0),R"),
    ("aten.gather.default", "f32[8,64,256]@S(0),S(2)", 2, "i64[8,64,1]@S(0),R"),
    ("aten.mse_loss.default", "f32[5,64]@S(0),R", "f32[5,64]@S(0),R"),
)
"""Calls that this job makes, as `explain` takes them; of the last, in uneven pieces."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One call without and with the registry.

    Attributes:
        op: as DTensor's messages write it.
        alone: what torch alone does.
        registered: what happens with the plugins that are installed.
        decided_by: who then decides.
        why: why the rule of whoever decides comes before torch's.
    """

    op: str
    alone: str
    registered: str
    decided_by: str
    why: str


def outcomes() -> tuple[Outcome, ...]:
    """Ask for all calls; in a process that is in no process group."""
    with dr.install(allowed=[], torch_rules=False, fallback={"mode": "off"}) as bare:
        alone = [bare.explain(*call, mesh=MESH, most=0) for call in CALLS]
    with dr.install(fallback={"mode": "silent"}) as registry:
        registered = [registry.explain(*call, mesh=MESH, most=0) for call in CALLS]
    return tuple(
        Outcome(with_us.op, _became(without), _became(with_us), _decider(with_us), _why(with_us))
        for without, with_us in zip(alone, registered, strict=True)
    )


def has_of_its_own(ops: Iterable[str]) -> dict[str, str]:
    """Ask for each op what torch has for it: a rule, a handler, a decomposition, or nothing."""
    with dr.install(allowed=[], fallback={"mode": "off"}) as bare:
        return {op: _kind(bare.explain(op)) for op in ops}


def _became(asked: dr.Explanation) -> str:
    if asked.error is not None:
        return str(asked.error).partition("\n")[0]
    moved = ", ".join(f"{count} {name}" for name, count in asked.collectives.items())
    outputs = "; ".join(", ".join(output.placements) for output in asked.outputs)
    return f"{outputs or 'data decides'}, moves {moved or 'nothing'}"


def _decider(asked: dr.Explanation) -> str:
    return next((provider.name for provider in asked.providers if provider.decides), "nobody")


def _why(asked: dr.Explanation) -> str:
    return next((provider.reason for provider in asked.providers if provider.decides), "")


def _kind(asked: dr.Explanation) -> str:
    deciding = next((provider.rule for provider in asked.providers if provider.decides), "")
    for word, kind in (
        ("handler", "handler"),
        ("decomposition", "decomposes"),
        ("composite", "takes it apart"),
    ):
        if word in deciding:
            return kind
    return "its rule" if deciding else "no rule"
