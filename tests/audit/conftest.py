"""Programs to audit."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the modules of this folder importable, and forget them afterwards."""
    monkeypatch.syspath_prepend(str(HERE))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(HERE)):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def quiet_torch() -> Iterator[None]:
    """Keep torch from saying that two reductions in a row could be one."""
    log = logging.getLogger("torch.distributed.tensor")
    level = log.level
    log.setLevel(logging.ERROR)
    yield
    log.setLevel(level)
