"""What this process has: which torch, whose rules are in force, what others did to them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.compiler.config
from packaging.version import Version

from dtensor_registry.diagnosis.findings import Check, judge
from dtensor_registry.discovery import Discovery
from dtensor_registry.errors import LockFileError, LockMismatchError
from dtensor_registry.fingerprint import Fingerprint, of_installation
from dtensor_registry.lock.capture import check_lock
from dtensor_registry.resolution import Resolution
from dtensor_registry.settings import Settings
from dtensor_registry.torch_patch import compile_caches
from dtensor_registry.torch_patch.override_stack import LOAN
from dtensor_registry.torch_patch.third_party import overwritten, strangers
from dtensor_registry.torch_runtime.compat import SURFACE, TESTED, missing_tools


def check_torch() -> Check:
    """Hold torch's version against those that the suite has run on."""
    oldest, newest = TESTED[0], TESTED[-1]
    release = Version(torch.__version__).release
    strange = not Version(oldest).release <= release <= Version(newest).release
    told = f"{torch.__version__}, tested from {oldest} to {newest}"
    outside = ("no test of the host has run on this version",) if strange else ()
    return judge("torch", told, (), outside, f"pip install 'torch>={oldest},<={newest}'")


def check_private_names() -> Check:
    """Count the private names that the host stands on; it does not start without one of them."""
    wanted = sum(1 + len(name.attributes) for name in SURFACE if name.belongs_to(torch.__version__))
    missing = missing_tools()
    told = f"all {wanted} that the host stands on are there"
    if missing:
        told += f"; {len(missing)} are missing that only explain and audit need"
    step = f"pip install 'torch>={TESTED[0]},<={TESTED[-1]}' where you use these commands"
    return judge("private names", told, (), missing, step)


def check_in_force() -> Check:
    """Say what is in force."""
    told = "; ".join(
        f"{layer.name}, {len(layer.entries)} ops" + ("" if layer in LOAN.uncovered else ", covered")
        for layer in LOAN.layers
    )
    return Check("in force", "ok", told or "nothing in this process")


def check_tables() -> Check:
    """Say whether torch's tables hold what the host wrote, and who wrote over it."""
    found = overwritten()
    ops = sum(len(layer.entries) for layer in LOAN.uncovered)
    told = f"as the host wrote them for {ops} ops" if ops else "nothing of the host's"
    if found:
        told = f"{len(found)} of the host's entries were overwritten by other code"
    return judge(
        "tables",
        told,
        map(str, found),
        (),
        "have that code register through dtensor_registry, or before install()",
    )


def check_other_code() -> Check:
    """List rules that torch was given by neither itself nor a plugin."""
    found = strangers()
    told = f"{len(found)} rules in torch's tables are neither torch's nor a plugin's"
    if not found:
        told = "all other rules are torch's own"
    return judge(
        "other code",
        told,
        (),
        map(str, found),
        "they count as torch's in setting 'order'; contribute them by a plugin to rank them",
    )


def check_compile_cache() -> Check:
    """Say whether keys of torch.compile's caches tell rules apart."""
    tag = torch.compiler.config.cache_key_tag
    marked = compile_caches.MARK in tag
    told = f"cache_key_tag is {tag!r}"
    lost = () if marked or not LOAN.layers else ("it does not hold the rules in force",)
    return judge(
        "compile cache",
        told,
        lost,
        (),
        "append to torch.compiler.config.cache_key_tag what you want there; do not replace it",
    )


def check_fingerprint(
    settings: Settings, discovery: Discovery, resolution: Resolution, of_process: bool
) -> Check:
    """Give the hash of what decides.

    Args:
        settings: what decides.
        discovery: what plugins contribute.
        resolution: who wins each op.
        of_process: whether that is in force, perhaps with more on top of it.
    """
    found = of_installation(settings, discovery, resolution)
    return Check(
        "fingerprint", "ok", Fingerprint(LOAN.parts()).digest if of_process else found.digest
    )


def check_lock_file(
    settings: Settings, discovery: Discovery, resolution: Resolution
) -> Iterator[Check]:
    """Hold what was resolved against the lock file, if the settings name one."""
    if settings.lock is None:
        return
    failures: list[str] = []
    told, step = "no difference", ""
    try:
        check_lock(settings, discovery, resolution)
    except LockFileError as error:
        failures, told, step = [str(error)], "cannot be used", "lock"
    except LockMismatchError as error:
        failures, told, step = [str(error)], "what is installed differs", "diff"
    advice = f"dtensor-registry {step} {settings.lock}"
    yield judge("lock", f"{settings.lock}: {told}", failures, (), advice)
