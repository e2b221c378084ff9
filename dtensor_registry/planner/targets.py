"""Where one input can go, mesh dim by mesh dim, with nothing worked out twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dtensor_registry.placements import Placements
from dtensor_registry.planner.lower_bound import Effect, LowerBound, PrefixPrice
from dtensor_registry.planner.prices import price
from dtensor_registry.planner.problem import Problem
from dtensor_registry.planner.redistribution import needs_torch
from dtensor_registry.planner.row_table import InputEntries
from dtensor_registry.planner.validity import splits

Ask: TypeAlias = Callable[[int, Placements], float]
"""`ask(input, target)`: microseconds that torch itself expects of a move."""

EquivalenceKey: TypeAlias = tuple["Effect | int", int, bool]
"""What an option does to its input on a mesh dim. Options that do the same have equal keys."""


class Target:
    """Where an input goes on the outermost mesh dims: a node in the tree of its targets.

    Attributes:
        options: the option on each of those mesh dims.
        floor: microseconds that no completion undercuts; the price of a complete target.
        further: by option, the targets one mesh dim further in, as far as they were asked
            for; None for one that cannot be.
        prefix: what the price is made of; None if only torch can price it.
        pieces: into how many pieces each tensor dim is cut; None for more than there are
            elements, which an input may have already, but not be given, or for pieces of groups.
        kinds: bits of its kinds of partial.
        stays: whether the input keeps what it has.
    """

    __slots__ = ("floor", "further", "kinds", "options", "pieces", "prefix", "stays")

    def __init__(
        self,
        options: tuple[int, ...],
        floor: float,
        prefix: PrefixPrice | None,
        pieces: tuple[int, ...] | None,
        kinds: int,
        stays: bool,
    ) -> None:
        self.options = options
        self.floor = floor
        self.further: dict[int, Target | None] = {}
        self.prefix = prefix
        self.pieces = pieces
        self.kinds = kinds
        self.stays = stays


class Moves:
    """What one input can do, and what it costs.

    Args:
        problem: the call.
        position: which of its inputs.
        entries: what the rows have for it.
        has: on each mesh dim the option that it has already; -1 if no row has it.
        ask: prices what only torch can price.

    Attributes:
        lower_bound: prices and bounds; None if only torch can price the input.

    Raises:
        ValueError: if only torch can price the input, and `ask` is None.
    """

    __slots__ = (
        "_ask",
        "_entries",
        "_groups",
        "_has",
        "_mesh_shape",
        "_position",
        "_problem",
        "_tensor",
        "lower_bound",
    )

    def __init__(
        self,
        problem: Problem,
        position: int,
        entries: InputEntries,
        has: tuple[int, ...],
        ask: Ask | None,
    ) -> None:
        self._problem = problem
        self._mesh_shape = problem.mesh_shape
        self._position = position
        self._tensor = tensor = problem.inputs[position]
        self._entries = entries
        self._has = has
        self._ask = ask
        self._groups = {
            dim.tensor_dim: dim.groups
            for dim in problem.grouped
            if dim.position == problem.num_outputs + position
        }
        self.lower_bound: LowerBound | None = None
        source = tensor.sources[0]
        if not (tensor.priced_by_torch or entries.needs_torch or needs_torch(source, ())):
            self.lower_bound = LowerBound(source, entries.options, tensor.nbytes, problem.topology)
        elif ask is None:
            raise ValueError(f"only torch can price the moves of input {position}: pass `ask`")

    def equivalence_keys(self, mesh_dim: int, finite: bool) -> list[EquivalenceKey | None]:
        """Say of each option what it does on a mesh dim, or None if it cannot be taken.

        Args:
            mesh_dim: the mesh dim.
            finite: leave out what has no finite price, too.
        """
        lower_bound, kinds = self.lower_bound, self._entries.kinds
        uneven = self._problem.allow_uneven_sharding
        found: list[EquivalenceKey | None] = []
        for option in range(len(self._entries.options)):
            effect = option if lower_bound is None else lower_bound.effects[mesh_dim][option]
            unreachable = finite and isinstance(effect, Effect) and not effect.possible
            if unreachable or not self._can_take(mesh_dim, option):
                found.append(None)
                continue
            kind = 0 if kinds is None else kinds.of[option]
            found.append((effect, kind, uneven and option == self._has[mesh_dim]))
        return found

    def _can_take(self, mesh_dim: int, option: int) -> bool:
        """Say whether an option is valid on a mesh dim, whatever is chosen on others."""
        tensor = self._tensor
        if option == self._has[mesh_dim]:
            if self._problem.allow_uneven_sharding:
                return True
        elif tensor.pinned is not None:
            return False
        cut = self._entries.cuts[option]
        if cut is not None:
            ones = (1,) * len(tensor.shape)
            return self._cut(ones, self._mesh_shape[mesh_dim], *cut) is not None
        source, placement = tensor.sources[0][mesh_dim], self._entries.options[option]
        return splits(source, placement, tensor.divisible)

    def start(self) -> Target:
        """Choose nothing yet."""
        prefix = None if self.lower_bound is None else self.lower_bound.start
        return Target((), 0.0, prefix, (1,) * len(self._tensor.shape), 0, True)

    def choose(self, before: Target, mesh_dim: int, option: int, factor: float) -> Target | None:
        """Choose the next mesh dim's option, or say None if the input cannot be so.

        Args:
            before: what is chosen further out.
            mesh_dim: the outermost mesh dim that is open.
            option: one that can be taken there.
            factor: see `LowerBound.choose`.
        """
        entries = self._entries
        stays = before.stays and option == self._has[mesh_dim]
        pieces, cut = before.pieces, entries.cuts[option]
        if pieces is not None and cut is not None:
            pieces = self._cut(pieces, self._mesh_shape[mesh_dim], *cut)
        if pieces is None and not (stays and self._problem.allow_uneven_sharding):
            return None
        kinds = before.kinds
        if entries.kinds is not None:
            kinds |= entries.kinds.of[option]
            if entries.kinds.clash(kinds):
                return None
        options = (*before.options, option)
        prefix = None
        if self.lower_bound is not None and before.prefix is not None:
            prefix = self.lower_bound.choose(before.prefix, mesh_dim, option, factor)
            floor = prefix.floor
        else:
            floor = self._asked(options) if len(options) == len(self._has) else 0.0
        return Target(options, floor, prefix, pieces, kinds, stays)

    def _cut(
        self, pieces: tuple[int, ...], ranks: int, tensor_dim: int, split_factor: int
    ) -> tuple[int, ...] | None:
        """Cut one tensor dim further.

        None if there is no dim, some rank would get nothing of it, or a group of it would be cut.
        """
        shape = self._tensor.shape
        if tensor_dim >= len(shape):
            return None
        count = pieces[tensor_dim] * ranks
        if shape[tensor_dim] < count * split_factor:
            return None
        if self._groups and self._groups.get(tensor_dim, 0) % (count * split_factor):
            return None
        return (*pieces[:tensor_dim], count, *pieces[tensor_dim + 1 :])

    def _asked(self, options: tuple[int, ...]) -> float:
        """Price a complete target as torch does, without torch where that is the same."""
        if options == self._has:
            return 0.0
        tensor = self._tensor
        source = tensor.sources[0]
        target = tuple(self._entries.options[option] for option in options)
        if self._ask is None or not (tensor.priced_by_torch or needs_torch(source, target)):
            return price(source, target, tensor.nbytes, self._problem.topology)
        return self._ask(self._position, target)
