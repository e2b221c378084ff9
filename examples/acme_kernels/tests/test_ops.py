"""The ops compute what they say, with the gradients that autograd would find by itself."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import acme_kernels.dtensor
import acme_kernels.ops
from acme_kernels import rms_norm, rms_norm_backward, swiglu, swiglu_backward

GENERATOR = torch.Generator().manual_seed(7)


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR, dtype=torch.float64, requires_grad=True)


def reference_swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return functional.silu(gate) * up


def reference_rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return functional.rms_norm(x, (x.shape[-1],), weight, eps=1e-3)


def acme_rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    y, _ = rms_norm(x, weight, 1e-3)
    return y


CASES = [
    pytest.param(swiglu, reference_swiglu, (random(2, 3, 4), random(2, 3, 4)), id="swiglu"),
    pytest.param(acme_rms_norm, reference_rms_norm, (random(2, 3, 4), random(4)), id="rms_norm"),
    pytest.param(acme_rms_norm, reference_rms_norm, (random(5), random(5)), id="rms_norm-vector"),
]


@pytest.mark.parametrize(("op", "reference", "inputs"), CASES)
def test_value_is_that_of_plain_pytorch(op, reference, inputs) -> None:
    torch.testing.assert_close(op(*inputs), reference(*inputs))


@pytest.mark.parametrize(("op", "reference", "inputs"), CASES)
def test_gradients_are_those_of_plain_pytorch(op, reference, inputs) -> None:
    grad = torch.randn_like(op(*inputs))
    ours = torch.autograd.grad(op(*inputs), inputs, grad)
    torch.testing.assert_close(ours, torch.autograd.grad(reference(*inputs), inputs, grad))


@pytest.mark.parametrize(("op", "reference", "inputs"), CASES)
def test_gradients_are_those_of_finite_differences(op, reference, inputs) -> None:
    assert torch.autograd.gradcheck(op, inputs)


def test_rstd_is_the_inverse_root_mean_square_and_takes_no_gradient() -> None:
    _, rstd = rms_norm(torch.tensor([[3.0, 4.0]], requires_grad=True), torch.ones(2), 0.0)
    torch.testing.assert_close(rstd, torch.tensor([[12.5**-0.5]]))
    assert not rstd.requires_grad


def test_backward_through_rstd_alone_is_refused() -> None:
    _, rstd = rms_norm(random(2, 3), random(3), 0.0)
    with pytest.raises(RuntimeError, match="does not require grad"):
        rstd.sum().backward()


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (swiglu, (random(2, 4), random(2, 4))),
        (swiglu, (random(4, 2).T, random(2, 4))),
        (swiglu_backward, (random(2, 4), random(4, 2).T, random(2, 4))),
        (rms_norm, (random(4, 2, 3).transpose(0, 1), random(3), 1e-3)),
        (rms_norm_backward, (random(4, 2).T, random(2, 4), random(4), random(2, 1))),
    ],
)
def test_op_keeps_what_its_schema_and_fake_kernel_promise(op, args) -> None:
    """Mutates nothing, aliases nothing, and the fake kernel gives the real shapes and strides."""
    checks = ("test_schema", "test_faketensor")
    detached = tuple(a.detach() if isinstance(a, Tensor) else a for a in args)
    torch.library.opcheck(op, detached, test_utils=checks)


def test_swiglu_refuses_shapes_that_differ() -> None:
    with pytest.raises(ValueError, match=r"acme::swiglu: gate \[2, 3\] and up \[3\] differ"):
        swiglu(torch.ones(2, 3), torch.ones(3))


def test_rms_norm_refuses_a_weight_of_another_length() -> None:
    with pytest.raises(ValueError, match=r"acme::rms_norm: weight \[2\] for x \[2, 3\]"):
        rms_norm(torch.ones(2, 3), torch.ones(2), 1e-5)


@pytest.mark.parametrize("module", [acme_kernels.ops, acme_kernels.dtensor])
def test_examples_in_the_docstrings_hold(module: ModuleType) -> None:
    done = doctest.testmod(module)
    assert done.attempted > 0
    assert done.failed == 0
