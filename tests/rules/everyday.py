"""What common models do, in one line each, and which overloads of torch that reaches.

python -m tests.rules.everyday           what DTensor can do with each of these overloads
python -m tests.rules.everyday --list    makes tests/data/everyday_ops.txt
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from dtensor_registry import install
from dtensor_registry.settings import FallbackSettings
from dtensor_registry.torch_patch.decompositions import is_decomposed
from dtensor_registry.torch_patch.fallback import refusal
from dtensor_registry.torch_patch.table_patcher import has_rule
from dtensor_registry.torch_runtime.dispatcher import dispatcher
from dtensor_registry.torch_runtime.ops import find_op

HEADER = """\
# Overloads that common models reach below autograd: what DTensor is asked for. Made by
#   python -m tests.rules.everyday --list > tests/data/everyday_ops.txt
# which runs the layers, losses and tensor functions of tests/rules/everyday.py, forward and
# backward, on plain CPU tensors (torch 2.13), and writes down every overload that takes a tensor.
# Left out, as reached from everywhere: views, in-place forms, forms with a number, comparisons,
# casts. An overload stands in the first group that reaches it.
"""
LIST = Path(__file__).parents[1] / "data" / "everyday_ops.txt"


def x(*shape: int) -> Tensor:
    return torch.rand(*shape).add_(0.1).requires_grad_()


def ids(limit: int, *shape: int) -> Tensor:
    return torch.arange(torch.Size(shape).numel()).reshape(shape) % limit


PIECES: dict[str, list[Callable[[], Any]]] = {
    "tensors": [
        lambda: torch.cat([x(2, 3), x(2, 3)]) + torch.stack([x(3), x(3)]).repeat(2, 1),
        lambda: torch.where(ids(2, 4) > 0, x(4), -x(4)).clamp(0, 1).exp().mean(),
        lambda: x(4, 6).view(2, 2, 6).transpose(0, 1).contiguous().half().sum(-1).cumsum(0),
        lambda: (x(4, 6) * x(6)).tril().split(2)[0] / x(2, 6).pow(2),
        lambda: torch.ones_like(x(3)).masked_fill(ids(2, 3).bool(), 2.0) + torch.zeros_like(x(3)),
        lambda: x(4, 4).detach().add_(1).mul_(2).copy_(x(4, 4).detach()),
        lambda: torch.equal(x(3), x(3)),
        lambda: ids(5, 8).bincount(),
        lambda: torch.histc(x(8).detach(), 4),
        lambda: torch.bernoulli(x(4).detach().clamp(0, 1)),
    ],
    "linear algebra": [
        lambda: nn.Linear(4, 5)(x(2, 4)),
        lambda: (
            torch.bmm(x(2, 3, 4), x(2, 4, 5)) + torch.baddbmm(x(2, 3, 5), x(2, 3, 4), x(2, 4, 5))
        ),
        lambda: torch.cdist(x(2, 4, 3), x(2, 5, 3)),
        lambda: torch.linalg.cholesky(x(3, 3) @ x(3, 3).T.detach() * 0 + torch.eye(3)),
        lambda: torch.linalg.qr(x(4, 3)),
        lambda: torch.linalg.svd(x(3, 3).detach()),
        lambda: torch.linalg.solve(torch.eye(3), x(3, 1)),
        lambda: torch.linalg.vector_norm(x(4)),
        lambda: nn.Bilinear(3, 4, 5)(x(2, 3), x(2, 4)),
        lambda: torch.einsum("bi,bj->bij", x(2, 3), x(2, 4)),
        lambda: F.cosine_similarity(x(2, 3), x(2, 3)),
    ],
    "indexing": [
        lambda: nn.Embedding(5, 4)(ids(5, 2, 3)),
        lambda: nn.EmbeddingBag(5, 4)(ids(5, 2, 3)),
        lambda: x(4, 3).gather(1, ids(3, 4, 2)),
        lambda: x(4, 3)[ids(4, 6)],
        lambda: x(4, 3)[0, 1:],
        lambda: x(4, 3).index_select(0, ids(4, 2)),
        lambda: torch.zeros(3, 4).index_add(0, ids(3, 6), x(6, 4)),
        lambda: torch.zeros(3, 4).scatter_add(0, ids(3, 6, 4), x(6, 4)),
        lambda: torch.zeros(3, 4).scatter(0, ids(3, 3, 4), x(3, 4)),
        lambda: torch.zeros(3, 4).scatter_reduce(0, ids(3, 6, 4), x(6, 4), "amax"),
        lambda: x(4).detach().masked_select(ids(2, 4).bool()),
        lambda: ids(2, 4).nonzero(),
        lambda: x(4, 3).repeat_interleave(ids(3, 4), dim=0),
        lambda: torch.slice_scatter(x(4, 3).detach(), x(2, 3).detach(), 0, 1, 3),
        lambda: F.one_hot(ids(3, 4)),
    ],
    "sorting": [
        lambda: x(4, 6).sort()[0],
        lambda: x(4, 6).topk(2)[0],
        lambda: x(4, 6).max(1)[0],
        lambda: x(4, 6).argmax(1),
        lambda: torch.searchsorted(torch.arange(6.0), x(4).detach()),
        lambda: torch.bucketize(x(4).detach(), torch.arange(6.0)),
        lambda: ids(3, 8).unique(),
        lambda: ids(3, 8).unique_consecutive(),
        lambda: torch.median(x(5)),
    ],
    "pooling and convolution": [
        lambda: nn.Conv2d(3, 4, 3)(x(2, 3, 8, 8)),
        lambda: F.avg_pool2d(x(2, 3, 8, 8), 2),
        lambda: F.max_pool2d(x(2, 3, 8, 8), 2),
        lambda: F.max_pool3d(x(2, 3, 4, 4, 4), 2),
        lambda: F.adaptive_avg_pool2d(x(2, 3, 8, 8), 4),
        lambda: F.adaptive_max_pool2d(x(2, 3, 8, 8), 4),
        lambda: F.interpolate(x(2, 3, 8, 8), scale_factor=2, mode="bilinear"),
        lambda: F.pad(x(2, 3, 8, 8), (1, 1, 1, 1), mode="replicate"),
        lambda: F.pad(x(2, 3), (1, 1)),
        lambda: F.unfold(x(2, 3, 8, 8), 2),
    ],
    "normalisation and activation": [
        lambda: nn.LayerNorm(4)(x(2, 4)),
        lambda: nn.RMSNorm(4)(x(2, 4)),
        lambda: nn.GroupNorm(2, 4)(x(2, 4, 3)),
        lambda: nn.BatchNorm1d(4)(x(3, 4)),
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 5))(x(2, 4)),
        lambda: F.dropout(x(2, 4), 0.5),
        lambda: F.silu(F.gelu(F.relu(x(2, 4)))),
        lambda: F.softmax(x(2, 4), -1).log().tanh().sigmoid(),
        lambda: F.glu(x(2, 4)),
        lambda: F.hardshrink(F.softshrink(x(2, 4))),
    ],
    "attention": [
        lambda: F.scaled_dot_product_attention(x(2, 2, 4, 4), x(2, 2, 4, 4), x(2, 2, 4, 4)),
        lambda: nn.MultiheadAttention(4, 2)(x(3, 2, 4), x(3, 2, 4), x(3, 2, 4))[0],
        lambda: nn.utils.rnn.pack_padded_sequence(x(3, 2, 4), torch.tensor([3, 2])).data,
    ],
    "losses": [
        lambda: F.cross_entropy(x(4, 3), ids(3, 4)),
        lambda: F.mse_loss(x(4), x(4)) + F.l1_loss(x(4), x(4)),
        lambda: F.binary_cross_entropy_with_logits(x(4), torch.ones(4)),
        lambda: F.kl_div(x(4, 3).log(), x(4, 3)),
        lambda: F.multi_margin_loss(x(4, 3), ids(3, 4)),
        lambda: F.ctc_loss(
            x(5, 2, 4).log_softmax(-1), ids(3, 2, 3) + 1, torch.tensor([5, 5]), torch.tensor([3, 2])
        ),
    ],
}
"""By group; each is run forward and, if it has a gradient, backward."""

COMPARISONS = ("eq", "ge", "gt", "isnan", "le", "bitwise_and", "logical_and")
SERVICES = ("_linalg_check_errors", "_local_scalar_dense", "_to_copy", "lift_fresh")
VIEWS = ("_unsafe_view", "new_empty_strided")


def is_plumbing(op: Any) -> bool:
    """Say whether an overload is reached from everywhere, so that it tells nothing of a group.

    Views, in-place forms, forms with a number, comparisons, and what torch calls for itself:
    all of them have rules in torch.
    """
    name = op._schema.name.removeprefix("aten::")
    reads_number = op._overloadname == "Scalar"
    return (
        op.is_view
        or name.endswith("_")
        or reads_number
        or name in (*COMPARISONS, *SERVICES, *VIEWS)
    )


class _Overloads(TorchDispatchMode):
    """Writes down what gets below autograd: what DTensor would be asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        takes_tensor = any("Tensor" in str(a.type) for a in func._schema.arguments)
        if takes_tensor and not is_plumbing(func):
            self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def overloads() -> dict[str, list[str]]:
    """Run everything; list what is reached by group, each overload in the first that reaches it."""
    found: dict[str, list[str]] = {}
    known: set[str] = set()
    for group, pieces in PIECES.items():
        mode = _Overloads()
        for piece in pieces:
            torch.manual_seed(0)
            with mode, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = piece()
                for value in made if isinstance(made, tuple) else (made,):
                    if isinstance(value, Tensor) and value.requires_grad:
                        value.sum().backward()
                        break
        found[group] = sorted(set(mode.seen) - known)
        known |= set(mode.seen)
    return found


