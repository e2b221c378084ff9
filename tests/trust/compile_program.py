"""Compile `mm` under the rules named on the command line, one after the other.

Each word is a rule, `keep` or `gather`; one that ends in `?` is put in force without a mark in
torch's cache keys, as if the host did nothing about them. Printed is what the results show.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch._dynamo.utils import counters
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import dtensor_registry as dr
from dtensor_registry.torch_patch import compile_caches

RULES = {
    "keep": lambda op, args, kwargs: [
        [dr.ShardingPlaceholder(0), dr.ShardingPlaceholder(0), dr.REPLICATE]
    ],
    "gather": lambda op, args, kwargs: [],
}


def main(words: list[str]) -> None:
    """Compile under each rule and print."""
    mark = compile_caches.mark

    @torch.compile
    def product(x: Any, y: Any) -> Any:
        # Kernels of torch's own only: inductor then needs no C++ compiler.
        return torch.mm(x, y)

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    x = DTensor.from_local(torch.ones(2, 4), mesh, [Shard(0)])
    y = DTensor.from_local(torch.ones(4, 4), mesh, [Replicate()])
    seen = []
    for word in words:
        compile_caches.mark = (lambda digest: None) if word.endswith("?") else mark
        counters.clear()
        with dr.register_single_dim_strategy("aten.mm.default")(RULES[word.rstrip("?")]):
            out = product(x, y)
        found = counters["aot_autograd"]["autograd_cache_hit"] > 0
        seen.append([str(out.placements[0]), "from disk" if found else "compiled"])
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1:])
