"""`doctor()`: look at everything, in the order in which one thing rests on the other."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from dtensor_registry.diagnosis.autoload_check import check_autoload
from dtensor_registry.diagnosis.findings import Check, Checkup
from dtensor_registry.diagnosis.plugin_checks import (
    check_metadata,
    check_plugins,
    check_settings,
    find,
)
from dtensor_registry.errors import UnsupportedTorchError
from dtensor_registry.settings import Settings, read_settings


def doctor(settings: Settings | None = None, *, corrections: bool = False) -> Checkup:
    """Look at torch, plugins, settings, torch's tables and caches, and say what to do.

    Plugins are loaded, as `install()` would; nothing is put in force. In a process in which
    something is in force, that is what is looked at.

    Args:
        settings: what to look at; None: those of the uppermost installation of this process, or
            as `install()` reads them.
        corrections: run the counterexamples of what plugins mend of torch's, on simulated ranks
            and without the plugins; that takes some seconds.

    Raises:
        SettingsError: if settings cannot be read.

    >>> doctor()["torch"].state
    'ok'
    """
    chosen = settings if settings is not None else read_settings()
    broken = list(_broken_torch())
    if broken:
        return Checkup((*broken, *_without_torch(chosen)))
    return Checkup(tuple(_with_torch(chosen, settings is None, corrections)))


def _broken_torch() -> Iterator[Check]:
    """Say why torch cannot be used, or nothing."""
    try:
        import_module("dtensor_registry.installation")
    except UnsupportedTorchError as error:
        yield Check("torch", "fail", f"{error.version} is not one that the host can work with")
        yield Check(
            "private names",
            "fail",
            f"{len(error.missing)} are missing or have changed",
            error.missing,
            "use a torch in the tested range, see docs/versions.md, or report this",
        )
    except ImportError as error:
        step = "pip install 'torch>=2.13,<2.16'"
        yield Check("torch", "fail", "it cannot be used", (f"{error}",), step)


def _without_torch(settings: Settings) -> Iterator[Check]:
    discovery = find(settings, None)
    yield check_settings(settings, discovery, [])
    yield check_plugins(settings, discovery)
    yield check_metadata()
    yield check_autoload()


def _with_torch(settings: Settings, of_process: bool, corrections: bool) -> Iterator[Check]:
    # Here, since these need a torch that can be used.
    from dtensor_registry.diagnosis import process_checks, rule_checks
    from dtensor_registry.installation.installer import in_force
    from dtensor_registry.torch_patch.import_guard import watch

    held = in_force() if of_process else None
    if held is None:
        discovery = find(settings, watch)
    else:
        settings, discovery = held.settings, held.discovery
    outcome = rule_checks.settle(settings, discovery)
    yield process_checks.check_torch()
    yield process_checks.check_private_names()
    yield check_settings(settings, discovery, list(outcome.unused_pins))
    yield check_plugins(settings, discovery)
    yield check_metadata()
    yield rule_checks.check_conflicts(settings, outcome)
    yield rule_checks.check_rules(outcome)
    yield from rule_checks.check_corrections(discovery, corrections)
    yield process_checks.check_in_force()
    yield process_checks.check_tables()
    yield process_checks.check_other_code()
    yield check_autoload()
    yield process_checks.check_compile_cache()
    yield process_checks.check_fingerprint(
        settings, discovery, outcome.resolution, held is not None
    )
    yield from process_checks.check_lock_file(settings, discovery, outcome.resolution)
