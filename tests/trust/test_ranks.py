"""Ranks that would shard differently stop with one error that names why, before they hang."""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

import dtensor_registry as dr
from dtensor_registry.discovery import PluginWarning
from dtensor_registry.errors import InstallError, RegistryError
from dtensor_registry.installation.rank_check import rank_differences, show_ranks


@torch.library.custom_op("trust_ranks::shift", mutates_args=())
def shift(x: Tensor) -> Tensor:
    return x + 1


@shift.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


PLUGIN = """\
from dtensor_registry import ShardingPlaceholder, SingleDimStrategy, hookimpl

def rows(op, args, kwargs):
    return {rows}

@hookimpl
def provide_single_dim_strategy():
    return [SingleDimStrategy("trust_ranks.shift.default", rows)]
"""
KEEP, GATHER = "[[ShardingPlaceholder(0)] * 2]", "[]"


@contextmanager
def plugin(
    version: str, rows: str = KEEP, name: str = "acme", source: str = PLUGIN
) -> Iterator[None]:
    """Have a plugin installed in this process for the length of a block."""
    with tempfile.TemporaryDirectory() as folder:
        info = Path(folder) / f"{name}_rules-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}-rules\nVersion: {version}\n"
        )
        (info / "entry_points.txt").write_text(f"[dtensor_registry]\n{name} = {name}_rules\n")
        (Path(folder) / f"{name}_rules.py").write_text(source.format(rows=rows))
        sys.path.append(folder)
        sys.modules.pop(f"{name}_rules", None)
        try:
            yield
        finally:
            sys.path.remove(folder)


def installed(**settings: Any) -> Any:
    with warnings.catch_warnings():
        # Not every scene has both plugins, and one of them fails.
        warnings.simplefilter("ignore", PluginWarning)
        return dr.install(**{"allowed": ["acme-rules", "other-rules"], **settings})


def error_of(timeout: float = 20, **settings: Any) -> str:
    """Install, compare ranks, and tell the error."""
    with installed(**settings) as installation:
        return told(lambda: installation.check_ranks(timeout=timeout))


def told(action: Any) -> str:
    try:
        action()
    except RegistryError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def seen_by(rank: int) -> dict[str, Any]:
    """Run everything on one of two ranks, and tell what it saw."""
    sys.dont_write_bytecode = True  # one module name with several sources
    seen: dict[str, Any] = {}
    with plugin("1.0"):
        seen["alike"] = [error_of() for _ in range(3)]
    with plugin("1.1" if rank else "1.0"):
        seen["another version"] = error_of()
    with plugin("1.0", GATHER if rank else KEEP):
        seen["another rule"] = error_of()
    with plugin("1.0"):
        seen["another setting"] = error_of(order=["*", "torch"] if rank else ["torch", "*"])
        with installed() as installation:
            registered = (
                dr.register_single_dim_strategy("aten.relu.default")(dr.pointwise())
                if rank
                else None
            )
            seen["a local rule"] = told(installation.check_ranks)
            if registered is not None:
                registered.undo()
            seen["a group"] = told(lambda: installation.check_ranks(dist.new_group([0, 1])))
            if rank == 0:
                start = time.monotonic()
                seen["a missing rank"] = told(lambda: installation.check_ranks(timeout=0.5))
                seen["waited"] = time.monotonic() - start
            dist.barrier()
            seen["after it"] = told(installation.check_ranks)
        if rank:
            with plugin("2.0", name="other"):
                seen["a plugin more"] = error_of(disabled=["other:*"])
        else:
            seen["a plugin more"] = error_of(disabled=["other:*"])
        broken = "import no_such_module" if rank else "from dtensor_registry import hookimpl\n"
        sound = "" if rank else "@hookimpl\ndef provide_single_dim_strategy():\n    return []\n"
        with plugin("2.0", name="other", source=broken + sound):
            seen["a failed plugin"] = error_of(on_plugin_error="skip")
    with plugin("1.0", GATHER if rank else KEEP):
        seen["unchecked"], seen["checked"], seen["seconds"] = used(rank)
    return seen


def used(rank: int) -> tuple[str, str, float]:
    """Use a mesh on two ranks that have different rules, first unchecked, then checked."""
    # A group of its own, whose time ends soon: one rank waits for a collective that never comes.
    group = dist.new_group(timeout=timedelta(seconds=3))
    mesh = DeviceMesh.from_group(group, "cpu")
    x = DTensor.from_local(torch.ones(2), mesh, [Shard(0)])

    def unchecked() -> str:
        with installed(check_ranks="off"):
            try:
                return str(shift(x).placements)
            except RuntimeError as error:
                return f"{type(error).__name__} {'imed out' in str(error)}"

    first = unchecked()
    dist.barrier()
    start = time.monotonic()
    with installed(check_ranks="wait"):
        second = told(lambda: shift(x))
    return first, second, time.monotonic() - start


