"""One correction as data: the rows, why they are wrong, and the smallest call that shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dtensor_registry import WrongRows, wrong_rows

_LENGTH = 4
"""Elements of a tensor of which an example gives one number; enough for a cut on some ranks."""


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor of an example.

    Attributes:
        dtype: without `torch.`.
        first: what rank 0 holds; a number stands for four elements of it.
        second: what rank 1 holds; None: as rank 0, and where a row cuts the tensor, the whole.
    """

    dtype: str
    first: Any
    second: Any = None

    def parts(self) -> tuple[Any, Any]:
        """Make the tensors of the two ranks."""
        import torch

        def tensor(value: Any) -> Any:
            listed = value if isinstance(value, list) else [value] * _LENGTH
            return torch.tensor(listed, dtype=getattr(torch, self.dtype))

        return tensor(self.first), tensor(self.first if self.second is None else self.second)

    def __str__(self) -> str:
        if self.second is None:
            return f"{self.dtype} {self.first}"
        return f"{self.dtype} {self.first} and {self.second}"


@dataclass(frozen=True, slots=True)
class Dtype:
    """A dtype among the arguments of an example, by name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Example:
    """A call on two ranks for which a row is wrong.

    Attributes:
        row: the row.
        args: positional arguments.
        kwargs: keyword arguments, as pairs.
        refused: what is wrong is not a number: bare torch raises.
    """

    row: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()
    refused: bool = False

    def call(self, rank: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Make the arguments that the op has on one rank."""
        import torch

        def value(given: Any) -> Any:
            if isinstance(given, Held):
                return given.parts()[rank]
            return getattr(torch, given.name) if isinstance(given, Dtype) else given

        return tuple(map(value, self.args)), {name: value(given) for name, given in self.kwargs}

    def __str__(self) -> str:
        named = (f"{name}={value}" for name, value in self.kwargs)
        return ", ".join([*map(str, self.args), *named])


@dataclass(frozen=True, slots=True)
class Correction:
    """Rows of torch's that are wrong for one or more ops.

    Attributes:
        ops: overloads that share the rule's rows.
        rows: as torch's rule for the first op returns them.
        because: what is wrong, in a few words.
        examples: one for each row, for the first op.
        when: says for which calls; its docstring says it in words. None: for all.
        since: the first torch, of those that were tried, whose rule has the rows.
        until: the last.
        schema_info: what is in the cache key, where torch's own key lacks what `when` reads.
        reduces: partial operands are reduced before torch is asked, since torch 2.13 has no rows
            for the op but a rule for the whole mesh, which is wrong in the same way.
    """

    ops: tuple[str, ...]
    rows: tuple[str, ...]
    because: str
    examples: tuple[Example, ...]
    when: Callable[[Any, tuple[Any, ...], dict[str, Any]], bool] | None = None
    since: str = "2.13.0"
    until: str = "2.15.0"
    schema_info: Any = None
    reduces: bool = False

    @property
    def condition(self) -> str:
        """Say in words for which calls the rows are wrong."""
        return "always" if self.when is None else f"if {self.when.__doc__}"

    def wrong(self) -> WrongRows:
        """Write it for `without`."""
        return wrong_rows(*self.rows, because=self.because, when=self.when)
