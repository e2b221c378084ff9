"""A forked process shares its parent's installation and can undo it for itself."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

# A program of its own: the test's process has threads, and must not be forked.
PROGRAM = """\
import os, sys
import torch
import dtensor_registry as dr
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_runtime.dispatcher import propagator

TABLES = ("op_single_dim_strategy_funcs", "op_strategy_funcs", "op_to_rules", "op_to_schema_info",
          "op_to_schema_info_for_single_dim_strategy")
tables = lambda: {table: dict(getattr(propagator(), table)) for table in TABLES}
pristine = tables()
first = dr.install(allowed=["acme-rules"])
assert tables() != pristine

def in_child():
    again = dr.install(allowed=["acme-rules"])
    assert again is first and len(LOAN.layers) == 1, LOAN.layers
    again.uninstall()
    assert first.active
    first.uninstall()
    assert not first.active
    assert tables() == pristine
    with dr.install(allowed=["acme-rules"]):
        assert tables() != pristine
    assert tables() == pristine

child = os.fork()
if child == 0:
    try:
        in_child()
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
_, status = os.waitpid(child, 0)
assert first.active, "what the child did reached its parent"
first.uninstall()
assert tables() == pristine
sys.exit(os.waitstatus_to_exitcode(status))
"""

PLUGIN = """\
from dtensor_registry import SingleDimStrategy, hookimpl

@hookimpl
def provide_single_dim_strategy():
    return [SingleDimStrategy(["aten.relu", "aten.mm"], lambda op, args, kwargs: [])]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_installs_once_and_undoes_for_itself_alone(fake_distribution: Any) -> None:
    fake_distribution("acme-rules", PLUGIN)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