@pytest.fixture(scope="module")
def seen(run_ranks: Any) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = run_ranks(seen_by, ranks=2, timeout=100)
    return result


def alike(seen: list[dict[str, Any]], what: str) -> str:
    """What both ranks were told, which must be one thing."""
    first, second = (one[what] for one in seen)
    assert first == second
    return str(first)


HEAD = (
    "RanksDisagreeError: 2 ranks do not decide alike; they would wait for each other for ever, or"
    " compute different values.\n"
)
FOOT = (
    "\n  Give every rank the same distributions and settings; what a rank has:"
    "  dtensor-registry plugins --load"
)


def test_ranks_that_decide_alike_agree_however_often_they_compare(seen: Any) -> None:
    assert [one["alike"] for one in seen] == [["no error"] * 3] * 2


def test_another_version_on_one_rank_is_named_with_both_versions_and_no_op(seen: Any) -> None:
    assert alike(seen, "another version") == (
        f"{HEAD}"
        "  plugin acme\n"
        "      rank 0: acme-rules 1.0 (acme_rules) active\n"
        "      rank 1: acme-rules 1.1 (acme_rules) active"
        f"{FOOT}"
    )


def test_another_rule_under_one_version_is_named_by_its_op(seen: Any) -> None:
    text = alike(seen, "another rule")
    assert "  op trust_ranks.shift.default\n      rank 0: acme-rules 1.0 (acme), rule " in text
    assert "      rank 1: acme-rules 1.0 (acme), rule " in text
    assert "plugin" not in text.removesuffix(FOOT)


def test_another_setting_is_named_with_both_values(seen: Any) -> None:
    assert alike(seen, "another setting") == (
        f'{HEAD}  setting order\n      rank 0: ["torch", "*"]\n      rank 1: ["*", "torch"]{FOOT}'
    )


def test_a_rule_that_one_rank_registered_by_hand_is_named(seen: Any) -> None:
    text = alike(seen, "a local rule")
    assert "  op aten.relu.default\n      rank 0: nothing\n      rank 1: this process, " in text


def test_a_group_can_be_compared(seen: Any) -> None:
    assert alike(seen, "a group") == "no error"


def test_a_rank_that_does_not_come_is_named_after_the_timeout(seen: Any) -> None:
    assert seen[0]["a missing rank"].startswith(
        "MissingRanksError: rank 1 did not come within 0.5 s to compare rules."
    )
    assert seen[0]["waited"] < 5


def test_after_a_rank_was_missing_all_can_compare_again(seen: Any) -> None:
    assert alike(seen, "after it") == "no error"


def test_a_plugin_that_only_one_rank_has_is_named(seen: Any) -> None:
    text = alike(seen, "a plugin more")
    assert "  plugin other\n      rank 0: nothing\n      rank 1: other-rules 2.0 (oth" in text


def test_a_plugin_that_failed_on_one_rank_and_was_skipped_is_named(seen: Any) -> None:
    assert alike(seen, "a failed plugin") == (
        f"{HEAD}"
        "  plugin other\n"
        "      rank 0: other-rules 2.0 (other_rules) active\n"
        "      rank 1: other-rules 2.0 (other_rules) failed"
        f"{FOOT}"
    )


def test_without_the_check_one_rank_goes_on_and_the_other_waits_until_its_time_is_out(
    seen: Any,
) -> None:
    assert [one["unchecked"] for one in seen] == ["(Shard(dim=0),)", "RuntimeError True"]


def test_with_the_check_at_first_use_of_a_mesh_both_stop_with_the_same_error_soon(
    seen: Any,
) -> None:
    assert alike(seen, "checked").startswith(f"{HEAD}  op trust_ranks.shift.default\n")
    assert max(one["seconds"] for one in seen) < 10


def test_without_a_process_group_there_is_nobody_to_compare_with() -> None:
    with installed() as installation, pytest.raises(InstallError, match="no process group"):
        installation.check_ranks()


def test_ranks_that_are_only_pretended_are_not_waited_for(local_mesh: Any) -> None:
    local_mesh(4)
    with installed(check_ranks="wait") as installation:
        installation.check_ranks(timeout=1)


@pytest.mark.parametrize(
    ("ranks", "shown"),
    [([0], "rank 0"), ([2, 0, 1, 7], "ranks 0-2, 7"), ([1, 3], "ranks 1, 3")],
)
def test_ranks_are_shown_in_runs(ranks: list[int], shown: str) -> None:
    assert show_ranks(ranks) == shown


def test_at_most_ten_ops_are_shown_and_the_rest_is_counted() -> None:
    parts = {(rank,): {f"op {number}": str(rank) for number in range(25)} for rank in range(2)}
    told = rank_differences(parts)
    assert len(told) == 11
    assert told[-1] == "... and 15 more ops"
