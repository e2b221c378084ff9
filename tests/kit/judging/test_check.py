"""`check` as a whole: wrong rules are caught by the right check, right ones are not flagged."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
import torch

from dtensor_registry.placements import REPLICATE, Partial, Shard, ShardingPlaceholder
from dtensor_registry.rules import einsum, pointwise
from dtensor_registry.rules.strategy import Rule, SchemaInfo
from dtensor_registry_kit import Report, check, draw, judge, run_reference

aten = torch.ops.aten
R, S, P = REPLICATE, ShardingPlaceholder, Partial
X = draw((8, 4), torch.float32, 0)
BATCH = draw((4, 6, 5), torch.float32, 1)


def rows(*listed: Any) -> Rule:
    """A rule that offers the same rows for every call."""
    return lambda op, args, kwargs: [list(row) if isinstance(row, tuple) else row for row in listed]


def told(op: Any, rule: Rule, *calls: Any, **options: Any) -> Report:
    return check(op, [(args, {}) for args in calls], rule, owner="acme 1.0", **options)


def errors(report: Report) -> list[tuple[str, str]]:
    return [(finding.kind, finding.about) for finding in report.errors]


# Cases D1-D7: rules that are wrong.


def test_d1_a_product_of_two_partials_is_unsound() -> None:
    report = told(aten.mul.Tensor, rows((P(), P(), P())), (X, X))
    assert errors(report) == [("unsound", "P(sum) <- P(sum), P(sum)")]


def test_d1_a_square_of_a_partial_is_unsound() -> None:
    report = told(aten.square.default, rows((P(), P())), (X,))
    assert errors(report) == [("unsound", "P(sum) <- P(sum)")]


def test_d2_indices_of_a_maximum_cannot_be_reduced() -> None:
    report = told(aten.max.dim, rows((P("max"), P("max"), S(0))), (X, 0))
    assert errors(report) == [("unsound", "P(max), P(max) <- S(0)")]
    assert "output 1, reduced over the ranks as P(max)," in report.errors[0].evidence


def test_d3_a_mean_over_an_uneven_split_is_unsound() -> None:
    report = told(aten.mean.dim, rows((P("avg"), S(0))), (X, [0]))
    assert errors(report) == [("unsound", "P(avg) <- S(0)")]
    assert report.errors[0].evidence.startswith("on 3 ranks: ")


def test_d4_an_elementwise_op_does_not_move_a_shard_to_another_dim() -> None:
    report = told(aten.relu.default, rows((S(1), S(0))), (X,))
    assert errors(report) == [("unsound", "S(1) <- S(0)")]


def raises(op: Any, args: Any, kwargs: Any) -> list[Any]:
    return [kwargs["dim"]]


@pytest.mark.parametrize(
    ("rule", "kind", "about", "evidence"),
    [
        (rows((S(0), S(2))), "malformed", "S(0) <- S(2)", "input 0 has S(2), but is a 2-dim"),
        (rows((S(2), S(0))), "malformed", "S(2) <- S(0)", "output 0 has S(2), but is a 2-dim"),
        (rows((S(0), Shard(-1))), "malformed", "S(0) <- S(-1)", "counted from the front"),
        (rows((S(0),)), "malformed", "() <- S(0)", "the row has 1 entries"),
        (rows((S(0), S(0), S(0))), "malformed", "S(0), S(0) <- S(0)", "the row has 3 entries"),
        (rows(("S(0)", "S(0)")), "malformed", "'S(0)' <- 'S(0)'", "which is no placement"),
        (rows("S(0), S(0)"), "malformed", "'S(0), S(0)'", "a row is a list of placements"),
        (rows(()), "malformed", "() <- ()", "the row has 0 entries"),
        (raises, "raises", "", "KeyError: 'dim'"),
    ],
)
def test_d5_what_is_no_row_is_caught_with_its_reason(
    rule: Rule, kind: str, about: str, evidence: str
) -> None:
    report = told(aten.relu.default, rule, (X,))
    assert errors(report) == [(kind, about)]
    assert evidence in report.errors[0].evidence


@pytest.mark.parametrize(
    ("other", "row", "kind"),
    [
        (draw((4,), torch.float32, 1), (S(0), S(0), S(0)), "crash"),
        (draw((4,), torch.float32, 1), (S(1), S(1), S(1)), "malformed"),
        (draw((1, 4), torch.float32, 1), (S(0), S(0), S(0)), "unsound"),
        (draw((8, 1), torch.float32, 1), (S(1), S(1), S(1)), "unsound"),
        (draw((), torch.float32, 1), (S(0), S(0), S(0)), "malformed"),
    ],
)
def test_d6_a_row_that_shards_a_broadcast_dim_is_caught(
    other: torch.Tensor, row: Any, kind: str
) -> None:
    assert [kind for kind, _ in errors(told(aten.add.Tensor, rows(row), (X, other)))] == [kind]


def test_d7_a_rule_that_never_shards_although_it_could_is_vacuous() -> None:
    report = told(aten.bmm.default, rows(), (BATCH, BATCH.mT))
    assert report.errors == ()
    assert len(report.of_kind("vacuous")) == 1
    assert "S(0) <- S(0), S(0)" in [finding.about for finding in report.of_kind("missing")]


def test_d7_a_rule_for_an_op_that_cannot_be_sharded_is_not_vacuous() -> None:
    report = told(aten.det.default, rows(), (draw((4, 4), torch.float64, 0),))
    assert report.findings == ()


# Right rules.


@pytest.mark.parametrize(
    ("op", "rule", "calls"),
    [
        (aten.mm.default, einsum("mk,kn->mn"), [(X, X.t())]),
        (aten.bmm.default, einsum("bmk,bkn->bmn"), [(BATCH, BATCH.mT)]),
        (aten.mul.Tensor, pointwise(linear=[(0,), (1,)]), [(X, X), (X, X[0]), (X, X[:1])]),
        (aten.add.Tensor, pointwise(linear=[(0, 1)]), [(X, X), (X, X[0]), (X, X[:, :1])]),
        (aten.add_.Tensor, pointwise(linear=[(0, 1)]), [(X, X), (X, X[0])]),
        (aten.tanh.default, pointwise(), [(X,), (X[0, 0],), (X[:1],)]),
        (aten.eq.Tensor, pointwise(), [(X, X.abs())]),
        (aten.logical_and.default, pointwise(), [(X > 0.5, X < 1)]),
        (aten.amax.default, rows((P("max"), S(0)), (S(0), S(1))), [(X, [0])]),
        (aten.any.dim, rows((P(), S(0)), (S(0), S(1))), [(X > 1, 0)]),
    ],
    ids=lambda value: str(value) if hasattr(value, "overloadpacket") else "",
)
def test_a_right_rule_is_trusted_and_every_row_is_proven(
    op: Any, rule: Rule, calls: list[Any]
) -> None:
    report = told(op, rule, *calls, budget=0)
    assert report.is_trusted, str(report)
    assert report.of_kind("untested") == report.of_kind("dead") == ()


def test_an_op_that_raises_on_an_empty_piece_is_a_remark_not_an_error() -> None:
    report = told(aten.amax.default, rows((P("max"), S(0))), (X, [0]), budget=0)
    assert report.is_trusted
    assert [f.about for f in report.of_kind("crash on empty")] == ["P(max) <- S(0)"]


def test_a_rank_with_nothing_of_a_dim_is_told_from_one_whose_tensor_has_another_empty_dim() -> None:
    report = told(aten.amax.default, rows((P("max"), S(0))), (X[:, :0], [0]), (X, [0]), budget=0)
    assert report.of_kind("crash") == ()
    assert report.is_trusted


@pytest.mark.parametrize(
    ("op", "x"),
    [
        (aten.isnan.default, draw((4, 6), torch.float64, 0)),
        (aten.isinf.default, draw((4, 6), torch.float64, 0)),
        (aten.special_bessel_j0.default, draw((4, 6), torch.float64, 0)),
        (aten.deg2rad.default, torch.arange(-12, 12).reshape(4, 6)),
    ],
    ids=str,
)
def test_ops_that_say_the_same_of_ordinary_numbers_are_proven_with_telling_ones(
    op: Any, x: torch.Tensor
) -> None:
    report = told(op, pointwise(), (x,), budget=0)
    assert report.is_trusted, str(report)
    assert report.of_kind("untested") == ()


@pytest.mark.parametrize("op", [aten.isnan.default, aten.isinf.default], ids=str)
def test_no_number_may_be_a_sum_of_infinities(op: Any) -> None:
    report = told(op, rows((P(), P())), (draw((4, 6), torch.float64, 0),), budget=0)
    assert errors(report) == [("unsound", "P(sum) <- P(sum)")]


def test_an_average_of_integers_does_not_pass_a_product() -> None:
    report = told(aten.mul.Scalar, rows((P("avg"), P("avg"))), (torch.arange(24), 2), budget=0)
    assert errors(report) == [("unsound", "P(avg) <- P(avg)")]


def test_rounding_of_the_default_dtype_is_no_fault_where_integers_become_numbers() -> None:
    out = torch.zeros(4, 6, dtype=torch.float64)
    call = ((torch.arange(24).reshape(4, 6),), {"out": out})
    report = check(aten.deg2rad.out, [call], rows((P(), P(), P())), budget=0)
    assert report.is_trusted, str(report)


def test_a_row_for_a_dtype_that_cannot_have_it_does_not_stop_the_check() -> None:
    calls = [(X,), (draw((4, 4), torch.complex128, 0),)]
    report = told(aten.neg.default, rows((P("min"), P("max"))), *calls, budget=0)
    assert report.is_trusted, str(report)


def test_an_op_whose_arguments_dtensor_rewrites_is_read_but_not_run_in_pieces() -> None:
    rule = rows((S(0), S(0)), (S(0), S(2)))
    report = told(aten.expand.default, rule, (X[:1], [8, 4]), by_pieces=False)
    assert errors(report) == [("malformed", "S(0) <- S(2)")]
    assert report.sound == ()


# The other checks.


def test_a_row_wrong_only_for_negated_numbers_is_caught() -> None:
    def positive_part_of_first(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0, x, x.amin(0, keepdim=True))

    positive = draw((8, 4), torch.float64, 0).abs()
    report = told(positive_part_of_first, rows((S(0), S(0))), (positive,), budget=0)
    assert errors(report) == [("unsound", "S(0) <- S(0)")]


def test_a_product_of_truth_values_where_a_sum_belongs_is_caught() -> None:
    report = told(aten.any.default, rows((P("product"), S(0))), (X,), budget=0)
    assert errors(report) == [("unsound", "P(product) <- S(0)")]


def test_a_row_right_for_the_sample_and_wrong_for_uneven_sizes_is_caught() -> None:
    def paired(x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(0, (-1, 2)).flip(1).flatten(0, 1) if len(x) % 2 == 0 else x.flip(0)

    report = told(paired, rows((S(0), S(0))), (draw((8, 3), torch.float64, 0),), budget=0)
    assert errors(report) == [("unsound", "S(0) <- S(0)")]


def test_rows_that_are_only_wrong_together_are_caught_on_a_mesh_of_two_dims() -> None:
    def blocks(x: torch.Tensor) -> torch.Tensor:
        # Half of a sum of two rows or more, a whole sum of one: wrong only when cut twice.
        return x.sum(0) if x.shape[0] >= 2 else x.sum(0) * 0.5

    report = told(blocks, rows((P(), S(0))), (draw((4, 3), torch.float64, 0),), budget=0)
    assert report.errors[0].kind == "unsound"


def test_a_row_for_no_sample_is_dead() -> None:
    report = told(aten.logical_not.default, rows((P("avg"), P("avg")), (S(0), S(0))), (X > 1,))
    assert [(f.about, f.evidence) for f in report.of_kind("dead")] == [
        ("P(avg) <- P(avg)", "P(avg) of bool cannot be simulated")
    ]


def test_a_row_of_which_nothing_could_be_said_is_untested() -> None:
    report = told(aten.zeros_like.default, rows((S(0), S(0))), (X,), budget=0)
    assert report.sound == ()
    assert [finding.about for finding in report.of_kind("untested")] == ["S(0) <- S(0)"]


def test_a_duplicate_row_is_told_once() -> None:
    report = told(aten.relu.default, rows((S(0), S(0)), (S(0), Shard(0))), (X,), budget=0)
    (finding,) = report.of_kind("duplicate")
    assert finding.about == "S(0) <- S(0)"
    assert finding.times > 1


def test_a_narrow_key_is_checked_against_the_rows() -> None:
    def rule(op: Any, args: Any, kwargs: Any) -> list[Any]:
        return [[S(1), S(1)]] if args[1] == 0 else [[S(0), S(0)]]

    report = told(aten.cumsum.default, rule, (X, 0), schema_info=SchemaInfo(2))
    assert errors(report) == [("cache key", "argument 1")]
    assert told(aten.cumsum.default, rule, (X, 0), schema_info=SchemaInfo(1)).is_trusted


def test_a_flag_that_the_rule_ignores_is_caught_by_ground_truth() -> None:
    rule = rows((S(0), S(0)))
    report = told(aten.cumsum.default, rule, (X, 1), (X, 0))
    assert errors(report) == [("unsound", "S(0) <- S(0)")]
    assert report.errors[0].sample.startswith("f32[8,4], 0")


def test_a_rule_without_a_usable_sample_is_not_trusted() -> None:
    assert not told(aten.mm.default, einsum("mk,kn->mn")).is_trusted
    report = told(aten.mm.default, einsum("mk,kn->mn"), (X, X))
    assert not report.is_trusted
    assert report.of_kind("untested")[0].evidence.startswith("the op itself raises RuntimeError")


def test_a_row_with_uneven_sharding_allowed_is_judged_on_empty_pieces_too() -> None:
    def mean_of_one(x: torch.Tensor) -> torch.Tensor:
        if len(x) > 1:
            raise ValueError("takes one row")
        return x.mean(0)

    one, rule = draw((1, 4), torch.float64, 0), rows((P("avg"), S(0)))
    assert [f.kind for f in told(mean_of_one, rule, (one,), budget=0).findings] == ["dead"]
    report = told(mean_of_one, rule, (one,), budget=0, allow_uneven_sharding=True)
    assert errors(report) == [("unsound", "P(avg) <- S(0)")]


def test_heads_in_groups_may_be_cut_although_some_meshes_have_more_ranks_than_groups() -> None:
    def grouped(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return q * k.repeat_interleave(q.shape[0] // k.shape[0], 0)

    heads = draw((8, 4), torch.float64, 0), draw((2, 4), torch.float64, 1)
    whole = run_reference(grouped, heads)
    row = [S(0), S(0), S(0)]
    outcomes = [judge(whole, [row], (ranks,)).outcome for ranks in (2, 3, 4)]
    assert outcomes == ["sound", "not applicable", "not applicable"]


def test_the_same_check_gives_the_same_report() -> None:
    first, second = (str(told(aten.mul.Tensor, rows((P(), P(), P())), (X, X))) for _ in range(2))
    assert first == second


def test_a_report_is_its_own_explanation() -> None:
    report = told(aten.mul.Tensor, pointwise(linear=[(0, 1)]), (X, X), budget=0)
    number = r"-?[0-9.e+-]+"
    lines = str(report).splitlines()
    assert lines[:4] == [
        "aten.mul.Tensor: WRONG (2 unsound)",
        "  rule pointwise(linear=[(0, 1)]) of acme 1.0",
        f"  {len(report.sound)} rows proven in {report.combinations} combinations of"
        f" {report.samples} calls",
        "  unsound: P(sum) <- P(sum), P(sum)",
    ]
    assert lines[4] == "    call  f32[8,4], f32[8,4]  (as given)"
    assert re.fullmatch(
        r"    seen  on 2 ranks: output 0, reduced over the ranks as P\(sum\), at \[\d, \d\]:"
        rf" {number}, whole run {number} \(largest difference {number}, of which rounding"
        rf" explains {number}\)",
        lines[5],
    )
    assert lines[6:13] == [
        "    To see it again:",
        "        import torch",
        "        from dtensor_registry.placements import REPLICATE, Partial, Shard",
        "        from dtensor_registry_kit import check_row, draw",
        "        x0 = draw([8, 4], torch.float32, seed=0)",
        "        x1 = draw([8, 4], torch.float32, seed=1)",
        "        print(check_row(torch.ops.aten.mul.Tensor, (x0, x1), {},"
        " [Partial('sum'), Partial('sum'), Partial('sum')], 2))",
    ]


@pytest.mark.parametrize(
    ("op", "row", "args"),
    [
        (aten.mul.Tensor, (P(), P(), P()), (X, X)),
        (aten.index_select.default, (S(0), S(0), R), (X, 0, torch.tensor([3, 1, 2]))),
        (aten.any.default, (P("product"), S(0)), (X,)),
        (aten.amax.default, (P("min"), S(0)), (X, [0])),
        (aten.stack.default, (S(0), S(0), S(0)), ([X, X * 2],)),
    ],
    ids=lambda value: None if isinstance(value, tuple) else str(value),
)
def test_the_program_of_a_finding_shows_it_again(op: Any, row: Any, args: Any) -> None:
    (finding,) = told(op, rows(row), args, budget=0).errors
    assert len(finding.program.splitlines()) <= 8
    printed: list[Any] = []
    exec(finding.program, {"print": printed.append})
    assert printed[0].outcome == finding.kind


def test_the_program_of_a_finding_runs_in_a_process_of_its_own() -> None:
    (finding,) = told(aten.mul.Tensor, rows((P(), P(), P())), (X, X), budget=0).errors
    ran = subprocess.run(
        [sys.executable, "-c", finding.program], capture_output=True, text=True, timeout=120
    )
    assert ran.stdout.startswith("unsound: P(sum) <- P(sum), P(sum) on 2 ranks: "), ran.stderr


# Numbers that a rule meets only now and then.


def test_a_sum_must_not_pass_where_nan_is_replaced() -> None:
    report = told(aten.nan_to_num.default, rows((P(), P())), (X,), budget=0)
    assert errors(report) == [("unsound", "P(sum) <- P(sum)")]


@pytest.mark.parametrize("kind", ["max", "min"])
def test_an_extreme_must_not_pass_where_nan_is_replaced(kind: str) -> None:
    report = told(aten.nan_to_num.default, rows((P(kind), P(kind))), (X,), budget=0)
    assert errors(report) == [("unsound", f"P({kind}) <- P({kind})")]


def test_a_maximum_must_not_pass_into_truth_values() -> None:
    report = told(aten.logical_not.default, rows((P("max"), P("max"))), (X,), budget=0)
    assert ("unsound", "P(max) <- P(max)") in errors(report)


def test_a_row_that_is_right_for_positive_numbers_only_is_unsound() -> None:
    call = (X, 2.5)
    report = told(aten.xlogy.Scalar_Other, rows((P(), P())), call, budget=0)
    assert errors(report) == [("unsound", "P(sum) <- P(sum)")]


def test_an_op_that_draws_random_numbers_is_untested_however_few_it_draws() -> None:
    op = aten.geometric_.default
    for seed in range(5):
        report = check(op, [((X[:1, :1], 0.3), {})], rows((S(0), S(0))), seed=seed, budget=0)
        assert report.errors == ()
        assert not report.is_trusted
