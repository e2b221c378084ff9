"""The structure plugin: its table, the rows of each family, and the ops that it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import dtensor_registry as dr
import dtensor_registry_structure
from dtensor_registry.placements import parse_placements, show_placements
from dtensor_registry.rules import TensorMeta
from dtensor_registry_kit import check_installed, check_row
from dtensor_registry_structure.refused import REFUSED
from dtensor_registry_structure.rules import STRATEGIES

README = Path(__file__).parents[1] / "README.md"
NAMES = [name for strategy in STRATEGIES for name in strategy.names]
RULES = {name: strategy.rule for strategy in STRATEGIES for name in strategy.names}


def overload(name: str) -> Any:
    namespace, packet, kind = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), kind)


def rows_of(name: str, *args: Any, **kwargs: Any) -> list[str]:
    def meta(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return TensorMeta(tuple(value.shape), value.stride(), value.dtype)
        return value

    named = {key: meta(value) for key, value in kwargs.items()}
    rows = RULES[name](overload(name), tuple(map(meta, args)), named)
    return [show_placements(row).replace("?", "") for row in rows]


def numbers(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def test_the_hook_gives_the_table() -> None:
    assert dtensor_registry_structure.provide_single_dim_strategy() == STRATEGIES


def test_the_table_is_alphabetical_and_names_each_op_once() -> None:
    firsts = [strategy.names[0].split(".")[1] for strategy in STRATEGIES]
    assert firsts == sorted(firsts)
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize("name", [*NAMES, *REFUSED])
def test_every_name_is_an_overload_of_torch(name: str) -> None:
    assert str(overload(name)) == name


def test_importing_the_plugin_does_not_import_torch() -> None:
    program = "import sys, dtensor_registry_structure; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_new_tensor_is_cut_as_its_model_and_never_partial() -> None:
    rows = rows_of("aten.ones_like.default", numbers(4, 6))
    assert rows[:2] == ["S(0), S(0)", "S(1), S(1)"]
    assert {row.split(", ")[0] for row in rows[2:]} == {"R"}
    wrong = parse_placements("P(sum), P(sum)")
    assert check_row(torch.ops.aten.ones_like.default, (numbers(4, 6),), {}, wrong, 2).is_wrong


def test_the_gradient_of_a_partial_divisor_is_right() -> None:
    # torch begins it with `empty_like(divisor).fill_(1)`.
    call = ((numbers(5, 5), numbers(5, 1), numbers(1, 5) + 10), {})
    comes = "P(sum), P(sum); P(sum), P(sum); R, P(sum)"
    allowed = ("dtensor-registry-pointwise", "dtensor-registry-structure")
    first = ["pointwise", "structure", "torch"]  # torch's own rule of fill_ is wrong for partials
    with dr.install(allowed=allowed, order=first):
        report = check_installed(torch.ops.aten.addcdiv.default, [call], [(2, 2)], inputs=comes)
    assert report.is_trusted, str(report)


def test_equal_takes_shards_of_both_and_no_partial() -> None:
    assert rows_of("aten.equal.default", numbers(4, 6), numbers(4, 6)) == [
        "S(0), S(0)",
        "S(1), S(1)",
    ]
    assert rows_of("aten.equal.default", numbers(4, 6), numbers(4, 5)) == []


# Op, arguments, rows of shards.
CASES = [
    (
        "aten.slice_scatter.default",
        (numbers(3, 4, 5), numbers(3, 2, 5), 1, 1, 3),
        ["S(0), S(0), S(0)", "S(2), S(2), S(2)"],
    ),
    (
        "aten.slice_scatter.default",
        (numbers(3, 4), numbers(1, 2), 1, 1, 3),
        ["S(0), S(0), R"],
    ),
    (
        "aten.select_scatter.default",
        (numbers(3, 4, 5), numbers(3, 5), -2, 1),
        ["S(0), S(0), S(0)", "S(2), S(2), S(1)"],
    ),
    (
        "aten.scatter_reduce.two",
        (numbers(3, 4), 0, torch.zeros(3, 4).long(), numbers(3, 4), "sum"),
        ["S(1), S(1), S(1), S(1)", "P(sum), P(sum), S(0), S(0)"],
    ),
    (
        "aten.scatter_reduce.two",
        (numbers(3, 4), 0, torch.zeros(5, 3).long(), numbers(5, 3), "amax"),
        ["P(max), P(max), S(0), S(0)"],
    ),
    (
        "aten._cdist_forward.default",
        (numbers(2, 4, 3), numbers(2, 5, 3), 2.0, None),
        ["S(0), S(0), S(0)", "S(1), S(1), R", "S(2), R, S(1)"],
    ),
    (
        "aten._cdist_forward.default",
        (numbers(4, 3), numbers(5, 3), 1.0, None),
        ["S(0), S(0), R", "S(1), R, S(0)", "P(sum), S(1), S(1)"],
    ),
    ("aten.searchsorted.Tensor", (numbers(6), numbers(2, 3)), ["S(0), R, S(0)", "S(1), R, S(1)"]),
    (
        "aten.searchsorted.Tensor",
        (numbers(2, 6), numbers(2, 3)),
        ["S(0), S(0), S(0)", "S(1), R, S(1)"],
    ),
    ("aten.histogram.bins_tensor", (numbers(5), numbers(4)), ["P(sum), R, S(0), R"]),
    ("aten.histogram.bin_ct", (numbers(5), 4), []),
    (
        "aten._embedding_bag.default",
        (numbers(4, 5), torch.zeros(3).long(), torch.zeros(2).long(), False, 2),
        ["S(1), R, R, S(1), S(1), R, R"],
    ),
    (
        "aten.avg_pool2d_backward.default",
        (numbers(2, 3, 4, 4), numbers(2, 3, 5, 5), [2, 2], [1, 1], [0, 0], False, True, None),
        ["S(0), S(0), S(0)", "S(1), S(1), S(1)"],
    ),
    (
        "aten.multi_margin_loss_backward.default",
        (numbers(1)[0], numbers(4, 3), torch.zeros(4).long(), 1, 1.0, None, 2),
        ["S(0), R, S(0), S(0)"],
    ),
]


@pytest.mark.parametrize(("name", "args", "wanted"), CASES)
def test_what_is_cut_and_how(name: str, args: tuple[Any, ...], wanted: list[str]) -> None:
    assert [row for row in rows_of(name, *args) if "S" in row] == wanted


WRONG = [
    (
        "aten.scatter_reduce.two",
        (
            numbers(3, 4),
            0,
            torch.zeros(3, 4).long(),
            numbers(3, 4),
            "sum",
        ),
        "P(sum), R, S(0), S(0)",
        "what is there before is added once per rank",
    ),
    (
        "aten.slice_scatter.default",
        (numbers(4, 4), numbers(2, 4), 0, 1, 3),
        "S(0), S(0), R",
        "each rank writes at a place counted in its own piece",
    ),
    (
        "aten._cdist_forward.default",
        (numbers(4, 3), numbers(5, 3), 2.0, None),
        "P(sum), S(1), S(1)",
        "a root of a sum is no sum of roots",
    ),
    (
        "aten.bincount.default",
        (torch.tensor([1, 5, 0, 0]),),
        "P(sum), S(0)",
        "a rank with smaller values has a shorter result",
    ),
]


@pytest.mark.parametrize(("name", "args", "row", "why"), WRONG)
def test_a_row_that_is_not_there_is_wrong(
    name: str, args: tuple[Any, ...], row: str, why: str
) -> None:
    assert row not in rows_of(name, *args)
    assert check_row(overload(name), args, {}, parse_placements(row), 2).is_wrong, why


def test_the_kernel_of_weight_norm_dies_on_empty_pieces_until_torch_2_15() -> None:
    program = (
        "import torch; z = torch.zeros;"
        "torch.ops.aten._weight_norm_interface_backward("
        "z(0, 4), z(0, 4), z(0, 1), z(0, 1), 0)"
    )
    ended = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    # `allow_empty_pieces=False` can go from its rule once 2.15 is the oldest torch in range.
    assert (ended.returncode < 0) == (torch.__version__ < "2.15")


def test_refused_ops_have_no_rule_and_stand_in_the_readme_with_their_reason() -> None:
    assert not set(REFUSED) & set(NAMES)
    table = [f"| `{name}` | {reason} |" for name, reason in sorted(REFUSED.items())]
    assert "\n".join(table) in README.read_text()


def test_rules_print_by_name() -> None:
    assert str(RULES["aten.equal.default"]) == "equal"
    assert str(RULES["aten.avg_pool2d_backward.default"]) == "planes(2)"
