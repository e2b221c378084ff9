"""How an explanation prints."""

from __future__ import annotations

from collections.abc import Iterator

from dtensor_registry.explanation.values import (
    Choice,
    Explanation,
    Move,
    Provider,
    Step,
    TensorShown,
)
from dtensor_registry.placements import show_choice, show_placed

_COLLECTIVES = {
    "allgather": "all-gather",
    "allreduce": "all-reduce",
    "all_to_all": "all-to-all",
    "reduce_scatter": "reduce-scatter",
    "chunk": "local cut",
    "partition": "local split",
    "impossible": "torch has no way to do this",
}
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def show_bytes(count: float) -> str:
    """Print a number of bytes in the largest unit that fits.

    >>> show_bytes(512), show_bytes(4 * 2**20)
    ('512 bytes', '4.0 MiB')
    """
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.0f} bytes" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def show_cost(microseconds: float | None) -> str:
    """Print an estimate.

    >>> show_cost(1.5), show_cost(None)
    ('1.50 us', 'no price')
    """
    return "no price" if microseconds is None else f"{microseconds:.2f} us"


def show_tensor(tensor: TensorShown) -> str:
    """Print what a tensor is and how it is placed."""
    shape, local = (", ".join(map(str, s)) for s in (tensor.shape, tensor.local_shape))
    placed = show_placed(tensor.placements)
    return f"{tensor.dtype}[{shape}] {placed}, on rank 0 [{local}]"


def show_step(step: Step) -> str:
    """Print one step of a move.

    >>> show_step(Step("tp", "S(0)", "R", "allgather", 2.0**22, 29.5))
    'S(0) -> R: all-gather of 4.0 MiB on mesh dim tp, 29.50 us'
    """
    what = _COLLECTIVES.get(step.collective, step.collective)
    size = f" of {show_bytes(step.nbytes)}" if step.microseconds and step.nbytes else ""
    cost = f", {show_cost(step.microseconds)}" if step.microseconds else ""
    return f"{step.source} -> {step.target}: {what}{size} on mesh dim {step.mesh_dim}{cost}"


def show_mesh(explanation: Explanation) -> str:
    """Print the mesh: `2x4`, or `dp=2, tp=4` where its dims have names."""
    sizes = explanation.mesh_shape
    if explanation.mesh_dims == tuple(map(str, range(len(sizes)))):
        return "x".join(map(str, sizes))
    named = zip(explanation.mesh_dims, sizes, strict=True)
    return ", ".join(f"{name}={size}" for name, size in named)


def show_move(name: str, move: Move) -> str:
    """Print what becomes of an input, in one line."""
    if not move.steps and move.source == move.target:
        return f"{name}: {show_placed(move.source)} stays"
    moved = f"{show_placed(move.source)} -> {show_placed(move.target)}"
    return f"{name}: {moved}, {show_cost(move.microseconds)}"


def show_provider(provider: Provider) -> str:
    """Print who it is and where its rule is."""
    shipped = f"{provider.distribution} {provider.version}".strip()
    told = ", ".join(part for part in (shipped, provider.source, provider.rule) if part)
    return f"{provider.name} ({told})" if told else provider.name


def names_of(explanation: Explanation, choice: Choice) -> tuple[str, ...]:
    """Name the inputs of a choice, which may be about the first elements of lists alone."""
    names = tuple(tensor.name for tensor in explanation.inputs)
    if len(names) == len(choice.inputs):
        return names
    first = tuple(name for name in names if "[" not in name or name.endswith("[0]"))
    if len(first) == len(choice.inputs):
        return first
    return tuple(f"input {at}" for at in range(len(choice.inputs)))


