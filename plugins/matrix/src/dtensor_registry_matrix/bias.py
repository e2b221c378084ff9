"""A product with a bias added: `beta * bias + alpha * product`.

The bias follows the output. Where the output is cut, the bias is cut on the same dim, or
stays whole if it is broadcast along it. Where the output is `P(sum)` the bias must be
`P(sum)` too: a whole bias would be added once by every rank. `alpha` and `beta` scale all
terms alike and change nothing, `beta=0` included, with which the bias is not read.

Source: `sum_r (beta * bias_r + alpha * p_r) = beta * sum_r bias_r + alpha * sum_r p_r`, and
the same for an average. The average of equal terms is the term itself, so beside an average a
whole bias or a whole product passes as well: see `averages`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from dtensor_registry import REPLICATE, ShardingPlaceholder, einsum, is_tensor, tensor_inputs


@dataclass(frozen=True, slots=True)
class Biased:
    """The rule of an op `(bias, *operands)` that adds a bias to the product of `equation`.

    Attributes:
        equation: of the product.
        averages: whether to give the rows of `P(avg)` with a whole bias or a whole product.
            Without them an op that writes to a `P(avg)` has no way for operands of `P(sum)` or
            a cut bias, which torch can make whole but not an average. torch's own rules, those
            of `addmm` and `baddbmm`, have none.

    >>> str(Biased("mk,kn->mn"))
    'biased(mk,kn->mn)'
    """

    equation: str
    averages: bool = False

    def __post_init__(self) -> None:
        einsum(self.equation)  # raises here, where it is written, rather than at the first call

    def __call__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[Any]]:
        """Return the rows for one call: output, bias, operands, then `out` if it is given."""
        bias, *operands = _operands(args, kwargs)
        rows = list(_rows(self.equation, op, operands, bias))
        averages = [row for row in rows if str(row[0]) == "P(avg)"] if self.averages else []
        if averages:
            whole = [REPLICATE] * len(operands)
            if not _is_in_place(op):  # such an op's bias is its output
                rows += [(average, REPLICATE, inputs) for average, _, inputs in averages]
            rows.append((averages[0][0], averages[0][0], whole))
        return [[output, entry, *inputs, *_out(output, kwargs)] for output, entry, inputs in rows]

    def __str__(self) -> str:
        return f"biased({self.equation})"


def addmv_rows(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[Any]]:
    """Return the rows of `addmv(bias, mat, vec)`; beside a broadcast bias nothing is cut.

    A rank may hold an empty piece (4 elements on 3 ranks: 2, 2, 0). Given one and a bias of one
    element, torch's kernel returns a tensor of the bias' shape instead of (M,).

    Source: `torch.addmv(torch.ones(1), torch.ones(0, 2), torch.ones(2))` has shape (1,) in
    torch 2.13; the tests of this plugin check that it is still so.
    """
    bias, mat, _ = _operands(args, kwargs)
    rows = Biased("mk,k->m", averages=True)(op, args, kwargs)
    if bias.shape and (_is_one(mat.shape[0]) or not _is_one(bias.shape[0])):
        return rows
    return [row for row in rows if not any(isinstance(p, ShardingPlaceholder) for p in row)]


def linear_rows(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[Any]]:
    """Return the rows of `linear(input, weight, bias=None)`.

    Shapes: input (*batch, K), weight (N, K) or (K,), bias (N,), output (*batch, N) or (*batch,).
    `aten.linear.default` reaches DTensor only under `torch.inference_mode`; elsewhere it
    arrives as `mm` or `addmm`, between views.

    Source: the documentation of `torch.nn.functional.linear`, `y = x A^T + b`.
    """
    x, weight, *rest = _operands(args, kwargs)
    batch = ascii_uppercase[: len(x.shape) - 1]
    n = "n" if len(weight.shape) == 2 else ""
    bias = rest[0] if rest else None
    return [
        [output, *inputs, *([] if bias is None else [entry]), *_out(output, kwargs)]
        for output, entry, inputs in _rows(f"{batch}k,{n}k->{batch}{n}", op, (x, weight), bias)
    ]


def _operands(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    return tensor_inputs(args, {name: value for name, value in kwargs.items() if name != "out"})


def _out(output: Any, kwargs: dict[str, Any]) -> list[Any]:
    return [output] if is_tensor(kwargs.get("out")) else []


def _rows(
    equation: str, op: Any, operands: Sequence[Any], bias: Any
) -> Iterator[tuple[Any, Any, list[Any]]]:
    """Yield, for each row of the product, the output's, the bias' and the operands' entries."""
    product = einsum(equation)
    rows = product(op, tuple(operands), {})
    sizes = {
        letter: size
        for letters, operand in zip(product.operands, operands, strict=True)
        for letter, size in zip(letters, operand.shape, strict=True)
    }
    shape = [sizes[letter] for letter in product.output]
    if bias is not None and _is_in_place(op) and not _is_shape(bias.shape, shape):
        return  # The op resizes what it writes to, which no placement survives.
    for output, *inputs in rows:
        yield output, None if bias is None else _bias_entry(output, shape, bias.shape), inputs


def _bias_entry(output: Any, output_shape: Sequence[Any], bias_shape: Sequence[Any]) -> Any:
    if not isinstance(output, ShardingPlaceholder):
        return output
    dim = output.dim - len(output_shape) + len(bias_shape)
    if dim < 0 or (_is_one(bias_shape[dim]) and not _is_one(output_shape[output.dim])):
        return REPLICATE
    return ShardingPlaceholder(dim)


def _is_in_place(op: Any) -> bool:
    # `aten.addbmm_.default`. Source: "Func: name" in torch's aten/src/ATen/native/README.md.
    return str(op).rpartition(".")[0].endswith("_")


def _is_shape(shape: Sequence[Any], other: Sequence[Any]) -> bool:
    # Sizes known at run time only are taken to be equal: torch checks an in-place op's then.
    return len(shape) == len(other) and not any(
        isinstance(a, int) and isinstance(b, int) and a != b
        for a, b in zip(shape, other, strict=True)
    )


def _is_one(size: Any) -> bool:
    # A symbolic size is never 1: torch makes a plain int of that.
    return isinstance(size, int) and size == 1
