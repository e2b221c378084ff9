"""The rule of another op, for an op of the same shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dtensor_registry.errors import InvalidContributionError
from dtensor_registry.rules.strategy import op_name


@dataclass(frozen=True, slots=True)
class Like:
    """A template that stands for whatever rule `op` has when the host resolves.

    The host replaces it by the winner's rule for `op` (a plugin's, or torch's own), so it
    is never called itself.
    """

    op: str

    def __call__(
        self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Sequence[Sequence[Any]]:
        """Refuse: a stand-in has no rows of its own."""
        raise InvalidContributionError(
            f"like({self.op!r}) was asked for rows of {op} before it was resolved;"
            " use it only as the rule of a strategy that is installed"
        )

    def __str__(self) -> str:
        return f"like({self.op})"


def like(op: object) -> Like:
    """Use the rule of `op`, whose arguments must be the same in kind and order.

    Args:
        op: the overload to take the rule of, for example `"aten.topk.default"`.

    Raises:
        InvalidContributionError: if `op` does not name one overload.

    >>> str(like("aten::mm.default"))
    'like(aten.mm.default)'
    """
    name = op_name(op)
    if name.count(".") != 2:
        raise InvalidContributionError(
            f"like({name!r}) must name one overload, e.g. '{name}.default'"
        )
    return Like(name)