def lines_of(explanation: Explanation) -> Iterator[str]:
    """Print an explanation line by line."""
    e = explanation
    given = f" with {e.arguments}" if e.arguments else ""
    on = f" on mesh {show_mesh(e)}" if e.mesh_shape else ""
    yield f"{e.op}{given}{on}"
    for tensor in e.inputs:
        yield f"  {tensor.name}: {show_tensor(tensor)}"
    yield from _providers(e)
    if not e.mesh_shape:
        yield from (f"  note: {note}" for note in e.notes)
        return
    yield ""
    yield f"decided by {e.decided_by}"
    yield from (f"  note: {note}" for note in e.notes)
    if e.chosen is not None:
        yield from _chosen(e, e.chosen)
    if e.parts:
        yield from ("", "ops that ran")
        for part in e.parts:
            ran = " | ".join(part.placements)
            yield f"  {part.op}, {part.calls} by {part.decided_by}: {ran}"
    if e.collectives:
        ran = ", ".join(f"{count} {name}" for name, count in sorted(e.collectives.items()))
        yield f"  collectives in all: {ran}"
    for tensor in e.outputs:
        yield f"  {tensor.name}: {show_tensor(tensor)}"
    if e.rows:
        yield from ("", "rows, on one mesh dim: outputs <- inputs")
        yield from (f"  {at}: {row}" for at, row in enumerate(e.rows))
    yield from _candidates(e)
    yield from _rejected(e)
    for question in e.why_not:
        yield from ("", f"why not {question.asked}?")
        yield from (f"  {line}" for line in question.answer.splitlines())
    if e.error is not None:
        yield from ("", "the call raises:")
        yield from (f"  {line}".rstrip() for line in e.error.splitlines())


def _providers(e: Explanation) -> Iterator[str]:
    yield ""
    if not e.providers:
        yield "nobody has a rule for this op"
        return
    yield "providers, first to last"
    for provider in e.providers:
        mark = "*" if provider.decides else "-"
        yield f"  {mark} {show_provider(provider)}: {provider.reason}"


def _chosen(e: Explanation, chosen: Choice) -> Iterator[str]:
    yield ""
    cost = show_cost(chosen.microseconds)
    yield f"chosen: {show_choice(chosen.outputs, chosen.inputs)}  {cost}"
    for name, size, row in zip(e.mesh_dims, e.mesh_shape, chosen.rows, strict=False):
        yield f"  mesh dim {name}, {size} ranks: row {row}, {e.rows[row]}"
    for name, move in zip(names_of(e, chosen), chosen.moves, strict=True):
        yield f"  {show_move(name, move)}"
        yield from (f"    {show_step(step)}" for step in move.steps)


def _candidates(e: Explanation) -> Iterator[str]:
    if not e.candidates:
        return
    yield ""
    shown = len(e.candidates)
    of = f", {shown} of {e.valid}" if e.valid is not None and e.valid > shown else ""
    yield f"valid choices, cheapest first{of}"
    for choice in e.candidates:
        mark = "*" if choice == e.chosen else " "
        cost = show_cost(choice.microseconds)
        yield f"  {mark} {cost:>12}  {show_choice(choice.outputs, choice.inputs)}"
        moved = [
            f"{name} {show_cost(move.microseconds)}"
            f" ({', '.join(_brief(step) for step in move.steps)})"
            for name, move in zip(names_of(e, choice), choice.moves, strict=True)
            if move.microseconds != 0
        ]
        if moved:
            yield f"    {'':12}  {'; '.join(moved)}"


def _brief(step: Step) -> str:
    what = _COLLECTIVES.get(step.collective, step.collective)
    cost = f" {show_cost(step.microseconds)}" if step.microseconds else ""
    return f"{what} on {step.mesh_dim}{cost}"


def _rejected(e: Explanation) -> Iterator[str]:
    if not e.rejected:
        return
    yield ""
    shown = len(e.rejected)
    of = f", {shown} of {e.invalid}" if e.invalid is not None and e.invalid > shown else ""
    yield f"not valid{of}"
    for rejected in e.rejected:
        yield f"  {show_choice(rejected.outputs, rejected.inputs)}: {rejected.reason}"
