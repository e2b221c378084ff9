"""Meshes without processes for the tests of adoption."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from tests.adoption.comparison import RANKS


@pytest.fixture(scope="module")
def fake_ranks() -> Iterator[None]:
    """Be rank 0 of eight, the others of which do not exist."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    dist.init_process_group("fake", rank=0, world_size=RANKS)
    yield
    dist.destroy_process_group()
    torch.set_num_threads(threads)
