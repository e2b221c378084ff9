"""Outside the three rooms of the host, ruff stops private torch API."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed.tensor

OPEN = [
    "dtensor_registry/torch_runtime/planted.py",
    "kit/src/dtensor_registry_kit/torch_private.py",
    "tests/planted.py",
]
CLOSED = [
    "dtensor_registry/planted.py",
    "dtensor_registry/cli/planted.py",
    "kit/src/dtensor_registry_kit/planted.py",
    "plugins/matrix/src/dtensor_registry_matrix/planted.py",
    "examples/acme_kernels/src/acme_kernels/planted.py",
    "examples/main_job/planted.py",
]
VIOLATIONS = [
    ("from torch.distributed.tensor._op_schema import OpSpec\n\nOpSpec()\n", "TID251"),
    ("from torch.distributed.tensor._ops.utils import is_tensor\n\nis_tensor()\n", "TID251"),
    ("import torch\n\ntorch._C.fork()\n", "TID251"),
    ("import torch\n\ntorch.nn._planted()\n", "SLF001"),
    (
        "from torch.distributed.tensor import DTensor\n\nprint(DTensor._op_dispatcher)\n",
        "TID251",
    ),
    (
        "from torch.distributed.tensor import distribute_tensor\n\n"
        "print(distribute_tensor(1)._op_dispatcher)\n",
        "SLF001",
    ),
]


def findings(checkout: Path, name: str, code: str) -> set[str]:
    """The rules that ruff finds broken when a file of the checkout holds `code`."""
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format=json"]
    run = subprocess.run(
        [*command, f"--stdin-filename={checkout / name}", "-"],
        cwd=checkout,
        input=code,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode in (0, 1), run.stderr
    return {finding["code"] for finding in json.loads(run.stdout)}


@pytest.mark.parametrize(("code", "rule"), VIOLATIONS)
@pytest.mark.parametrize("name", CLOSED)
def test_private_torch_api_is_stopped(checkout: Path, name: str, code: str, rule: str) -> None:
    assert rule in findings(checkout, name, code)


@pytest.mark.parametrize(("code", "rule"), [v for v in VIOLATIONS if v[1] == "TID251"])
@pytest.mark.parametrize("folder", ["plugins/matrix/tests", "examples/acme_kernels/tests"])
def test_the_tests_of_a_plugin_use_what_any_vendor_can_import(
    checkout: Path, folder: str, code: str, rule: str
) -> None:
    assert rule in findings(checkout, f"{folder}/planted.py", code)


@pytest.mark.parametrize("name", OPEN)
def test_private_torch_api_is_allowed_where_it_belongs(checkout: Path, name: str) -> None:
    for code, rule in VIOLATIONS:
        assert rule not in findings(checkout, name, code)


def test_every_private_module_of_dtensor_is_stopped(checkout: Path) -> None:
    package = torch.distributed.tensor
    private = [
        module.name
        for module in pkgutil.iter_modules(package.__path__)
        if module.name.startswith("_")
    ]
    assert "_sharding_prop" in private
    for module in private:
        code = f"import {package.__name__}.{module}\n"
        assert "TID251" in findings(checkout, "dtensor_registry/planted.py", code), module
