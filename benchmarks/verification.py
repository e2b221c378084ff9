"""How fast rules are verified, beside torch's own validator on the same ops, in one run.

    python -m benchmarks.verification [--ops add,mul,mm] [--samples 8]

A combination is one way in which the inputs and outputs of one call are placed on one mesh.
torch's validator tries all of them on two ranks, for the sample and for its negation; ours
judges the rows that a rule offers, on meshes of 2, 3 and 4 ranks and in pairs on 2x2, and
searches for more rows on two ranks. Both check torch's own rules, with samples of OpInfo.
"""

from __future__ import annotations

import argparse
import io
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from dtensor_registry.settings import read_settings
from dtensor_registry_kit import check
from dtensor_registry_kit.samples.choose import samples_for
from dtensor_registry_kit.verification.targets import Target, find_targets

# The name of torch's database, and the overload that its samples call.
OPS = {
    "add": "aten.add.Tensor",
    "mul": "aten.mul.Tensor",
    "div": "aten.div.Tensor",
    "maximum": "aten.maximum.default",
    "sin": "aten.sin.default",
    "exp": "aten.exp.default",
    "nn.functional.relu": "aten.relu.default",
    "where": "aten.where.self",
    "mm": "aten.mm.default",
    "bmm": "aten.bmm.default",
}


@dataclass(frozen=True)
class Speed:
    """How many combinations took how long."""

    combinations: int
    seconds: float

    @property
    def milliseconds(self) -> float:
        """For one combination."""
        return 1e3 * self.seconds / max(self.combinations, 1)

    def __add__(self, other: Speed) -> Speed:
        return Speed(self.combinations + other.combinations, self.seconds + other.seconds)


@contextmanager
def group_of_two() -> Iterator[None]:
    """A process group of two ranks that are not there, as torch's validator wants it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        yield
    finally:
        dist.destroy_process_group()


def of_torch(name: str, samples: int) -> Speed:
    """Time torch's validator on one entry of its database."""
    from torch.distributed.tensor._ops.strategy_validation import compare_operator

    began = time.process_time()
    with group_of_two(), redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stats = compare_operator(name, "cpu", torch.float32, 2, samples)
    return Speed(stats.total_combinations, time.process_time() - began)


def of_ours(subject: Target, samples: int) -> Speed:
    """Time `check` on the rule of one overload; samples are made before."""
    assert subject.op is not None
    assert subject.rule is not None
    calls = samples_for(subject.op, None, samples).calls
    began = time.process_time()
    report = check(subject.op, calls, subject.rule, schema_info=subject.schema_info)
    return Speed(report.combinations, time.process_time() - began)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", default=",".join(OPS), help="names of torch's database")
    parser.add_argument("--samples", type=int, default=8)
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    names = chosen.ops.split(",")
    found = find_targets(read_settings(), [f"torch:{OPS[name]}" for name in names])
    subjects = {subject.name: subject for subject in found}
    of_ours(subjects[OPS[names[0]]], 1)  # imports and caches
    of_torch(names[0], 1)
    print(f"torch {torch.__version__}, {chosen.samples} samples, CPU time of one thread")
    print("| op | torch: combinations | ms each | ours: combinations | ms each | ratio |")
    print("|---|---|---|---|---|---|")
    theirs_total = ours_total = Speed(0, 0.0)
    for name in names:
        theirs = of_torch(name, chosen.samples)
        ours = of_ours(subjects[OPS[name]], chosen.samples)
        print(_row(name, theirs, ours), flush=True)
        theirs_total, ours_total = theirs_total + theirs, ours_total + ours
    print(_row("all", theirs_total, ours_total))


def _row(name: str, theirs: Speed, ours: Speed) -> str:
    ratio = theirs.milliseconds / ours.milliseconds if theirs.combinations else float("nan")
    cells = [
        name,
        str(theirs.combinations),
        f"{theirs.milliseconds:.2f}",
        str(ours.combinations),
        f"{ours.milliseconds:.2f}",
        f"{ratio:.1f}x",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
