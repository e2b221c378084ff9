"""`import dtensor_registry` does nothing but define names, and the check of that is alive."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN_MODULES = [
    "acme_kernels",
    "dtensor_registry_corrections",
    "dtensor_registry_fallback",
    "dtensor_registry_matrix",
    "dtensor_registry_pointwise",
    "dtensor_registry_structure",
]

WITHOUT_TORCH = """
import json, sys
import dtensor_registry
from dtensor_registry import FallbackStrategy, ShardingPlaceholder, SingleDimStrategy
from dtensor_registry import einsum, hookimpl, like, pointwise

watched = ["torch", *json.loads(sys.argv[1])]
print(json.dumps({
    "file": dtensor_registry.__file__,
    "findings": [f"loaded {name}" for name in watched if name in sys.modules],
}))
"""

# Everything that the registry could write to is compared by identity: the attributes of torch's
# dispatcher and propagator, of their classes and modules, and what is in each of their dicts.
WITH_TORCH = """
import json, sys
import torch
from torch.distributed.tensor import DTensor, _dispatch, _sharding_prop

dispatcher = DTensor._op_dispatcher
propagator = dispatcher.sharding_propagator
tables = [
    "op_single_dim_strategy_funcs", "op_strategy_funcs", "op_to_rules",
    "op_to_schema_info", "op_to_schema_info_for_single_dim_strategy",
]

def snapshot():
    namespaces = {
        "DTensor": vars(DTensor),
        "dispatcher": vars(dispatcher),
        "propagator": vars(propagator),
        "OpDispatcher": vars(type(dispatcher)),
        "ShardingPropagator": vars(type(propagator)),
        "_dispatch": vars(_dispatch),
        "_sharding_prop": vars(_sharding_prop),
    }
    dicts = {
        f"{owner}.{name}": value
        for owner, names in namespaces.items()
        for name, value in names.items()
        if isinstance(value, dict) and name != "__builtins__"
    }
    assert {f"propagator.{table}" for table in tables} <= dicts.keys()
    return {name: dict(contents) for name, contents in (namespaces | dicts).items()}

def changed(old, new):
    kept = {key for key in old.keys() & new.keys() if old[key] is new[key]}
    return (old.keys() | new.keys()) - kept

before = snapshot()
import dtensor_registry
after = snapshot()

findings = [f"loaded {name}" for name in json.loads(sys.argv[1]) if name in sys.modules]
findings += [
    f"changed {name}[{key}]"
    for name in sorted(before.keys() | after.keys())
    for key in sorted(map(str, changed(before.get(name, {}), after.get(name, {}))))
]
if torch.distributed.is_initialized():
    findings.append("started a process group")
print(json.dumps({"file": dtensor_registry.__file__, "findings": findings}))
"""

PLANTED_WITHOUT_TORCH = """
import torch.fx
import dtensor_registry_pointwise
import acme_kernels
"""

PLANTED_WITH_TORCH = """
import torch
from torch.distributed.tensor import DTensor, _sharding_prop

_dispatcher = DTensor._op_dispatcher
_propagator = _dispatcher.sharding_propagator
_mm = torch.ops.aten.mm.default
_propagator.op_single_dim_strategy_funcs[_mm] = print
_propagator.op_strategy_funcs[_mm] = print
_propagator.op_to_rules[_mm] = print
_propagator.op_to_schema_info[_mm] = print
_propagator.op_to_schema_info_for_single_dim_strategy.pop(_mm, None)
_propagator.op_to_schema_info_for_single_dim_strategy["planted"] = print
_propagator.propagate_op_sharding = print
_dispatcher._custom_op_handlers[_mm] = print
_dispatcher.unwrap_to_op_info = print
_sharding_prop._expand_single_dim_strategy_to_mesh = print
_store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=_store, rank=0, world_size=1)
"""


@pytest.fixture
def copy(checkout: Path, tmp_path: Path) -> Path:
    """A folder with a copy of the host package, to plant violations in."""
    shutil.copytree(checkout / "dtensor_registry", tmp_path / "dtensor_registry")
    return tmp_path


def findings(probe: str, folder: Path) -> list[str]:
    """What a probe reports in a fresh interpreter that imports the host from `folder`."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DTENSOR_REGISTRY_")}
    paths = [str(folder), *filter(None, [environment.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    # Or torch would import the package, for its autoload, before the probe looks.
    environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    run = subprocess.run(
        [sys.executable, "-c", probe, json.dumps(PLUGIN_MODULES)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert Path(report["file"]).parent == folder / "dtensor_registry"
    return list(report["findings"])


def plant(folder: Path, code: str) -> None:
    with (folder / "dtensor_registry" / "__init__.py").open("a", encoding="utf-8") as source:
        source.write(code)


def test_import_loads_neither_torch_nor_a_plugin(checkout: Path) -> None:
    assert findings(WITHOUT_TORCH, checkout) == []


def test_import_leaves_dtensor_as_it_was(checkout: Path) -> None:
    assert findings(WITH_TORCH, checkout) == []


def test_planted_loads_are_found(copy: Path) -> None:
    plant(copy, PLANTED_WITHOUT_TORCH)
    assert {"loaded torch", "loaded dtensor_registry_pointwise", "loaded acme_kernels"} <= set(
        findings(WITHOUT_TORCH, copy)
    )


def test_planted_writes_are_found(copy: Path) -> None:
    plant(copy, PLANTED_WITH_TORCH)
    assert {
        "changed propagator.op_single_dim_strategy_funcs[aten.mm.default]",
        "changed propagator.op_strategy_funcs[aten.mm.default]",
        "changed propagator.op_to_rules[aten.mm.default]",
        "changed propagator.op_to_schema_info[aten.mm.default]",
        "changed propagator.op_to_schema_info_for_single_dim_strategy[planted]",
        "changed propagator[propagate_op_sharding]",
        "changed dispatcher._custom_op_handlers[aten.mm.default]",
        "changed dispatcher[unwrap_to_op_info]",
        "changed _sharding_prop[_expand_single_dim_strategy_to_mesh]",
        "started a process group",
    } <= set(findings(WITH_TORCH, copy))
