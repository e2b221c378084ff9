"""The fixtures that plugin authors get."""

from __future__ import annotations

from typing import Any

import pytest

SOURCES = {
    "a simulated mesh runs a DTensor op on all its ranks": """
        import torch
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor

        def test_it(simulated_mesh):
            mesh = simulated_mesh(2, 2)
            assert mesh.shape == (2, 2)
            x = torch.arange(12.0).reshape(4, 3)
            out = distribute_tensor(x, mesh, [Shard(0), Replicate()]) * 2
            assert out.placements == (Shard(0), Replicate())
            assert out.full_tensor().reconcile().tolist() == (x * 2).reconcile().tolist()
    """,
    "a mesh is gone when the test ends": """
        import torch.distributed as dist

        def test_one(simulated_mesh):
            simulated_mesh(2)
            assert dist.is_initialized()

        def test_two(simulated_mesh):
            assert not dist.is_initialized()
            simulated_mesh(4)
    """,
    "a registry has only what it is told to have": """
        import dtensor_registry as dr

        def test_it(registry):
            installation = registry("acme-kernels")
            plugins = {p.name for p in installation.discovery.plugins if p.state == "active"}
            assert plugins == {"acme"}
            assert all(op.startswith("acme.") for op in installation.resolution.verdicts)
            assert installation.active

        def test_it_takes_settings(registry):
            installation = registry("dtensor-registry-matrix", disabled=["matrix:aten.mm.*"])
            assert installation.resolution["aten.mm.default"].winner is None
    """,
    "a registry is uninstalled when the test ends, and the environment does not count": """
        import os
        import pytest

        @pytest.fixture(autouse=True)
        def environment(monkeypatch):
            monkeypatch.setenv("DTENSOR_REGISTRY_DISABLED", '["acme"]')

        held = []

        def test_one(registry):
            held.append(registry("acme-kernels"))
            assert held[0].active and held[0].resolution.verdicts

        def test_two():
            assert not held[0].active
    """,
    "a fake distribution is found as an installed one": """
        RULES = '''
            from dtensor_registry import SingleDimStrategy, hookimpl, pointwise

            @hookimpl
            def provide_single_dim_strategy():
                return [SingleDimStrategy("aten.sin.default", pointwise())]
        '''

        def test_one(fake_distribution, registry):
            fake_distribution("sine-rules", RULES, version="2.3")
            origin = registry("sine-rules").resolution["aten.sin.default"].winner.origin
            assert (origin.plugin, origin.distribution, origin.version) == (
                "sine", "sine-rules", "2.3"
            )

        def test_two(registry):
            assert "sine" not in {p.name for p in registry().discovery.plugins}
    """,
}


@pytest.mark.parametrize("sentence", SOURCES)
def test_fixture(sentence: str, run_tests: Any) -> None:
    run = run_tests(SOURCES[sentence])
    assert run.code == 0, run.out


def test_the_plugin_does_not_import_torch(run_fresh: Any) -> None:
    run = run_fresh("def test_it():\n    import sys\n    assert 'torch' not in sys.modules\n")
    assert run.code == 0, run.out