def listed() -> list[str]:
    """Read the list."""
    lines = LIST.read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def support(op: Any, *, falls_back: bool) -> str:
    """Say what DTensor does with an op as things are: with or without an installation."""
    if op in dispatcher()._custom_op_handlers or has_rule(op):
        return "rule"
    if is_decomposed(op):
        return "decomposition"
    return "fallback" if falls_back and refusal(op, []) is None else "nothing"


def counted() -> dict[str, dict[str, str]]:
    """Say it of every listed overload, for torch alone and for all plugins that there are."""
    ops = {name: find_op(name) for name in listed()}
    alone = {name: support(op, falls_back=False) for name, op in ops.items()}
    with install(fallback=FallbackSettings(mode="silent")):
        together = {name: support(op, falls_back=True) for name, op in ops.items()}
    return {f"torch {torch.__version__}": alone, "all plugins": together}


def main() -> None:
    if "--list" in sys.argv:
        print(HEADER, end="")
        for group, names in overloads().items():
            print(f"\n# {group}", *names, sep="\n")
        return
    kinds = ("rule", "decomposition", "fallback", "nothing")
    print(f"{'':16}", *(f"{kind:>14}" for kind in kinds))
    found = counted()
    for who, what in found.items():
        counts = Counter(what.values())
        print(f"{who:16}", *(f"{counts[kind]:>14}" for kind in kinds))
    for who, what in found.items():
        print(
            f"\nnothing, {who}:", *(f"  {n}" for n, k in what.items() if k == "nothing"), sep="\n"
        )


if __name__ == "__main__":
    main()
