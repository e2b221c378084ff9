"""What authors of sharding rules need beside the host: judge, simulate, derive, and test.

    from dtensor_registry_kit import StrategyConformance


    class TestConformance(StrategyConformance):
        distribution = "acme-kernels"

Importing this package imports neither torch nor pytest: a name brings what it needs when it is
first used, so that `simulated_mesh` works without pytest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dtensor_registry.torch_patch.torch_rules import torch_rows
    from dtensor_registry.torch_runtime.ops import overloads
    from dtensor_registry_kit.derivation.derive import Derivation, derive
    from dtensor_registry_kit.dispatching.check_installed import check_installed
    from dtensor_registry_kit.judging.check import check
    from dtensor_registry_kit.judging.findings import Finding, Report
    from dtensor_registry_kit.judging.judge import Verdict, check_row, judge
    from dtensor_registry_kit.pytest_plugin.conformance import StrategyConformance
    from dtensor_registry_kit.samples.sample import Sample, draw
    from dtensor_registry_kit.simulation.mesh import simulated_mesh
    from dtensor_registry_kit.simulation.reference_run import ReferenceRun, run_reference
    from dtensor_registry_kit.verification.verify import verify

_HOMES = {
    "Derivation": "dtensor_registry_kit.derivation.derive",
    "Finding": "dtensor_registry_kit.judging.findings",
    "ReferenceRun": "dtensor_registry_kit.simulation.reference_run",
    "Report": "dtensor_registry_kit.judging.findings",
    "Sample": "dtensor_registry_kit.samples.sample",
    "StrategyConformance": "dtensor_registry_kit.pytest_plugin.conformance",
    "Verdict": "dtensor_registry_kit.judging.judge",
    "check": "dtensor_registry_kit.judging.check",
    "check_installed": "dtensor_registry_kit.dispatching.check_installed",
    "check_row": "dtensor_registry_kit.judging.judge",
    "derive": "dtensor_registry_kit.derivation.derive",
    "draw": "dtensor_registry_kit.samples.sample",
    "judge": "dtensor_registry_kit.judging.judge",
    "overloads": "dtensor_registry.torch_runtime.ops",
    "run_reference": "dtensor_registry_kit.simulation.reference_run",
    "simulated_mesh": "dtensor_registry_kit.simulation.mesh",
    "torch_rows": "dtensor_registry.torch_patch.torch_rules",
    "verify": "dtensor_registry_kit.verification.verify",
}
"""The module that has each name."""

__all__ = [
    "Derivation",
    "Finding",
    "ReferenceRun",
    "Report",
    "Sample",
    "StrategyConformance",
    "Verdict",
    "check",
    "check_installed",
    "check_row",
    "derive",
    "draw",
    "judge",
    "overloads",
    "run_reference",
    "simulated_mesh",
    "torch_rows",
    "verify",
]


def __getattr__(name: str) -> Any:
    # PEP 562
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
