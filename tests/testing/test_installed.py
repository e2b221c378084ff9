"""`check_installed`: an op through the real dispatch of DTensor, on simulated meshes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

import dtensor_registry as dr
from dtensor_registry import REPLICATE, Partial, ShardingPlaceholder, einsum, pointwise
from dtensor_registry._torch.checking.installed import check_installed
from dtensor_registry.errors import InstallError
from dtensor_registry.verification import Report, draw

aten = torch.ops.aten
R, S, P = REPLICATE, ShardingPlaceholder, Partial
X, Y = draw((4, 6), torch.float64, 0), draw((6, 5), torch.float64, 1)
MM = [((X, Y), {})]


def under(op: Any, rule: Any, calls: Any, **options: Any) -> Report:
    """Check an op while a rule is in force."""
    with dr.register_single_dim_strategy(op)(rule):
        return check_installed(op, calls, rule=rule, **options)


@pytest.mark.parametrize(
    ("op", "rule", "calls"),
    [
        (aten.mm.default, einsum("mk,kn->mn"), MM),
        (aten.add.Tensor, pointwise(linear=[(0, 1)]), [((X, X[0]), {})]),
        (aten.tanh.default, pointwise(), [((X,), {})]),
        (aten.relu_.default, pointwise(), [((X,), {})]),
        (aten.add.out, pointwise(linear=[(0, 1)]), [((X, X), {"out": torch.zeros_like(X)})]),
    ],
    ids=str,
)
def test_a_right_rule_is_right_on_every_mesh_forward_and_backward(
    op: Any, rule: Any, calls: Any
) -> None:
    report = under(op, rule, calls)
    assert report.errors == (), str(report)
    assert report.owner == "local"
    for ranks in ("2 ranks", "4 ranks", "2x2 ranks"):
        assert any(start.endswith(f"on {ranks}") for start in report.sound)


def test_every_row_gets_its_turn_on_the_first_mesh_dim() -> None:
    report = under(aten.mm.default, einsum("mk,kn->mn"), MM, mesh_shapes=((2,),), draws=0)
    assert set(report.sound) == {
        f"inputs {inputs} on 2 ranks"
        for inputs in (
            "S(0); R",
            "S(1); S(0)",
            "R; S(1)",
            "P(sum); R",
            "P(avg); R",
            "R; P(sum)",
            "R; P(avg)",
        )
    }


def test_a_wrong_row_is_found_with_the_choice_that_the_expansion_made() -> None:
    report = under(aten.mm.default, lambda *_: [[R, S(1), S(0)]], MM, mesh_shapes=((2,),))
    finding = report.errors[0]
    assert finding.kind == "dispatch"
    assert finding.about == "inputs S(1); S(0) on 2 ranks"
    assert finding.evidence.startswith("output 0 on rank 0 at [")
    assert finding.evidence.endswith("it chose R <- S(1); S(0)")


def test_a_row_that_is_wrong_in_the_backward_only_is_found() -> None:
    class Forgetful(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
            return grads[0] * 3

    @torch.library.custom_op("installed::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)
    whole_gradient = 2.0

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.sharded = type(inputs[0]).__name__ == "DTensor"

    twice.register_autograd(
        lambda ctx, grad: grad * (3.0 if ctx.sharded else whole_gradient), setup_context=setup
    )
    op = torch.ops.installed.twice.default
    report = under(op, pointwise(), [((X,), {})], mesh_shapes=((2,),))
    assert [f.evidence.split(" at ")[0] for f in report.errors] == [
        "the gradient of input 0 on rank 0"
    ]


def test_a_call_that_is_refused_with_a_reason_is_no_fault() -> None:
    rule = lambda *_: [[S(0), S(0)]]  # noqa: E731
    report = under(aten.relu_.default, rule, [((X,), {})], mesh_shapes=((2,),))
    assert report.errors == ()
    assert report.combinations > len(report.sound) > 0


def test_nothing_that_ran_is_told() -> None:
    report = check_installed(aten.mm.default, [((X, X), {})])
    assert [(f.kind, f.evidence) for f in report.findings] == [
        ("untested", "nothing ran through DTensor: no sample runs")
    ]


def test_a_composite_op_is_checked_as_itself() -> None:
    calls = [((X, Y.t().contiguous()), {})]
    rule = lambda *_: [[S(0), S(0), R], [S(0), S(1), R]]  # noqa: E731
    report = under(aten.linear.default, rule, calls, mesh_shapes=((2,),))
    assert [f.about for f in report.errors] == ["inputs S(1); R on 2 ranks"]


def test_torchs_own_rule_is_checked_where_nothing_is_installed() -> None:
    report = check_installed(aten.mm.default, MM, mesh_shapes=((2,),))
    assert report.owner == "torch"
    assert report.errors == ()


def test_a_process_that_is_part_of_a_group_is_told_so(local_mesh: Any) -> None:
    local_mesh(2)
    with pytest.raises(InstallError, match="a process without a process group"):
        check_installed(aten.mm.default, MM)


def test_it_leaves_no_process_group_behind() -> None:
    check_installed(aten.mm.default, MM, mesh_shapes=((2,),))
    assert not dist.is_initialized()


def test_the_program_of_a_finding_shows_it_again() -> None:
    with dr.register_single_dim_strategy("aten.mm.default")(lambda *_: [[R, S(1), S(0)]]):
        finding = check_installed(aten.mm.default, MM, [(2, 2)], inputs="S(1), R; S(0), R").errors[
            0
        ]
        printed: list[Any] = []
        exec(finding.program, {"print": printed.append})
    assert finding.program.splitlines()[-3:] == [
        "x1 = draw([6, 5], torch.float64, seed=1)",
        "with dr.install():",
        "    print(check_installed(torch.ops.aten.mm.default, [((x0, x1), {})], [(2, 2)],"
        " inputs='S(1), R; S(0), R'))",
    ]
    assert printed[0].errors[0].about == finding.about
