"""The wheels work by themselves: installed into an empty environment, without this checkout.

The environment is made without a network. Our five distributions come from wheels that are built
here; what they require is linked in from the running interpreter, and nothing else is: exactly
the closure of the requirements that the wheels themselves declare. A dependency that is used but
not declared is therefore missing, as it would be for a user.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.slow

HOST_AND_VENDOR = ["dtensor-registry", "acme-kernels"]
EVERYTHING = [
    *HOST_AND_VENDOR,
    "dtensor-registry-kit",
    "dtensor-registry-corrections",
    "dtensor-registry-fallback",
    "dtensor-registry-matrix",
    "dtensor-registry-pointwise",
    "dtensor-registry-structure",
]

WHERE_MODULES_ARE = """
import importlib, json, sys
files = [importlib.import_module(name).__file__ for name in sys.argv[1:]]
print(json.dumps({"files": files, "path": sys.path}))
"""

# On one rank: what is asked is who decides, not what is communicated.
SHARD_VENDOR_OP = """
import json
import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
import acme_kernels
import dtensor_registry

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
x = distribute_tensor(torch.ones(4, 8), mesh, [Shard(0)])

def error():
    try:
        acme_kernels.swiglu(x, x)
    except NotImplementedError as raised:
        return str(raised)

before = error()
with dtensor_registry.install() as installation:
    verdicts = installation.resolution.verdicts.values()
    owners = {v.winner.origin.plugin for v in verdicts if v.winner is not None}
    placements = {
        "acme": str(acme_kernels.swiglu(x, x).placements),
        "torch": str((x + x).placements),
    }
print(json.dumps(
    {"before": before, "placements": placements, "owners": sorted(owners), "after": error()}
))
dist.destroy_process_group()
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command that sees neither the checkout nor settings of pip or of the registry."""
    hidden = ("PIP_", "PYTHONPATH", "DTENSOR_REGISTRY_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**environment, "PIP_CONFIG_FILE": os.devnull},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheels(projects: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of each import package."""
    target = tmp_path_factory.mktemp("wheels")
    built = {}
    for package, folder in projects.items():
        options = ["--wheel", "--no-isolation", f"--outdir={target / package}"]
        run(sys.executable, "-m", "build", *options, folder, cwd=target)
        [built[package]] = (target / package).glob("*.whl")
    return built


def read_requirements(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode()).get_all("Requires-Dist", [])


def required_distributions(wheels: Iterable[Path]) -> list[metadata.Distribution]:
    """What the wheels need, and what that needs, as installed in the running interpreter."""
    pending = [text for wheel in wheels for text in read_requirements(wheel)]
    ours = {canonicalize_name(name) for name in EVERYTHING}
    found: dict[str, metadata.Distribution] = {}
    while pending:
        requirement = Requirement(pending.pop())
        name = canonicalize_name(requirement.name)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and name not in ours and name not in found:
            found[name] = metadata.distribution(name)
            pending += found[name].requires or []
    return list(found.values())


def link(distribution: metadata.Distribution, site_packages: Path) -> None:
    """Make a distribution importable from `site_packages` without copying its gigabytes."""
    names = {file.parts[0] for file in distribution.files or []}
    for name in sorted(names - {"..", "__pycache__"}):
        # A .pth file is how an editable install would leak in.
        if not name.endswith(".pth") and not (site_packages / name).exists():
            (site_packages / name).symlink_to(str(distribution.locate_file(name)))


def environment_with(names: list[str], wheels: dict[str, Path], folder: Path) -> Path:
    """Make an environment that has the named distributions, from wheels; return its `bin`."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    [site_packages] = folder.glob("lib/python*/site-packages")
    chosen = {wheel.name.partition("-")[0].replace("_", "-"): wheel for wheel in wheels.values()}
    for distribution in required_distributions(chosen[name] for name in names):
        link(distribution, site_packages)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python]
    # With its dependencies, not --no-deps: what is linked in must satisfy what is declared.
    wanted = [chosen[name] for name in names]
    run(*pip, "install", "--no-index", "--disable-pip-version-check", *wanted, cwd=folder)
    return folder / "bin"


@pytest.fixture(scope="module")
def full(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with all five distributions."""
    return environment_with(EVERYTHING, wheels, tmp_path_factory.mktemp("full"))


def test_wheels_hold_the_typed_package_and_its_license(wheels: dict[str, Path]) -> None:
    for package, wheel in wheels.items():
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
        [info] = {name.partition("/")[0] for name in names if ".dist-info/" in name}
        assert {name.partition("/")[0] for name in names} == {package, info}
        assert f"{package}/py.typed" in names
        assert f"{info}/licenses/LICENSE" in names


def test_all_plugins_are_listed_from_wheels(
    full: Path, checkout: Path, wheels: dict[str, Path]
) -> None:
    output = run(full / "dtensor-registry", "plugins", "--json", cwd=full)
    listed = {plugin["name"]: plugin for plugin in json.loads(output)["plugins"]}
    assert {name: plugin["distribution"] for name, plugin in listed.items()} == {
        "acme": "acme-kernels",
        "corrections": "dtensor-registry-corrections",
        "fallback": "dtensor-registry-fallback",
        "matrix": "dtensor-registry-matrix",
        "pointwise": "dtensor-registry-pointwise",
        "structure": "dtensor-registry-structure",
    }
    versions = {wheel.name.split("-")[1] for wheel in wheels.values()}
    assert {plugin["version"] for plugin in listed.values()} == versions
    assert str(checkout) not in output


def test_nothing_is_imported_from_the_checkout(
    full: Path, checkout: Path, projects: dict[str, Path]
) -> None:
    seen = json.loads(run(full / "python", "-c", WHERE_MODULES_ARE, *projects, cwd=full))
    assert len(seen["files"]) == len(projects)
    assert all(Path(file).is_relative_to(full.parent) for file in seen["files"])
    assert not any(Path(entry).is_relative_to(checkout) for entry in seen["path"])


@pytest.fixture(scope="module")
def lean(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the host and one vendor's plugin."""
    return environment_with(HOST_AND_VENDOR, wheels, tmp_path_factory.mktemp("lean"))


def test_host_with_one_vendor_needs_no_other_plugin(lean: Path) -> None:
    output = run(lean / "dtensor-registry", "plugins", "--json", cwd=lean)
    assert [plugin["name"] for plugin in json.loads(output)["plugins"]] == ["acme"]


def test_host_with_one_vendor_shards_the_ops_of_the_vendor(lean: Path) -> None:
    seen = json.loads(run(lean / "python", "-c", SHARD_VENDOR_OP, cwd=lean))
    assert "does not have a sharding strategy registered" in seen["before"]
    assert seen["placements"] == {"acme": "(Shard(dim=0),)", "torch": "(Shard(dim=0),)"}
    assert seen["owners"] == ["acme"]
    assert "does not have a sharding strategy registered" in seen["after"]
