"""Fixtures for the tests of plugins; a pytest plugin.

pytest finds it by its entry point, so nothing needs to be imported.

Nothing here imports torch before a test asks for it.
"""

from __future__ import annotations

import itertools
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

from dtensor_registry_kit.pytest_plugin.only import only

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from dtensor_registry.installation import Installation

SimulatedMesh: TypeAlias = "Callable[..., DeviceMesh]"
Registry: TypeAlias = "Callable[..., Installation]"
FakeDistribution: TypeAlias = "Callable[..., str]"

_numbers = itertools.count()


@pytest.fixture
def simulated_mesh() -> Iterator[SimulatedMesh]:
    """Make a mesh whose ranks all live in this process: `simulated_mesh("2x2") -> DeviceMesh`.

    From then on a tensor has one value per rank, collectives are computed, and DTensor works
    as on real ranks: `distribute_tensor(x, mesh, [Shard(0), Replicate()]).full_tensor()`. A
    test can have one mesh.
    """
    from dtensor_registry_kit.simulation.mesh import simulated_mesh

    with ExitStack() as stack:
        yield lambda *sizes: stack.enter_context(simulated_mesh(*sizes))


@pytest.fixture
def registry() -> Iterator[Registry]:
    """Install the named distributions and no other: `registry("acme-kernels") -> Installation`.

    Settings are the defaults, whatever environment and files say; single ones can be given by
    keyword. It is uninstalled when the test ends.
    """
    from dtensor_registry.installation import install

    with ExitStack() as stack:
        yield lambda *distributions, **overrides: stack.enter_context(
            install(only(*distributions, **overrides))
        )


@pytest.fixture
def fake_distribution(tmp_path: Path) -> Iterator[FakeDistribution]:
    """Install a fake distribution: `fake_distribution("acme-rules", source) -> module`.

    It is a real dist-info and a real module, in a folder of its own on `sys.path`. The entry
    point is called as the first word of the distribution, or as `entry_point=` says;
    `version=` and `requires=` are its metadata; with `first=True` it is found before all others.
    """
    with ExitStack() as stack:

        def install(
            distribution: str,
            source: str,
            *,
            entry_point: str | None = None,
            version: str = "1.0",
            requires: Sequence[str] = (),
            first: bool = False,
        ) -> str:
            module = f"fake_{re.sub(r'[^a-z0-9]', '_', distribution.lower())}_{next(_numbers)}"
            folder = tmp_path / module
            name = entry_point or re.split("[-.]", distribution)[0].lower()
            write_distribution(folder, distribution, {name: module}, version, requires)
            (folder / f"{module}.py").write_text(textwrap.dedent(source), "utf-8")
            sys.path.insert(0 if first else len(sys.path), str(folder))
            stack.callback(_forget, module, str(folder))
            return module

        yield install


def write_distribution(
    folder: Path,
    distribution: str,
    entry_points: Mapping[str, str],
    version: str = "1.0",
    requires: Sequence[str] = (),
) -> None:
    """Write what an installer leaves of a distribution."""
    info = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    needs = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n{needs}", "utf-8"
    )
    lines = "".join(f"{name} = {value}\n" for name, value in entry_points.items())
    (info / "entry_points.txt").write_text(f"[dtensor_registry]\n{lines}", "utf-8")


def _forget(module: str, folder: str) -> None:
    sys.modules.pop(module, None)
    if folder in sys.path:
        sys.path.remove(folder)
