"""What a lock holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic import ConfigDict

Format: TypeAlias = Literal["dtensor-registry lock, format 2"]
FORMAT: Format = "dtensor-registry lock, format 2"
"""What says that a file is a lock, and of which format."""

TORCH = "torch"
"""Plugin of an op that a plugin has a rule for and torch rules all the same."""

PENDING = "pending"
"""In place of rows: the op did not exist, since its library was not imported."""

UNASKED = "?"
"""In place of rows: no generated call of the op was one that the rule answers."""


@dataclass(frozen=True, slots=True)
class LockedOp:
    """Who rules one op, by what.

    Attributes:
        op: the overload; the name as contributed while it does not exist.
        plugin: who rules it: a plugin, or `torch`.
        distribution: who ships the rule, with its version; empty for torch.
        in_torch: whether torch has a rule of its own for the op.
        rule: a template as it prints, or a function's name with a hash of what it does.
        rows: what the rule answers for a typical call; `(PENDING,)`, `(UNASKED,)`, or nothing.
    """

    op: str
    plugin: str
    distribution: str
    in_torch: bool
    rule: str
    rows: tuple[str, ...]

    @property
    def is_pending(self) -> bool:
        """Whether the op did not exist."""
        return self.rows == (PENDING,)

    @property
    def owner(self) -> str:
        """Who rules the op, for people.

        >>> LockedOp("aten.mm.default", "acme", "acme-rules 1.2", True, "", ()).owner
        'acme (acme-rules 1.2)'
        """
        return f"{self.plugin} ({self.distribution})" if self.distribution else self.plugin


@dataclass(frozen=True, slots=True)
class Lock:
    """The resolved rules of one environment.

    Attributes:
        ground: what all rules stand on, by name: versions, and settings that count.
        ops: sorted by op, each once.
        format: that of the file.

    Raises:
        ValueError: if an op is there twice.
    """

    ground: Mapping[str, str]
    ops: tuple[LockedOp, ...]
    format: Format = FORMAT

    # What is printed has every field.
    __pydantic_config__ = ConfigDict(json_schema_serialization_defaults_required=True)

    def __post_init__(self) -> None:
        twice = [op for op, count in Counter(op.op for op in self.ops).items() if count > 1]
        if twice:
            raise ValueError(f"{twice[0]} is there twice")
