"""Counts the ATen ops without rule and decomposition that run right under the fallback.

    python -m tests.schema.aten_fallback

Each op runs in a process of its own, once on plain tensors and once on DTensors on two ranks,
with every tensor cut along dim 0 where it has at least two rows.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import warnings
from collections import Counter, defaultdict
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._pytree import tree_leaves, tree_map_only

import dtensor_registry as dr
from dtensor_registry.errors import RegistryError
from dtensor_registry_kit.simulation.reference_run import alike_memory
from tests.schema.aten_ops import GROUPS, ruleless_ops, runs_on_cpu
from tests.schema.outcome import difference
from tests.schema.samples import Sample, Samples, copied, fitted, recorded, samples_of
from tests.schema.world import S0, R, local_ranks, on_mesh

OUTCOMES = ("right", "refused", "raised", "WRONG", "no sample")
SECONDS = 60


def examine(op: OpOverload, given: Samples) -> tuple[str, str]:
    """Say what comes of an op on a sharded sample: one of `OUTCOMES`, and why."""
    if not runs_on_cpu(op):
        return "no sample", "no kernel for plain CPU tensors"
    if len(op._schema.returns) > 1 and any("List" in str(r.type) for r in op._schema.returns):
        # The matrix has such an op on real processes.
        return "no sample", "returns a list beside others, which LocalTensorMode cannot"
    reason = "no arguments found that it takes"
    for sample in samples_of(op, given):
        try:
            usable = fitted(op, sample)
            results = _run(op, usable)
        except Exception:  # noqa: S112
            continue  # a guess that the op does not take
        fault = _unusable(usable, results)
        if fault is None:
            return _compare(op, usable)
        reason = fault
    return "no sample", reason


def _unusable(sample: Sample, results: Any) -> str | None:
    """Say why a call that runs on plain tensors tells nothing, or None."""
    given = [v for v in tree_leaves(sample) if isinstance(v, Tensor)]
    returned = [v for v in tree_leaves(results) if isinstance(v, Tensor)]
    if any(t.layout != torch.strided or t.is_quantized or t.is_nested for t in given + returned):
        return "takes or returns sparse, quantized or nested tensors"
    return None if any(map(_shardable, given)) else "no sample has a tensor with two rows"


def _compare(op: OpOverload, sample: Sample) -> tuple[str, str]:
    expected, same, *others = (_run(op, sample, seed=seed) for seed in (0, 0, 1, 1))
    random = [
        _agree(a, b) and _agree(c, d) and not _agree(a, c)
        for a, b, c, d in _together(expected, same, *others)
    ]
    with local_ranks(2) as mesh, dr.install(fallback={"mode": "silent"}):
        args, kwargs = _sharded(sample, mesh)
        torch.manual_seed(0)
        try:
            result = op(*args, **kwargs)
        except Exception as error:
            ours = isinstance(error, RegistryError) or isinstance(error.__cause__, RegistryError)
            ours = ours and str(op) in str(error)
            text = f"{type(error).__name__}: {str(error).strip()}"
            return ("refused" if ours else "raised"), text
        if any(random):
            return "WRONG", "it draws random numbers, and was not refused"
        found = tree_leaves((result, args, kwargs))
        wanted = tree_leaves(expected)
        if len(found) != len(wanted):
            return "WRONG", f"{len(found)} results, expected {len(wanted)}"
        for got, (one, again) in zip(found, _together(expected, same), strict=True):
            # What the op leaves undefined differs from run to run: only its shape counts.
            fault = difference(got, one) if _agree(one, again) else _shape_fault(got, one)
            if fault is not None:
                return "WRONG", fault
    return "right", ""


def _run(op: OpOverload, sample: Sample, seed: int = 0) -> Any:
    """Run on copies; give the result and the arguments afterwards."""
    args, kwargs = copied(sample)
    torch.manual_seed(seed)
    return op(*args, **kwargs), args, kwargs


def _together(*runs: Any) -> list[tuple[Any, ...]]:
    return list(zip(*map(tree_leaves, runs), strict=True))


def _agree(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return one.shape == other.shape and torch.allclose(one, other, equal_nan=True)
    return bool(one == other or one is other)


def _shape_fault(got: Any, one: Tensor) -> str | None:
    return None if got.shape == one.shape else f"{tuple(got.shape)}, expected {tuple(one.shape)}"


def _sharded(sample: Sample, mesh: DeviceMesh) -> Sample:
    made: Sample = tree_map_only(
        Tensor, lambda t: on_mesh(t, (S0 if _shardable(t) else R,), mesh), copied(sample)
    )
    return made


def _shardable(tensor: Tensor) -> bool:
    return tensor.ndim > 0 and tensor.shape[0] >= 2


def _answer(op: OpOverload, given: Samples, pipe: Any) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with alike_memory():
        pipe.send(examine(op, given))


def main() -> int:
    """Examine every op and print the table; the exit code is the number of wrong ones."""
    given = recorded()
    fork = multiprocessing.get_context("fork")
    found: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    for group, op in ruleless_ops():
        ours, theirs = fork.Pipe(duplex=False)
        process = fork.Process(target=_answer, args=(op, given, theirs))
        process.start()
        theirs.close()
        try:
            outcome = ours.recv() if ours.poll(SECONDS) else ("no sample", "it does not end")
        except EOFError:
            outcome = ("no sample", "the process crashed")
        process.kill()
        process.join()
        found[group][str(op)] = outcome
    _print(found)
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as file:
            json.dump(found, file, indent=1)
    return sum(o == "WRONG" for ops in found.values() for o, _ in ops.values())


def _print(found: dict[str, dict[str, tuple[str, str]]]) -> None:
    print(f"{'':12}{'ops':>6}" + "".join(f"{name:>12}" for name in OUTCOMES) + "   right of run")
    for group in GROUPS:
        counts = Counter(outcome for outcome, _ in found[group].values())
        judged = counts["right"] + counts["raised"] + counts["WRONG"]
        share = f"{100 * counts['right'] / judged:.1f} %" if judged else "-"
        row = "".join(f"{counts[name]:>12}" for name in OUTCOMES)
        print(f"{group:12}{len(found[group]):>6}{row}   {share}")
    for wanted in OUTCOMES[1:]:
        print(f"\n{wanted}")
        reasons = Counter(
            (reason.splitlines() or [""])[0]
            for ops in found.values()
            for outcome, reason in ops.values()
            if outcome == wanted
        )
        if wanted == "no sample":
            for reason, number in reasons.most_common():
                print(f"  {number:4} {reason}")
            continue
        for group in GROUPS:
            for name, (outcome, reason) in found[group].items():
                if outcome == wanted:
                    print(f"  {name}: {' '.join(reason.split())[:160]}")


if __name__ == "__main__":
    sys.exit(main())
