"""Run the suite on several versions of torch, and write down what came out.

`make test-matrix` runs it. Each version gets an environment of its own outside of the checkout
(some GiB), made on first use and kept. The table goes into docs/versions.md with `--write`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "versions.md"
VERSIONS = ("2.13.0", "2.14.1")
TESTS = tuple(
    f"tests/{folder}"
    for folder in ("unit", "torch_rules", "expansion", "trust", "bad_plugins", "fuzz", "soak")
)
NEEDS = (
    "expecttest",
    "hypothesis",
    "importlib-metadata",
    "jinja2",
    "numpy",
    "packaging",
    "pluggy",
    "pydantic",
    "pydantic-settings",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "rich",
    "typing-extensions",
)
MARKS = "<!-- results: begin -->", "<!-- results: end -->"


@dataclass(frozen=True)
class Run:
    """What one folder of tests did on one version."""

    version: str
    tests: str
    counts: Counter[str]
    failed: tuple[str, ...]


def environment(version: str, folder: Path) -> Path:
    """Make an environment with a version of torch, or take the one that is there."""
    python = folder / f"torch-{version}" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
    pinned = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not line.startswith("torch==")
    ]
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(pinned))
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", str(constraints), f"torch=={version}", *NEEDS], check=True)
    return python


def run(python: Path, version: str, tests: str) -> Run:
    """Run one folder of tests."""
    sources = [ROOT, *sorted(ROOT.glob("plugins/*/src")), ROOT / "examples/acme_kernels/src"]
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", tests],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, sources)),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    last = next((line for line in reversed(done.stdout.splitlines()) if " in " in line), "")
    counts = Counter({what: int(count) for count, what in re.findall(r"(\d+) ([a-z]+)", last)})
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if done.returncode > 1:
        failed.append(f"pytest ended with {done.returncode}")
    return Run(version, tests, counts, tuple(failed))


def table(runs: list[Run]) -> str:
    """Write the results as a table, and name what failed."""
    lines = ["| torch | tests | passed | failed | skipped |", "|---|---|---|---|---|"]
    for one in runs:
        bad = one.counts["failed"] + one.counts["errors"] + one.counts["error"]
        cells = (one.version, one.tests, one.counts["passed"], bad, one.counts["skipped"])
        lines.append(f"| {' | '.join(map(str, cells))} |")
    for one in runs:
        lines += [f"- {one.version}: `{name}`" for name in one.failed]
    return "\n".join(lines)


def main() -> int:
    """Run every version and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", nargs="+", default=VERSIONS)
    parser.add_argument("--tests", nargs="+", default=TESTS)
    parser.add_argument("--folder", type=Path, help="where environments are kept")
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="VERSION=PATH",
        help="an environment that is there already",
    )
    parser.add_argument("--write", action="store_true", help="put the table into docs/versions.md")
    chosen = parser.parse_args()
    folder = chosen.folder or Path(tempfile.gettempdir()) / "dtensor-registry-matrix"
    folder.mkdir(parents=True, exist_ok=True)
    given = {version: Path(path) for version, path in (one.split("=") for one in chosen.python)}
    runs = []
    for version in chosen.versions:
        python = given.get(version) or environment(version, folder)
        for tests in chosen.tests:
            runs.append(run(python, version, tests))
            print(table(runs[-1:]).splitlines()[2], flush=True)
    text = table(runs)
    print(text)
    if chosen.write:
        page = PAGE.read_text("utf-8")
        before, _, rest = page.partition(MARKS[0])
        after = rest.partition(MARKS[1])[2]
        PAGE.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{after}", "utf-8")
    return 1 if any(one.failed for one in runs) else 0


if __name__ == "__main__":
    raise SystemExit(main())
