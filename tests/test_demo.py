"""The main job: its parts, and a short run of the whole."""

from __future__ import annotations

import doctest
import importlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))  # the job is run from there, and is not installed

from main_job import comparison, data, metrics, report, torch_alone  # noqa: E402
from main_job.__main__ import Findings, conclude  # noqa: E402

TEXT = bytes(range(200))
SIZES = {"steps": 3, "batch": 4, "sequence": 16}

SWIGLU = report.OpRow(
    op="acme.swiglu.default",
    calls=60,
    decided_by="acme",
    torch_alone="no rule",
    placements=("R, S(2) <- R, S(2); R, S(2)",),
    collectives=(),
    bytes=0,
)
ADD = report.OpRow(
    op="aten.add.Tensor",
    calls=1200,
    decided_by="torch",
    torch_alone="its rule",
    placements=("S(0), R <- S(0), R; S(0), R", "R, R <- R, R; R, R"),
    collectives=(("all_gather", 30), ("all_reduce", 1)),
    bytes=123456,
)


ASKED = torch_alone.Outcome("acme.swiglu.default", "no rule", "R, moves nothing", "acme", "step 0")
METRICS = metrics.Metrics(distinct=7, scores=(1, 2), gap=0.5)


def printed(renderable: object, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(renderable)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def test_same_seed_gives_the_same_batches() -> None:
    first, second = (list(data.batches(TEXT, seed=5, **SIZES)) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_another_seed_gives_other_batches() -> None:
    first, second = (next(data.batches(TEXT, seed=seed, **SIZES))[0] for seed in (5, 6))
    assert not torch.equal(first, second)


def test_a_target_is_the_byte_after_its_token() -> None:
    for tokens, targets in data.batches(TEXT, seed=0, **SIZES):
        assert torch.equal(targets, tokens + 1)  # as the bytes of TEXT count up


def test_the_last_byte_of_the_text_is_used() -> None:
    [(tokens, targets)] = data.batches(b"abcd", steps=1, batch=1, sequence=3, seed=0)
    assert bytes(tokens[0].tolist()) == b"abc"
    assert bytes(targets[0].tolist()) == b"bcd"


def test_text_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="a window is 17 bytes, and the text has only 9"):
        next(data.batches(b"too short", seed=0, **SIZES))


def test_text_is_read_in_one_order_and_missing_files_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("docs/b.md", "LICENSE", "docs/a.md", "other.txt"):
        (tmp_path / name).write_text(name)
    assert data.read_text(tmp_path) == b"LICENSE\ndocs/a.md\ndocs/b.md"


def test_a_folder_without_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        data.read_text(tmp_path)


def test_ops_table_shows_the_most_expensive_op_first() -> None:
    assert printed(report.ops_table([SWIGLU, ADD])) == OPS_TABLE


OPS_TABLE = """\
                               Every op that ran on DTensors (rank 0)
┏━━━━━━━━━━━━━━━━━━┳━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┳━━━━━━━━━┓
┃                  ┃       ┃            ┃             ┃ placements:      ┃               ┃         ┃
┃                  ┃       ┃            ┃             ┃ outputs <-       ┃               ┃         ┃
┃ op               ┃ calls ┃ decided by ┃ torch alone ┃ inputs           ┃ collectives   ┃   bytes ┃
┡━━━━━━━━━━━━━━━━━━╇━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━╇━━━━━━━━━┩
│ aten.add.Tensor  │ 1,200 │ torch      │ its rule    │ S(0), R <- S(0), │ 30 all_gather │ 123,456 │
│                  │       │            │             │ R; S(0), R       │ 1 all_reduce  │         │
│                  │       │            │             │ R, R <- R, R; R, │               │         │
│                  │       │            │             │ R                │               │         │
├──────────────────┼───────┼────────────┼─────────────┼──────────────────┼───────────────┼─────────┤
│ acme.swiglu.defa │    60 │ acme       │ no rule     │ R, S(2) <- R,    │               │       0 │
│ ult              │       │            │             │ S(2); R, S(2)    │               │         │
└──────────────────┴───────┴────────────┴─────────────┴──────────────────┴───────────────┴─────────┘"""


def test_losses_table_shows_both_runs_step_by_step() -> None:
    assert printed(report.losses_table(comparison.compare([2.0, 1.0], [2.0, 1.25]))) == LOSSES_TABLE


LOSSES_TABLE = """\
              Loss per step (nats per byte)
┏━━━━━━┳━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━┓
┃ step ┃ one process ┃ four ranks ┃ relative difference ┃
┡━━━━━━╇━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━┩
│    1 │    2.000000 │   2.000000 │             0.0e+00 │
│    2 │    1.000000 │   1.250000 │             2.5e-01 │
└──────┴─────────────┴────────────┴─────────────────────┘"""


@pytest.mark.parametrize(
    ("plain", "sharded", "exit_code"),
    [
        pytest.param([2.0, 1.0], [2.0, 1.00009], 0, id="within the bar"),
        pytest.param([2.0, 1.0], [2.0, 1.00011], 1, id="parted"),
        pytest.param([2.0, 1.0], [2.0, 0.99989], 1, id="parted downwards"),
        pytest.param([2.0, 1.0], [2.0, float("nan")], 1, id="no number"),
        pytest.param([2.0, float("nan")], [2.0, float("nan")], 1, id="no number in both"),
        pytest.param([2.0, 1.0], [2.0], 1, id="a step is missing"),
        pytest.param([], [], 1, id="no step"),
    ],
)
def test_exit_code_is_1_when_the_losses_part(
    plain: list[float], sharded: list[float], exit_code: int
) -> None:
    findings = Findings((ASKED,), plain, sharded, [METRICS, METRICS], (SWIGLU, ADD))
    console = Console(file=io.StringIO(), width=120)
    assert conclude(findings, console) == exit_code
    verdict = console.file.getvalue().splitlines()[-1]
    assert verdict.startswith("The losses PART" if exit_code else "The losses agree")


@pytest.mark.parametrize("name", ["comparison", "data", "model", "report"])
def test_examples_in_the_docstrings_hold(name: str) -> None:
    done = doctest.testmod(importlib.import_module(f"main_job.{name}"))
    assert done.attempted > 0
    assert done.failed == 0


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_short_run_ends_with_agreement_and_the_table(tmp_path: Path) -> None:
    unset = {k: v for k, v in os.environ.items() if not k.startswith("DTENSOR_REGISTRY_")}
    done = subprocess.run(
        [sys.executable, "-m", "main_job", "--steps", "3", "--time-limit", "200"],
        cwd=EXAMPLES,
        env={**unset, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=270,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = " ".join(done.stdout.split())
    assert "What torch alone does with calls of this job" in shown
    deciders = {
        cells[1].strip(): (cells[3].strip(), cells[4].strip())
        for cells in (line.split("│") for line in done.stdout.splitlines())
        if len(cells) == 9
    }
    vendors = {op for op, decider in deciders.items() if decider[0] == "acme"}
    assert vendors == {
        f"acme.{op}.default"
        for op in ("rms_norm", "rms_norm_backward", "swiglu", "swiglu_backward")
    }
    expected = {
        "aten.mm.default": ("torch", "its rule"),
        "aten.mish_backward.default": ("pointwise", "takes it apart"),
        "aten.searchsorted.Tensor": ("structure", "no rule"),
        "aten.bincount.default": ("structure", "no rule"),
        "aten._unique2.default": ("fallback replicate", "no rule"),
        "aten.gather.default": ("corrections", "its rule"),
    }
    assert {op: deciders.get(op) for op in expected} == expected
    attention = [by for op, by in deciders.items() if "scaled_dot_product" in op]
    assert {decider for decider, _ in attention} == {"matrix"}
    assert list(tmp_path.glob("main_job-*")) == []
