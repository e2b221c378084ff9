"""Contributions that won, as entries for a layer: those of now, and those of ops to come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch._ops import OpOverload

from dtensor_registry._torch.catalog import TorchCatalog, find_op
from dtensor_registry._torch.entries import single_dim_entry
from dtensor_registry._torch.loan import Entry
from dtensor_registry._torch.variants import base_of
from dtensor_registry.discovery import Contribution, Discovery
from dtensor_registry.resolution import resolve
from dtensor_registry.settings import Settings


class Winners:
    """Who wins what, of everything that was contributed.

    Attributes:
        resolution: the outcome when this was made.
    """

    def __init__(
        self, discovery: Discovery, settings: Settings, local: Sequence[Contribution] = ()
    ) -> None:
        self._discovery = discovery
        self._settings = settings
        self._local = tuple(local)
        self._names = {claim.op for claim in (*discovery.contributions, *local)}
        self._lost: set[OpOverload] = set()
        self.resolution = resolve(discovery, settings, TorchCatalog(), local)

    def entries(self) -> dict[OpOverload, Entry]:
        """Make the entries of all ops that exist.

        Raises:
            InstallError: for a rule that torch would pass over.
        """
        found: dict[OpOverload, Entry] = {}
        for name, verdict in self.resolution.verdicts.items():
            op = None if verdict.pending else find_op(name)
            if op is not None and verdict.winner is not None:
                found[op] = single_dim_entry(op, verdict.winner, self.resolution)
        return found

    def late(self, op: OpOverload) -> Entry | None:
        """Make the entry of an op that came into being since, if a contribution wins it.

        Raises:
            ConflictingStrategiesError: if two plugins of equal rank claim it.
        """
        if op in self._lost:
            return None
        base = base_of(op)
        forms = (op,) if base is None else (op, base)
        names = {n for form in forms for n in (str(form), str(form.overloadpacket))} & self._names

        def of_op(claims: Sequence[Contribution]) -> tuple[Contribution, ...]:
            return tuple(claim for claim in claims if claim.op in names)

        discovery = replace(self._discovery, contributions=of_op(self._discovery.contributions))
        now = resolve(discovery, self._settings, TorchCatalog(), of_op(self._local))
        verdict = now.verdicts.get(str(op))
        if verdict is None or verdict.winner is None:
            self._lost.add(op)
            return None
        return single_dim_entry(op, verdict.winner, self.resolution)
