"""Prices of one tensor while its target is still being chosen, mesh dim by mesh dim.

A search over a mesh chooses the outermost mesh dim first. The price of a move, seen so,
has three properties that make a search short (all three are tested):

1. What a mesh dim does depends on nothing further in. It is one collective, from what the
   tensor has there to the target, or, if the target is a shard of a tensor dim whose
   nesting changes further out, to Replicate (the cut that follows is free).
2. Further in only scales it. A tensor that is cut moves inside out, so the bytes of each
   collective are those of the start times one factor per mesh dim further in: above 1 for an
   allgather, below 1 for a cut, 1 for all others. A choice up to some mesh dim therefore
   costs exactly `fixed + carried * factor`, where `factor` is the product over what is still
   open. A tensor that is whole moves outside in, and what is chosen is already final.
3. Replacing each factor by the least one that is open there gives a price which no
   completion undercuts: an admissible bound. The same holds for what the open mesh dims
   themselves add. Bounds come from other roundings than prices, so compare them with
   `SLACK`; the price of a complete target is torch's own to the last bit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from dtensor_registry.placements import REPLICATE, Partial, Placement, Placements, Replicate, Shard
from dtensor_registry.planner.prices import Rate, local_gib, rate
from dtensor_registry.planner.redistribution import collective_of, count_shards
from dtensor_registry.planner.topology import Topology

SLACK = 1.0 - 1e-9
"""Multiply a bound by this before comparing it with a price: more than rounding can differ."""


class Effect:
    """What one option on one mesh dim does to the price. Options with one effect share it.

    Attributes:
        straight: the collective that reaches the option, or None if nothing changes.
        detour: the one that is taken instead once the nesting of `tensor_dim` changes.
        tensor_dim: the tensor dim that the option cuts, or -1.
        unsettles: bit mask of the tensor dims whose nesting the option changes.
        possible: whether the option can be reached at all, at a finite price.
    """

    __slots__ = ("detour", "possible", "straight", "tensor_dim", "unsettles")

    def __init__(
        self, straight: Rate | None, detour: Rate | None, tensor_dim: int, unsettles: int
    ) -> None:
        self.straight = straight
        self.detour = detour
        self.tensor_dim = tensor_dim
        self.unsettles = unsettles
        self.possible = straight is None or straight.collective != "impossible"


class PrefixPrice:
    """A target that is chosen on the outermost mesh dims.

    Attributes:
        floor: microseconds that no completion undercuts, see `SLACK`; once every mesh dim is
            chosen, the exact price.
        fixed: microseconds that no further choice changes.
        carried: what further choices work on. Microseconds for a factor of 1 if the tensor is
            cut; 2**30 bytes that each rank holds if it is whole.
        unsettled: bit mask of the tensor dims whose nesting changes.
        rates: the collectives so far, outermost first.
    """

    __slots__ = ("carried", "fixed", "floor", "rates", "unsettled")

    def __init__(
        self, fixed: float, carried: float, unsettled: int, rates: tuple[Rate, ...], floor: float
    ) -> None:
        self.fixed = fixed
        self.carried = carried
        self.unsettled = unsettled
        self.rates = rates
        self.floor = floor


class Bounds(NamedTuple):
    """What is at least to be paid, given the options that are open on each mesh dim.

    Attributes:
        factors: `factors[mesh_dim]`, the least factor of this mesh dim and all further in.
        added: `added[mesh_dim][option]`, the least microseconds for the option there.
    """

    factors: tuple[float, ...]
    added: tuple[tuple[float, ...], ...]


class LowerBound:
    """Prices of moving one tensor to any target, and bounds for targets half chosen.

    Args:
        source: what the tensor has, one placement per mesh dim; see `needs_torch`.
        options: the placements that targets are made of.
        nbytes: bytes of the whole tensor.
        topology: the mesh and its links.

    Attributes:
        effects: `effects[mesh_dim][option]`.
        start: nothing chosen yet.

    >>> topology = Topology.assumed((2, 2), devices_per_host=8)
    >>> lower_bound = LowerBound((Shard(0), Shard(0)), [REPLICATE, Shard(0)], 2**20, topology)
    >>> outer = lower_bound.choose(lower_bound.start, 0, 0)
    >>> outer.floor <= lower_bound.choose(outer, 1, 1).floor
    True
    """

    __slots__ = ("_gib", "_nested", "effects", "start")

    def __init__(
        self, source: Placements, options: Sequence[Placement], nbytes: int, topology: Topology
    ) -> None:
        self._gib = local_gib(source, nbytes, topology)
        self._nested = count_shards(source, topology.mesh_shape) > 1
        known: dict[object, tuple[Effect, ...]] = {}
        effects: list[tuple[Effect, ...]] = []
        for placement, link in zip(source, topology.links, strict=True):
            key = (placement, link)
            if key not in known:
                known[key] = _effects(placement, options, link)
            effects.append(known[key])
        self.effects = tuple(effects)
        self.start = PrefixPrice(0.0, 0.0 if self._nested else self._gib, 0, (), 0.0)

    def bounds(self, options: Sequence[Collection[int]]) -> Bounds:
        """Bound what is still to come.

        Args:
            options: `options[mesh_dim]`, indices of the options that are open there.
        """
        # A detour never leaves fewer bytes than the straight way, though it may cost less.
        least = [
            min([_factor(effects[at].straight) for at in there])
            for effects, there in zip(self.effects, options, strict=True)
        ]
        factors = [1.0]
        for factor in reversed(least):
            factors.append(factors[-1] * factor)
        factors.reverse()
        added: list[tuple[float, ...]] = []
        gib = self._gib
        for mesh_dim, effects in enumerate(self.effects):
            if self._nested:
                further_in = self._gib * factors[mesh_dim + 1]
                added.append(
                    tuple(
                        [
                            min(_add(e.straight, further_in), _add(e.detour, further_in))
                            for e in effects
                        ]
                    )
                )
            else:
                added.append(tuple([_add(effect.straight, gib) for effect in effects]))
                gib *= least[mesh_dim]
        return Bounds(tuple(factors), tuple(added))

    def choose(
        self, before: PrefixPrice, mesh_dim: int, option: int, factor: float = 0.0
    ) -> PrefixPrice:
        """Choose the next mesh dim's target.

        Args:
            before: what is chosen on all mesh dims further out.
            mesh_dim: the mesh dim to choose, the outermost that is open.
            option: index of its target.
            factor: `Bounds.factors` of the next mesh dim; 0.0 is always admissible.
        """
        effect = self.effects[mesh_dim][option]
        one = effect.straight
        if self._nested and effect.tensor_dim >= 0 and before.unsettled >> effect.tensor_dim & 1:
            one = effect.detour
        fixed, carried, rates = before.fixed, before.carried, before.rates
        if one is not None:
            rates = (*rates, one)
            if self._nested:
                fixed += one.fixed
                carried = carried * one.factor + one.per_gib * self._gib
            else:
                fixed += one.fixed + one.per_gib * carried
                carried *= one.factor
        if mesh_dim + 1 == len(self.effects):
            floor = self._price(rates)
        else:
            floor = fixed + carried * factor if self._nested else fixed
        return PrefixPrice(fixed, carried, before.unsettled | effect.unsettles, rates, floor)

    def _price(self, rates: tuple[Rate, ...]) -> float:
        """Add up as torch does: inside out if the tensor is cut, else outside in."""
        gib = self._gib
        total = 0.0
        for one in reversed(rates) if self._nested else rates:
            gib *= one.grows
            total += one.microseconds(gib)
            gib /= one.shrinks
        return total


def _factor(one: Rate | None) -> float:
    return 1.0 if one is None else one.factor


def _add(one: Rate | None, gib: float) -> float:
    return 0.0 if one is None else one.fixed + one.per_gib * gib


def _effects(
    source: Placement, options: Sequence[Placement], link: tuple[int, float, float]
) -> tuple[Effect, ...]:
    cut = 1 << source.tensor_dim if isinstance(source, Shard) else 0
    whole = isinstance(source, Replicate)
    clear = None if whole else rate(collective_of(source, REPLICATE), *link)
    stay = Effect(None, None, -1, 0)
    found: list[Effect] = []
    for option in options:
        if isinstance(option, Shard):
            if option == source:
                found.append(Effect(None, clear, option.tensor_dim, 0))
                continue
            straight = rate(collective_of(source, option), *link)
            found.append(Effect(straight, clear, option.tensor_dim, cut | 1 << option.tensor_dim))
        elif option == source or (whole and isinstance(option, Partial)):
            found.append(stay)  # turning a whole tensor into a partial one is local and free
        else:
            straight = rate(collective_of(source, option), *link)
            found.append(Effect(straight, straight, -1, cut))
    return tuple(found)
