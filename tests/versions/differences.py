"""What is known to differ between the versions of torch in range: data, with what follows for us.

`docs/versions.md` has the table: python -m tests.versions.differences. The tests look each line up
in the running torch, so that a torch which does a thing otherwise than expected fails them.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Shard
from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy

from dtensor_registry.placements import show_placements
from dtensor_registry.torch_runtime.conversion import from_torch

PAGE = Path(__file__).parents[2] / "docs" / "versions.md"
MARKS = "<!-- differences: begin -->", "<!-- differences: end -->"
aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that torch does otherwise since some version.

    Attributes:
        name: for the tests.
        since: the first of the tested versions that does it so.
        what: is looked at.
        before: what is seen in the versions before.
        after: what is seen since.
        follows: what it means for the host or a plugin.
        seen: looks it up in the running torch, given a mesh of two ranks.
    """

    name: str
    since: str
    what: str
    before: str
    after: str
    follows: str
    seen: Callable[[DeviceMesh], str]

    @property
    def expected(self) -> str:
        """What the running torch should show."""
        return self.after if torch.__version__ >= self.since else self.before


def table_of(op: Any) -> Callable[[DeviceMesh], str]:
    """Look up in which of torch's tables an op has its rule."""

    def seen(mesh: DeviceMesh) -> str:
        propagator = DTensor._op_dispatcher.sharding_propagator
        if op in propagator.op_single_dim_strategy_funcs:
            return "for one mesh dim"
        return "for the whole mesh" if op in propagator.op_strategy_funcs else "none"

    return seen


def first_argument(mesh: DeviceMesh) -> str:
    return str(aten._pdist_backward.default._schema.arguments[0].name)


def last_keyword(mesh: DeviceMesh) -> str:
    return list(inspect.signature(distributed_c10d._new_process_group_helper).parameters)[-1]


def check_of_choices(mesh: DeviceMesh) -> str:
    names = inspect.signature(expand_to_full_mesh_op_strategy).parameters
    return next(n for n in ("is_valid_strategy_cb", "full_mesh_strategy_filter") if n in names)


def clone_of_a_sum(mesh: DeviceMesh) -> str:
    pending = DTensor.from_local(torch.ones(4), mesh, [Partial("sum")])
    return show_placements([from_torch(p) for p in pending.clone().placements])


def shard_to_sum(mesh: DeviceMesh) -> str:
    cut = DTensor.from_local(torch.ones(4), mesh, [Shard(0)], run_check=False)
    try:
        moved = cut.redistribute(mesh, [Partial("sum")])
    except RuntimeError:
        return "refused"
    return show_placements([from_torch(p) for p in moved.placements])


def weight_norm_of_nothing(mesh: DeviceMesh) -> str:
    """Run the kernel in a process of its own, which it may end."""
    call = "torch.ops.aten._weight_norm_interface_backward(z(0, 4), z(0, 4), z(0, 1), z(0, 1), 0)"
    program = f"import torch; z = torch.zeros; {call}"
    ended = subprocess.run([sys.executable, "-c", program], timeout=120, check=False)
    return "ends the process" if ended.returncode < 0 else "is computed"


DIFFERENCES = (
    Difference(
        "argument of pdist_backward",
        "2.14",
        "the first argument of `aten._pdist_backward`",
        "grad",
        "grad_output",
        "the rule in `structure` names it with `aliases={'grad': 'grad_output'}`",
        first_argument,
    ),
    Difference(
        "table of topk",
        "2.14",
        "torch's rule for `aten.topk` (as for about 140 other ops: cat, sum, ...)",
        "for the whole mesh",
        "for one mesh dim",
        "until 2.13 it is torch's function that expands it; since then it has rows, which the host"
        " expands (`torch_rules`), `explain` shows and `verify` checks",
        table_of(aten.topk.default),
    ),
    Difference(
        "table of dot",
        "2.14",
        "torch's rule for `aten.dot`",
        "for the whole mesh",
        "for one mesh dim",
        "as above; its rows are those of `matrix`",
        table_of(aten.dot.default),
    ),
    Difference(
        "table of unbind",
        "2.15",
        "torch's rule for `aten.unbind.int`",
        "for the whole mesh",
        "for one mesh dim",
        "as above",
        table_of(aten.unbind.int),
    ),
    Difference(
        "clone of a pending sum",
        "2.14",
        "the clone of a DTensor that is `P(sum)`",
        "R",
        "P(sum)",
        "no rule of ours takes the place of torch's, so a clone is placed as on bare torch;"
        " `x.clone().relu_()` is refused since 2.14, as it is on bare torch",
        clone_of_a_sum,
    ),
    Difference(
        "shard to sum",
        "2.14",
        "`redistribute` from `S(0)` to `P(sum)`",
        "refused",
        "P(sum)",
        "the search counts it among the moves that torch can make; torch calls its price infinite",
        shard_to_sum,
    ),
    Difference(
        "check of choices",
        "2.14",
        "the argument of `expand_to_full_mesh_op_strategy` that leaves choices out",
        "is_valid_strategy_cb",
        "full_mesh_strategy_filter",
        "the host does not call it; what torch says where no choice is left differs, and"
        " verification knows both texts",
        check_of_choices,
    ),
    Difference(
        "keyword of new groups",
        "2.14",
        "the last keyword of the function that makes a process group",
        "group_desc",
        "enable_reconfigure",
        "the function that stands in for it in `audit` hands on whatever it is given",
        last_keyword,
    ),
    Difference(
        "weight norm of nothing",
        "2.15",
        "`aten._weight_norm_interface_backward` of no rows",
        "ends the process",
        "is computed",
        "the rule in `structure` says `allow_empty_pieces=False` until 2.15 is the oldest in range",
        weight_norm_of_nothing,
    ),
)


def table() -> str:
    """Write the table."""
    rows = [
        f"| {d.what} | {d.before} | {d.after} (since {d.since}) | {d.follows} |"
        for d in DIFFERENCES
    ]
    return "\n".join(["| in torch | before | now | what follows |", "|---|---|---|---|", *rows])


def write(page: str) -> str:
    """Put the table where it stands in the page."""
    head, rest = page.split(MARKS[0])
    _, tail = rest.split(MARKS[1])
    return f"{head}{MARKS[0]}\n{table()}\n{MARKS[1]}{tail}"


if __name__ == "__main__":
    PAGE.write_text(write(PAGE.read_text()))
