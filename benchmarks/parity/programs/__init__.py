"""The programs, by name."""

from __future__ import annotations

from benchmarks.parity.programs import (
    checkpoints,
    compiled,
    fsdp,
    generation,
    modules,
    nets,
    optimizers,
    places,
    tensor_parallel,
    writes,
)
from benchmarks.parity.stage import Program

PROGRAMS: dict[str, Program] = {
    program.name: program
    for room in (
        optimizers,
        tensor_parallel,
        fsdp,
        checkpoints,
        modules,
        nets,
        generation,
        writes,
        places,
        compiled,
    )
    for program in room.PROGRAMS
}
"""Every program, in the order in which they run."""

__all__ = ["PROGRAMS"]
