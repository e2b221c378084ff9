"""torch's own way to run an op, amended where it is wrong.

`without(...)` leaves rows out of a rule of torch's. Not all that is wrong is a row: torch has
rules for whole meshes, derives rules from decompositions, and runs some ops by handlers of its
own. `amended(...)` stands before all of them: a function is shown each call before torch
decides it, and says what to do where torch would be wrong. All other calls are torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from dtensor_registry.errors import InvalidContributionError
from dtensor_registry.placements import Placements
from dtensor_registry.rules.placed import PlacedCall


@dataclass(frozen=True, slots=True)
class MoveFirst:
    """Tensors are to be redistributed; then the call is torch's.

    Attributes:
        placements: where to, by the name of the argument.
    """

    placements: Mapping[str, Placements]


@dataclass(frozen=True, slots=True)
class Compute:
    """The result is to be computed from other ops on the DTensors.

    Attributes:
        function: `(op, args, kwargs) -> result`, where tensors are DTensors. It must not come
            back to the very call that it stands for.
    """

    function: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Refuse:
    """The call is to be refused.

    Attributes:
        because: what would go wrong.
        advice: what to type instead.
    """

    because: str
    advice: str


Amendment: TypeAlias = MoveFirst | Compute | Refuse | None
"""What is to be done about one call; None: it is torch's."""


@dataclass(frozen=True, slots=True)
class Amended:
    """A template that stands for torch's own way to run an op; see `amended`.

    The host asks it once for each kind of call that torch decides, so it is never called itself.

    Attributes:
        amend: what is to be done about a call.
        because: what torch has wrong.
    """

    amend: Callable[[PlacedCall], Amendment]
    because: str

    def __call__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
        """Refuse: it has no rows."""
        raise InvalidContributionError(
            f"amended(...) was asked for rows of {op}; it stands for torch's own way to run the op"
            " and has none: use it only as the rule of a strategy that is installed"
        )

    def __str__(self) -> str:
        return f"torch's own way, amended: {self.because}"


def amended(amend: Callable[[PlacedCall], Amendment], *, because: str) -> Amended:
    """Run an op as torch does, but for the calls that torch has wrong.

    Args:
        amend: a pure function of one call; None leaves the call to torch. It must answer alike on
            all ranks.
        because: what torch has wrong, in a few words.

    >>> print(amended(lambda call: None, because="an empty piece has no maximum"))
    torch's own way, amended: an empty piece has no maximum
    """
    return Amended(amend, because)
