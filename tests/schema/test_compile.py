"""Plugins' rules, executor and fallback under torch.compile, make_fx and inference_mode."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.fx.experimental.proxy_tensor import make_fx

import dtensor_registry as dr
from tests.schema.compiled_ops import model, register_rules
from tests.schema.kind import numbers
from tests.schema.outcome import OK, difference, run
from tests.schema.world import S0, S1, P, Placements, R, local_ranks, on_mesh
from tests.schema_matrix import KINDS

SIZES = (8, 6, 10)
PLACED: tuple[Placements, ...] = ((S1,), (S0,), (R,), (S0,))
# Inductor alone fails on what is saved for backward if it is cut along a dim of dynamic size:
# "For ((s3 + 1)//2), expected [s3] to have been codegen-ed", with aten.mul and no host too.
SAVED_IN_COLUMNS: tuple[Placements, ...] = ((S1,), (S1,), (R,), (S0,))
BY_NAME = {str(kind.op): kind for kind in KINDS}


def values(rows: int) -> list[Tensor]:
    return [numbers(rows, 4, step=step) for step in (3, 5, 7, 9)]


def with_gradients(function: Callable[..., Any], inputs: list[Any]) -> list[Any]:
    leaves = [value.detach().requires_grad_() for value in inputs[:2]]
    out = function(*leaves, *inputs[2:])
    out.sum().backward()
    return [out.detach(), *(leaf.grad for leaf in leaves), inputs[3]]


def difference_by_size(
    function: Callable[..., Any], placements: tuple[Placements, ...] = PLACED
) -> list[str | None]:
    """Compare forward and backward with a single process, for one size after the other."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    registrations = register_rules()
    with dr.install(fallback={"mode": "silent"}):
        found = []
        for rows in SIZES:
            expected = with_gradients(model, values(rows))
            placed = [on_mesh(v, p, mesh) for v, p in zip(values(rows), placements, strict=True)]
            found.append(difference(with_gradients(function, placed), expected))
    for registration in registrations:
        registration.undo()
    return found


def compiled(backend: str, placements: tuple[Placements, ...] = PLACED) -> list[list[str | None]]:
    """Compile for one size after the other as constants, and once for all of them."""
    found = []
    for dynamic in (False, True):
        torch._dynamo.reset()
        step = torch.compile(model, backend=backend, fullgraph=True, dynamic=dynamic)
        found.append(difference_by_size(step, placements))
    return found


def without_compiler(rank: int) -> dict[str, Any]:
    return {
        "eager": difference_by_size(model),
        "aot_eager": compiled("aot_eager"),
        "make_fx": traced(),
    }


def inductor(rank: int) -> list[list[str | None]]:
    return compiled("inductor", SAVED_IN_COLUMNS)


def traced() -> list[str | None]:
    """Trace the local computation with make_fx, and run what was traced on other values."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    registrations = register_rules()
    found = []
    with dr.install(fallback={"mode": "silent"}):
        for mode in ("real", "fake"):
            locals_ = [
                on_mesh(v, p, mesh).to_local() for v, p in zip(values(8), PLACED, strict=True)
            ]
            graph = make_fx(lambda *local: _on_locals(local, mesh), tracing_mode=mode)(*locals_)
            others = [v + 1 for v in values(8)]
            parts = [on_mesh(v, p, mesh).to_local() for v, p in zip(others, PLACED, strict=True)]
            found.append(difference(DTensor.from_local(graph(*parts), mesh, [R]), model(*others)))
    for registration in registrations:
        registration.undo()
    return found


def _on_locals(parts: Any, mesh: Any) -> Tensor:
    inputs = [
        DTensor.from_local(part, mesh, p, run_check=False, shape=torch.Size((8, 4)), stride=(4, 1))
        for part, p in zip(parts, PLACED, strict=True)
    ]
    out: Any = model(*inputs)
    whole: Tensor = out.redistribute(mesh, [R]).to_local()
    return whole


def test_forward_and_backward_eager_compiled_and_traced(
    repository_plugins: None, run_ranks: Any
) -> None:
    right = [None] * len(SIZES)
    expected = {"eager": right, "aot_eager": [right, right], "make_fx": [None, None]}
    assert run_ranks(without_compiler, ranks=2, timeout=200) == [expected] * 2


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_compiled_by_inductor(
    repository_plugins: None, run_ranks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What an earlier run has compiled, under other rules, must not count.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    right = [None] * len(SIZES)
    assert run_ranks(inductor, ranks=2, timeout=280) == [[right, right]] * 2


@pytest.mark.parametrize("placement", [S0, S1, R, P], ids=str)
@pytest.mark.parametrize(
    "name", ["composite.default", "decomposed.default", "fn.default", "kwt.default", "f.out"]
)
def test_inference_mode(repository_plugins: None, name: str, placement: Any) -> None:
    kind = BY_NAME[f"schema_matrix.{name}"]
    fallback = {"mode": "silent"}
    with local_ranks(4) as mesh, dr.install(fallback=fallback), torch.inference_mode():
        outcome = run(kind, [(placement,), (R,)], mesh)
    assert outcome.verdict == OK, outcome.detail
