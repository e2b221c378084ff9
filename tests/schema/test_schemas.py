"""Ops that torch's sharding path runs wrong because of their schema: right, or refused by name."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor, Placement

import dtensor_registry as dr
from dtensor_registry import ShardingPlaceholder as S
from dtensor_registry.errors import InstallError
from tests.schema.kind import Kind, numbers
from tests.schema.outcome import OK, REFUSED, run
from tests.schema.world import S0, S1, R, local_ranks
from tests.schema_matrix import KINDS, registry

BY_NAME = {str(kind.op).removeprefix("schema_matrix."): kind for kind in KINDS}
HANDLED = [op for op in DTensor._op_dispatcher._custom_op_handlers if str(op).startswith("aten.")]

# The op, how its tensors are placed, and what must come of it by a rule and by the fallback.
MIXED: dict[str, tuple[str, tuple[Placement, ...], str, str]] = {
    "a mutated argument that the rule would move": ("noout.default", (S0, S1), OK, OK),
    "a mutated argument that no row takes as it is": ("noout.default", (S1, S0), REFUSED, OK),
    "mutated without underscore, elementwise": ("mut.default", (S0, S1), OK, OK),
    "a kwarg tensor that is sharded where the others are not": ("kw.default", (R, S0), OK, OK),
    "a kwarg tensor that is not sharded where the others are": ("kw.default", (S0, R), OK, OK),
    "a list of tensors that are placed differently": ("lst.default", (S0, R, S1), OK, OK),
    "a list with None first": ("optl.default", (S1, S0), OK, OK),
    "a str and an int before the first tensor": ("later.default", (S0,), OK, OK),
    "a float beside tensors": ("number_too.default", (S0,), OK, OK),
    "as many outputs as an argument says": ("multiples.default", (S0,), OK, OK),
    "out= that is placed differently": ("f.out", (S0, S1), OK, OK),
    "out= that no row takes as it is": ("f.out", (S1, S0), REFUSED, OK),
    "a list of out=": ("g.out", (S0, S1, S1), OK, OK),
    "an output that is masked off": ("masked.default", (S0,), OK, OK),
    "a size of the whole": ("filled.default", (S1,), OK, OK),
}


@pytest.mark.parametrize("mode", ["rule", "fallback"])
@pytest.mark.parametrize("case", MIXED)
def test_differently_placed_arguments_give_the_values_of_a_single_process(
    repository_plugins: None, case: str, mode: str
) -> None:
    name, placements, by_rule, by_fallback = MIXED[case]
    kind = BY_NAME[name]
    with local_ranks(4) as mesh, registry(kind, mode):
        outcome = run(kind, [(placement,) for placement in placements], mesh)
    assert outcome.verdict == (by_rule if mode == "rule" else by_fallback), outcome.detail


def test_a_refused_write_names_op_argument_placement_and_rule(repository_plugins: None) -> None:
    kind = BY_NAME["noout.default"]
    with local_ranks(4) as mesh, registry(kind, "rule"):
        said = run(kind, [(S1,), (S0,)], mesh).detail
    assert "schema_matrix.noout.default" in said
    assert "'y', which the op writes to, and must stay (S(0))" in said
    assert re.search(r"rule of .*tests/schema/kind\.py:\d+", said)


# B7: what a rule's author would write for an op on rows, though the op is given a whole size.
SIZED = {
    "filled.default": lambda *_: [[S(0), S(0)]],
    "mkshape.default": lambda *_: [[S(0), S(0)]],
    "mkview.default": lambda *_: [[S(0), S(0)]],
}


def sized(name: str) -> Kind:
    x = numbers(8, 4)
    kind = replace(BY_NAME[name], tensors=(x,), rule=SIZED[name])
    if name == "filled.default":
        return replace(kind, calls=(lambda t: ((t[0], [8, 3], 2.0), {}),))
    return replace(kind, calls=(lambda t: ((t[0], [8, 2, 2]), {}),))


@pytest.mark.parametrize("name", SIZED)
def test_a_size_of_the_whole_is_never_given_to_a_kernel_that_has_a_part(
    repository_plugins: None, name: str
) -> None:
    kind = sized(name)
    with local_ranks(4) as mesh, registry(kind, "rule"):
        outcome = run(kind, [(S0,)], mesh)
    assert outcome.verdict in (OK, REFUSED), outcome.detail
    if outcome.verdict == REFUSED:
        assert "'size'" in outcome.detail
        assert "tests/schema/test_schemas.py" in outcome.detail


@pytest.mark.parametrize("op", HANDLED, ids=str)
def test_a_rule_that_torch_would_pass_over_is_refused_at_install(op: Any) -> None:
    with pytest.raises(InstallError) as refused:
        dr.register_single_dim_strategy(op)(lambda *_: [])
    handler = DTensor._op_dispatcher._custom_op_handlers[op].__name__
    assert str(refused.value).startswith(f"a sharding rule for {op} would not be honoured")
    assert handler in str(refused.value)
    assert "tests/schema/test_schemas.py" in str(refused.value)


def test_torch_still_has_such_handlers() -> None:
    assert {torch.ops.aten.convolution.default, torch.ops.aten.argmax.default} <= set(HANDLED)
