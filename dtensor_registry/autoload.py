"""`DTENSOR_REGISTRY_AUTOLOAD=1`: install when DTensor is first imported, without a line of code.

torch calls `autoload` at the end of every `import torch` (entry-point group `torch.backends`), in
every process of everybody who has the host installed. So this module imports nothing beyond the
standard library, does nothing unless it is asked to, and never raises: a failure is a warning.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

SWITCH = "DTENSOR_REGISTRY_AUTOLOAD"
"""The environment variable; it is no setting, since it is read before there are any."""

TORCHS_SWITCH = "TORCH_DEVICE_BACKEND_AUTOLOAD"
"""torch's own: with 0, torch calls nobody."""

GROUP = "torch.backends"
"""The entry-point group that torch calls."""

DTENSOR = "torch.distributed.tensor"

_ON = ("1", "on", "true", "yes")
_OFF = ("", "0", "off", "false", "no")

failures: list[str] = []
"""What went wrong in this process, for `dtensor-registry doctor`."""


class AutoloadWarning(UserWarning):
    """Nothing was installed, although the environment asks for it."""


def is_wanted() -> bool:
    """Say whether the environment asks for it.

    Raises:
        ValueError: if it says neither yes nor no.
    """
    value = os.environ.get(SWITCH, "").strip().lower()
    if value not in (*_ON, *_OFF):
        raise ValueError(f"{SWITCH}={value!r} is neither 1 nor 0")
    return value in _ON


def autoload() -> None:
    """Install as soon as DTensor is imported, if the environment asks for it; torch calls this.

    A program that has imported functions of `dtensor_registry` before DTensor says itself when to
    install: nothing is done for it.
    """
    try:
        if not is_wanted():
            return
        if DTENSOR in sys.modules:
            _install()
        elif not any(isinstance(finder, _AfterDTensor) for finder in sys.meta_path):
            sys.meta_path.insert(0, _AfterDTensor())
    except Exception as error:
        _tell(error)


class _AfterDTensor:
    """Finds DTensor as it would be found, and has the host installed once it is there."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != DTENSOR:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        loader = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            execute(module)
            # As Python does right after this; the host, and plugins, say torch.distributed.tensor.
            sys.modules["torch.distributed"].__dict__["tensor"] = module
            try:
                _install()
            except Exception as error:
                _tell(error)

        vars(loader)["exec_module"] = exec_module
        return spec


def _install() -> None:
    # Below the host's own imports it cannot be installed; and the program is about to do it.
    if "dtensor_registry.torch_runtime" not in sys.modules:
        import_module("dtensor_registry.installation").install()


def _tell(error: Exception) -> None:
    failures.append(f"{type(error).__name__}: {error}")
    told = (
        f"{SWITCH}: nothing was installed in process {os.getpid()}; DTensor goes on with torch's"
        f" own rules.\n{failures[-1]}\n  Find out more:  dtensor-registry doctor"
    )
    try:
        warnings.warn(told, AutoloadWarning, stacklevel=2)
    except AutoloadWarning:
        # Where warnings are errors, this one would break `import torch`.
        print(f"{AutoloadWarning.__name__}: {told}", file=sys.stderr)
