"""What the programs run on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.never_worse.comparison import Comparison


@pytest.fixture
def compare(
    local_mesh: Callable[..., Any], repository_plugins: None
) -> Iterator[Callable[..., Comparison]]:
    """Give what runs programs: `compare(2, 2).assert_none_worse(programs, (x, "S(0), R"))`."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # torch's advice about sequential collectives
    yield lambda *shape: Comparison(local_mesh(*shape))
    logging.disable(before)
