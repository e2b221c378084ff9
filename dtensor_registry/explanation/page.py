"""The page of an explanation."""

from __future__ import annotations

from typing import Any

from dtensor_registry.explanation import Choice, Explanation
from dtensor_registry.explanation.drawing import draw
from dtensor_registry.explanation.text import (
    names_of,
    show_cost,
    show_mesh,
    show_move,
    show_provider,
    show_step,
    show_tensor,
)
from dtensor_registry.pages import render
from dtensor_registry.placements import show_choice


def explanation_page(explanation: Explanation) -> str:
    """Write an explanation as a page.

    Raises:
        MissingPackageError: if jinja2 is not installed.
    """
    e = explanation
    given = f" with {e.arguments}" if e.arguments else ""
    on = f" on mesh {show_mesh(e)}" if e.mesh_shape else ""
    return render(
        "explain.html",
        title=e.op,
        summary=f"why it is sharded as it is{given}{on}",
        e=e,
        chosen=None if e.chosen is None else show_choice(e.chosen.outputs, e.chosen.inputs),
        cost="" if e.chosen is None else show_cost(e.chosen.microseconds),
        collectives=", ".join(f"{n} {name}" for name, n in sorted(e.collectives.items())),
        drawings=draw(e),
        tensors=[(t.name, show_tensor(t)) for t in (*e.inputs, *e.outputs)],
        moves=[] if e.chosen is None else _moves(e, e.chosen),
        providers=[(show_provider(p), p.reason, p.decides) for p in e.providers],
        columns=_columns(e),
        candidates=[_row(e, choice) for choice in e.candidates],
        rejected=[(show_choice(r.outputs, r.inputs), r.reason) for r in e.rejected],
    )


def _moves(e: Explanation, chosen: Choice) -> list[tuple[str, list[str]]]:
    return [
        (show_move(name, move), [show_step(step) for step in move.steps])
        for name, move in zip(names_of(e, chosen), chosen.moves, strict=True)
    ]


def _columns(e: Explanation) -> list[dict[str, Any]]:
    names = names_of(e, e.candidates[0]) if e.candidates else ()
    return [
        {"title": "outputs <- inputs", "number": False},
        {"title": "microseconds", "number": True},
        *({"title": name, "number": True} for name in names),
        {"title": "collectives", "number": True},
    ]


def _row(e: Explanation, choice: Choice) -> dict[str, Any]:
    known = [c.microseconds for c in e.candidates if c.microseconds is not None]
    most = max(known, default=0.0)
    total = choice.microseconds
    remote = [s for m in choice.moves for s in m.steps if s.microseconds != 0]
    cells = [
        _cell(show_choice(choice.outputs, choice.inputs)),
        _number(total, None if total is None or most == 0 else total / most),
        *(_number(move.microseconds) for move in choice.moves),
        _cell(str(len(remote)), float(len(remote))),
    ]
    return {"cells": cells, "chosen": choice == e.chosen}


def _number(microseconds: float | None, bar: float | None = None) -> dict[str, Any]:
    if microseconds is None:
        return _cell("no price", 1e30)
    return _cell(f"{microseconds:.2f}", microseconds, bar)


def _cell(text: str, value: float | None = None, bar: float | None = None) -> dict[str, Any]:
    return {"text": text, "value": value, "bar": bar}
