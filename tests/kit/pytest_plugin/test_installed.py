"""`check_installed`: an op through the real dispatch of DTensor, on simulated meshes."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

import dtensor_registry as dr
from dtensor_registry import REPLICATE, Partial, ShardingPlaceholder, einsum, pointwise
from dtensor_registry.errors import InstallError
from dtensor_registry.settings import read_settings
from dtensor_registry_kit import Report, draw
from dtensor_registry_kit.dispatching.check_installed import check_installed
from dtensor_registry_kit.isolation import Outcome
from dtensor_registry_kit.judging.check import SEARCHING
from dtensor_registry_kit.verification import verify
from dtensor_registry_kit.verification.targets import entries_beneath, find_targets
from dtensor_registry_kit.verification.verify import Options, Task, more_careful, verify_target

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


def test_every_row_gets_its_turn_on_all_dims_of_the_first_mesh() -> None:
    meshes = ((2, 2), (2,))
    report = under(aten.mm.default, einsum("mk,kn->mn"), MM, mesh_shapes=meshes, draws=0)
    assert set(report.sound) == {
        f"inputs {left}, {left}; {right}, {right} on 2x2 ranks"
        for left, right in (
            ("S(0)", "R"),
            ("S(1)", "S(0)"),
            ("R", "S(1)"),
            ("P(sum)", "R"),
            ("P(avg)", "R"),
            ("R", "P(sum)"),
            ("R", "P(avg)"),
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


def test_an_op_that_draws_random_numbers_is_told_from_one_that_no_sample_runs_of() -> None:
    report = check_installed(aten.bernoulli.default, [((torch.full((8, 8), 0.5),), {})])
    assert [f.evidence for f in report.findings] == [
        "nothing ran through DTensor: each run of a sample gives another result"
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


FAULTY = """
    import torch
    from dtensor_registry import ShardingPlaceholder as S, SingleDimStrategy, hookimpl

    @hookimpl
    def provide_single_dim_strategy():
        yield SingleDimStrategy("aten.sin.default", lambda *_: [[S(1), S(0)]],
                                samples=lambda: [((torch.rand(4, 6),), {})])
"""


def dispatched(pattern: str, seed: int) -> list[str]:
    """Verify a rule as the command does; the programs of what goes wrong through DTensor."""
    (target,) = find_targets(read_settings(), [pattern])
    options = Options(samples=2, budget=0, seed=seed)
    report = verify_target(target, options).report
    return [f.program for f in report.errors if f.kind == "dispatch"]


def test_the_program_for_a_rule_that_is_not_in_force_puts_it_in_force(
    fake_distribution: Any,
) -> None:
    fake_distribution("faulty-rules", FAULTY)
    program = dispatched("faulty:aten.sin.default", seed=3)[0]
    assert "with dr.install(pins={'aten.sin.default': 'faulty'}):" in program
    assert ", seed=3))" in program
    printed: list[Any] = []
    exec(program, {"print": printed.append})
    assert [finding.kind for finding in printed[0].errors] == ["dispatch"]


def test_the_program_for_a_rule_of_torchs_leaves_it_to_torch() -> None:
    program = dispatched("torch:aten.__lshift__.Scalar", seed=0)[0]
    assert "install(" not in program
    printed: list[Any] = []
    exec(program, {"print": printed.append})
    assert [finding.kind for finding in printed[0].errors] == ["dispatch"]


def test_a_rule_of_torchs_runs_through_dtensor_once(monkeypatch: pytest.MonkeyPatch) -> None:
    (target,) = find_targets(read_settings(), ["torch:aten.__lshift__.Scalar"])
    runs: list[Any] = []

    def counted(*args: Any, **options: Any) -> Report:
        runs.append(args)
        return check_installed(*args, **options)

    monkeypatch.setattr(verify, "check_installed", counted)
    beneath = entries_beneath(read_settings())
    verify_target(target, Options(samples=1, budget=0), beneath=beneath)
    assert len(runs) == 1


def test_a_crash_is_not_lost_where_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    (target,) = find_targets(read_settings(), ["torch:aten.sin.default"])
    told = f"the process died (SIGSEGV) in the middle of: {SEARCHING}"

    def dying(_: Any, tasks: Any, *, deadline: float | None, **more: Any) -> Any:
        for task in tasks if deadline is None or time.monotonic() < deadline else ():
            yield Outcome(task, "died", None, told if task.options.budget else "it died again", 1.0)

    monkeypatch.setattr(verify, "run_isolated", dying)
    task = Task(read_settings(), (), target.key, Options())
    deadline = time.monotonic() + 0.05
    found = verify._outcomes([task], {target.key: target}, 1, deadline)
    monkeypatch.setattr(verify, "more_careful", lambda outcome: _wait(outcome, deadline))
    assert [v.report.errors[0].evidence for v in found] == ["it died again"]


def _wait(outcome: Any, deadline: float) -> Any:
    """Have the time run out between the crash and the second try."""
    time.sleep(max(0.0, deadline - time.monotonic() + 0.01))
    return more_careful(outcome)
