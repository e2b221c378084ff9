"""Would `import torch` lead to an installation, and did it."""

from __future__ import annotations

import os

from dtensor_registry import autoload
from dtensor_registry.diagnosis.findings import Check, judge
from dtensor_registry.discovery.distributions import declared_in


def check_autoload() -> Check:
    """Say whether torch calls the host, and whether the environment asks for it."""
    declared = [
        entry.name
        for entry in declared_in(autoload.GROUP)
        if entry.value.startswith(autoload.__name__)
    ]
    switch = autoload.SWITCH
    try:
        wanted = autoload.is_wanted()
    except ValueError as error:
        return Check("autoload", "warn", str(error), (), f"{switch}=1, or unset it")
    if not wanted:
        return Check("autoload", "ok", f"off; {switch}=1 installs when DTensor is imported")
    failures, steps = list(autoload.failures), []
    if failures:
        steps.append("mend that, and start the program anew")
    if not declared:
        failures.append(f"no entry point in group {autoload.GROUP!r} leads here")
        steps.append("install dtensor-registry anew:  pip install --force-reinstall --no-deps ...")
    if os.environ.get(autoload.TORCHS_SWITCH, "1") == "0":
        failures.append(f"{autoload.TORCHS_SWITCH}=0 keeps torch from calling anybody")
        steps.append(f"unset {autoload.TORCHS_SWITCH}, or call dtensor_registry.install()")
    return judge("autoload", f"on, by {switch}", failures, (), "\n".join(steps))
