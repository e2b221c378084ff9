"""The benchmark runs from end to end; its numbers are nobody's business here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(600)
def test_a_quick_benchmark_measures_both_sides(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    files = ["--json", str(results), "--plot", str(tmp_path / "plot.png")]
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.propagation", "--quick", *files],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert "mm: whole decision" in ran.stdout
    figures = json.loads(results.read_text())["figures"]
    compared = {figure["what"] for figure in figures if figure["bare"]}
    assert {"5 inputs, 12 rows: expansion", "first step of the demo's model"} <= compared
    assert all(figure["registry"] > 0 for figure in figures)
