"""`DTENSOR_REGISTRY_AUTOLOAD=1`: torch itself calls the host, which installs or warns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from dtensor_registry import autoload
from dtensor_registry.diagnosis.autoload_check import check_autoload

ENTRY_POINT = "[torch.backends]\nautoload_test = dtensor_registry.autoload:autoload\n"

REPORT = """
import json, sys
from dtensor_registry import autoload
from dtensor_registry.installation.installer import in_force
from dtensor_registry.torch_patch.override_stack import LOAN
import dtensor_registry as dr
held = in_force()
print(json.dumps({
    "layers": len(LOAN.layers),
    "plugins": None if held is None else sorted(p.name for p in held.discovery.plugins
                                                if p.state == "active"),
    "failures": autoload.failures,
    "check": dr.doctor()["autoload"].state,
}))
"""

TORCH_ONLY = """
import sys, torch
left = [name for name in ("pydantic", "dtensor_registry.settings", "torch.distributed.tensor")
        if name in sys.modules]
assert not left, left
"""

DTENSOR = """
import torch.distributed.tensor
from torch.distributed.tensor import DTensor
assert torch.distributed.tensor.DTensor is DTensor
assert torch.distributed.tensor.__spec__.loader.get_source("torch.distributed.tensor")
"""

PLUGIN = """
import torch.distributed.tensor
from dtensor_registry import SingleDimStrategy, hookimpl, pointwise

assert torch.distributed.tensor.DTensor

@hookimpl
def provide_single_dim_strategy():
    return [SingleDimStrategy("aten.exp.default", pointwise())]
"""


@pytest.fixture
def run(fake_distribution: Any, tmp_path: Path) -> Any:
    """Run a program whose torch finds the host: `run(program, source of a plugin, **settings)`."""
    info = tmp_path / "host" / "autoload_test-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: autoload-test\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINT)

    def call(program: str, plugin: str = PLUGIN, **settings: str) -> tuple[dict[str, Any], str]:
        module = fake_distribution("acme-rules", plugin)
        paths = [str(tmp_path / "host"), str(tmp_path / module), os.environ.get("PYTHONPATH", "")]
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program + REPORT],
            env={
                **os.environ,
                "DTENSOR_REGISTRY_ALLOWED": '["acme-rules"]',
                **settings,
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), done.stderr

    return call


def test_it_installs_when_dtensor_is_imported_and_not_before(run: Any) -> None:
    told, err = run(TORCH_ONLY + DTENSOR, DTENSOR_REGISTRY_AUTOLOAD="1")
    assert told == {"layers": 1, "plugins": ["acme"], "failures": [], "check": "ok"}
    assert err == ""


def test_without_the_variable_torch_pays_for_nothing_and_nothing_is_installed(run: Any) -> None:
    told, err = run(TORCH_ONLY + DTENSOR)
    assert told == {"layers": 0, "plugins": None, "failures": [], "check": "ok"}
    assert err == ""


def test_a_broken_plugin_is_a_warning_and_torch_goes_on_even_where_warnings_are_errors(
    run: Any,
) -> None:
    told, err = run(TORCH_ONLY + DTENSOR, "raise SystemExit(3)", DTENSOR_REGISTRY_AUTOLOAD="1")
    assert (told["layers"], told["check"]) == (0, "fail")
    assert told["failures"][0].startswith("BrokenPluginsError: 1 plugin(s) cannot be used")
    assert err.startswith("AutoloadWarning: DTENSOR_REGISTRY_AUTOLOAD: nothing was installed")
    assert "importing it raised SystemExit: 3" in err
    assert err.endswith("  Find out more:  dtensor-registry doctor\n")


def test_a_program_that_uses_the_host_first_installs_by_itself(run: Any) -> None:
    program = "import dtensor_registry as dr\ninstallation = dr.install(required=['acme-rules'])\n"
    told, err = run(program + DTENSOR, DTENSOR_REGISTRY_AUTOLOAD="1")
    assert (told["layers"], told["plugins"], err) == (1, ["acme"], "")


@pytest.mark.parametrize(
    ("value", "wanted"),
    [("1", True), ("true", True), ("ON", True), ("0", False), ("", False), ("no", False)],
)
def test_the_variable_is_on_or_off(
    value: str, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(autoload.SWITCH, value)
    assert autoload.is_wanted() is wanted


def test_another_value_warns_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoload, "failures", [])
    monkeypatch.setenv(autoload.SWITCH, "perhaps")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        autoload.autoload()
    assert [warning.category for warning in caught] == [autoload.AutoloadWarning]
    found = check_autoload()
    assert (found.state, found.next_step) == ("warn", "DTENSOR_REGISTRY_AUTOLOAD=1, or unset it")
    assert found.told == "DTENSOR_REGISTRY_AUTOLOAD='perhaps' is neither 1 nor 0"


def test_an_installation_that_lacks_the_entry_point_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(autoload.SWITCH, "1")
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setenv(autoload.TORCHS_SWITCH, "0")
    found = check_autoload()
    assert (found.state, found.details) == (
        "fail",
        (
            "no entry point in group 'torch.backends' leads here",
            "TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps torch from calling anybody",
        ),
    )


def test_torch_is_called_by_the_entry_point_of_this_distribution() -> None:
    pyproject = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    assert (
        '[project.entry-points."torch.backends"]\n'
        f'dtensor_registry = "{autoload.__name__}:{autoload.autoload.__name__}"\n'
    ) in pyproject
