"""Where sample calls come from: the author, torch's OpInfo, or the schema."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch.testing import _internal

from dtensor_registry_kit import Sample
from dtensor_registry_kit.samples import opinfo
from dtensor_registry_kit.samples.choose import _most_different, samples_for
from dtensor_registry_kit.samples.generated import generated_calls
from dtensor_registry_kit.samples.other_forms import derived_calls, plain_forms

aten = torch.ops.aten
needs_opinfo = pytest.mark.skipif(
    find_spec("expecttest") is None, reason="torch's OpInfo needs expecttest"
)


def runs(op: Any, sample: Sample) -> bool:
    op(*sample.args, **sample.kwargs)
    return True


def test_the_authors_samples_come_first_and_no_more_than_asked_for() -> None:
    calls = [((torch.ones(n, n), torch.ones(n, n)), {}) for n in range(1, 9)]
    found = samples_for(aten.mm.default, lambda: calls, 3)
    assert (found.source, len(found.calls)) == ("author", 3)
    assert found.calls[0].args[0].shape == (1, 1)


@needs_opinfo
@pytest.mark.parametrize(
    "op",
    [
        aten.addmm.default,
        aten.special_i0e.default,
        aten.silu_backward.default,
        aten.linear.default,  # composite: seen only in inference mode
        aten.bitwise_and.Tensor,
        aten.native_layer_norm.default,
    ],
    ids=str,
)
def test_opinfo_gives_calls_of_the_very_overload(op: Any) -> None:
    found = opinfo.opinfo_calls(op)
    assert len(found) > 1
    assert all(runs(op, sample) for sample in found)
    assert found[0].origin.startswith("OpInfo ")


@needs_opinfo
def test_opinfo_gives_the_same_calls_again_and_leaves_random_state_alone() -> None:
    before = torch.random.get_rng_state()
    first = samples_for(aten.mul.Tensor, None, 5)
    opinfo._captured.cache_clear()
    second = samples_for(aten.mul.Tensor, None, 5)
    assert [str(sample) for sample in first.calls] == [str(sample) for sample in second.calls]
    pairs = zip(first.calls, second.calls, strict=True)
    assert all(torch.equal(a.inputs[0], b.inputs[0]) for a, b in pairs)
    assert torch.equal(before, torch.random.get_rng_state())


def test_without_opinfo_samples_are_generated_and_the_note_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opinfo._database.cache_clear()
    opinfo._entries.cache_clear()
    monkeypatch.delitem(
        sys.modules, "torch.testing._internal.common_methods_invocations", raising=False
    )
    # A package keeps what was imported of it as an attribute, too.
    monkeypatch.delattr(_internal, "common_methods_invocations", raising=False)
    monkeypatch.setitem(sys.modules, "expecttest", None)
    monkeypatch.delitem(sys.modules, "torch.testing._internal.common_utils", raising=False)
    found = samples_for(aten.mul.Tensor, None, 3)
    opinfo._database.cache_clear()
    opinfo._entries.cache_clear()
    assert (found.source, len(found.calls)) == ("generated", 3)
    assert found.note.startswith("torch's sample inputs (OpInfo) cannot be imported: ")
    assert "expecttest" in found.note


@pytest.mark.parametrize(
    ("op", "plain"),
    [
        (aten.add_.Tensor, [aten.add.Tensor]),
        (aten.add.out, [aten.add.Tensor]),
        (aten.frexp.Tensor_out, [aten.frexp.Tensor]),
        (aten._foreach_add.List, [aten.add.Tensor]),
        (aten._foreach_mul_.Scalar, [aten.mul.Scalar]),
        (aten.add.Tensor, []),
    ],
    ids=str,
)
def test_the_plain_form_of_an_op_is_found(op: Any, plain: list[Any]) -> None:
    assert plain_forms(op) == plain


def test_a_plain_call_becomes_one_of_another_form() -> None:
    x, y = torch.ones(2, 3), torch.ones(3)
    plain = [Sample((x, y), {}), Sample((y, x), {})]
    assert [str(s) for s in derived_calls(aten.add.out, plain)] == [
        "f32[2,3], f32[3], out=f32[2,3]",
        "f32[3], f32[2,3], out=f32[2,3]",
    ]
    # The second would have to make y larger.
    assert [str(s) for s in derived_calls(aten.add_.Tensor, plain)] == ["f32[2,3], f32[3]"]
    assert [str(s) for s in derived_calls(aten._foreach_add.List, plain[:1])] == [
        "[f32[2,3]], [f32[3]]"
    ]


def test_an_out_tensor_has_the_size_and_dtype_of_the_result_but_not_its_values() -> None:
    x = torch.tensor([[1.5, 3.0]])
    (made,) = derived_calls(aten.frexp.Tensor_out, [Sample((x,), {})])
    assert {name: (out.shape, out.dtype) for name, out in made.kwargs.items()} == {
        "mantissa": ((1, 2), torch.float32),
        "exponent": ((1, 2), torch.int32),
    }
    assert all((out == 7).all() for out in made.kwargs.values())


@torch.library.custom_op("samples::gated", mutates_args=())
def gated(
    x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None, mode: str, flip: bool
) -> torch.Tensor:
    if scale.shape != x.shape[-1:] or mode not in ("sum", "mean") or x.dim() != 2:
        raise ValueError
    return x * scale * (-1 if flip else 1) + (0 if bias is None else bias)


@gated.register_fake
def _(x: Any, scale: Any, bias: Any, mode: Any, flip: Any) -> torch.Tensor:
    return torch.empty_like(x)


def test_calls_are_generated_that_an_op_takes_with_every_flag_both_ways() -> None:
    op = torch.ops.samples.gated.default
    made = generated_calls(op)
    assert all(runs(op, sample) for sample in made)
    assert {(sample.args[3], sample.args[4]) for sample in made} >= {
        ("mean", False),
        ("mean", True),
        ("sum", False),
    }
    assert {sample.args[2] is None for sample in made} == {True, False}
    found = samples_for(op, None, 6)
    assert (found.source, found.note) == ("generated", "")
    assert str(found.calls[0]).startswith("f64[4,6], f64[6], ")


def test_a_generated_call_that_the_shape_function_does_not_mean_is_left_out() -> None:
    # A bias of more dims would broadcast x; the kernel does not mind, the shape function does.
    shapes = {
        tuple(sample.args[2].shape)
        for sample in generated_calls(torch.ops.samples.gated.default)
        if sample.args[2] is not None
    }
    assert shapes
    assert all(len(shape) <= 2 for shape in shapes)


def test_calls_that_differ_most_are_taken_ordinary_ones_first() -> None:
    calls = [
        ((torch.ones(4, 3), 1.5), {}),
        ((torch.ones(4, 3), 2.5), {}),
        ((torch.ones(()), -1.0), {}),
        ((torch.ones(4, 3), -2.5), {}),
        ((torch.ones(4, 1, 3), 1.5), {}),
    ]
    taken = _most_different([Sample(*call) for call in calls], 3)
    assert [str(sample) for sample in taken] == [
        "f32[4,3], 1.5",
        "f32[4,3], -2.5",
        "f32[4,1,3], 1.5",
    ]
