"""Run the whole suite on several versions of torch, and write down what came out.

`make test-matrix` runs it. Each version gets an environment of its own outside of the checkout
(some GiB), made on first use and kept. When all of the suite has run on all versions, the result
goes into docs/versions.md; an interrupted run or a part of the suite is printed only.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "versions.md"
VERSIONS = ("2.13.0", "2.14.1", "2.15.0")
"""One of each minor version in the declared range, oldest first."""
PYTEST_ARGS = ("-n", "2", "--dist", "loadfile")
MARKS = "<!-- results: begin -->", "<!-- results: end -->"


@dataclass(frozen=True)
class Run:
    """What one folder of tests did on one version."""

    version: str
    folder: str
    passed: int
    seconds: float
    failed: tuple[str, ...]
    skipped: tuple[str, ...]
    """The reason of each test that was skipped or is known to fail."""

    def __str__(self) -> str:
        counts = f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"
        return f"{self.version} {self.folder}: {counts} in {self.seconds:.0f} s"


def folders() -> list[str]:
    """List what `make test` hands to pytest: its testpaths, with `tests` folder by folder."""
    found = ["dtensor_registry", "kit/src", *map(str, sorted((ROOT / "tests").glob("*")))]
    found += map(str, sorted(ROOT.glob("plugins/*/tests")) + sorted(ROOT.glob("examples/*/tests")))
    paths = [ROOT / name for name in found]
    return [str(path.relative_to(ROOT)) for path in paths if _has_tests(path)]


def _has_tests(path: Path) -> bool:
    if path in (ROOT / "dtensor_registry", ROOT / "kit" / "src"):
        return True  # doctests
    return path.match("test_*.py") or any(path.rglob("test_*.py"))


def environment(version: str, folder: Path) -> Path:
    """Make an environment with a version of torch and this checkout, or bring it up to date."""
    python = folder / f"torch-{version}" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
    pins = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(pin for pin in pins if not pin.startswith("torch==")), "utf-8")
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    install += ["-c", str(constraints)]
    plugins = sorted(ROOT.glob("plugins/*"))
    others = [ROOT / "kit", *plugins, ROOT / "examples" / "acme_kernels"]
    editable = [word for path in (f"{ROOT}[dev]", *others) for word in ("-e", str(path))]
    _pip([*install, "editables", "hatchling"])
    _pip([*install, "--no-build-isolation", f"torch=={version}", *editable])
    command = [str(python), "-c", "import torch; print(torch.__version__)"]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    if found.partition("+")[0] != version:
        raise SystemExit(f"{python} has torch {found}, not {version}")
    return python


def _pip(command: list[str]) -> None:
    """Run pip; if it fails, once more without pip's own configuration, which may cap torch."""
    if subprocess.run(command, check=False).returncode != 0:
        print("pip failed; once more without its configuration files", flush=True)
        subprocess.run(command, check=True, env={**os.environ, "PIP_CONFIG_FILE": os.devnull})


def run(python: Path, version: str, folder: str) -> Run:
    """Run one folder of tests from the checkout, as `make test` does."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *PYTEST_ARGS]
        done = subprocess.run(
            [*command, f"--junitxml={report}", folder],
            cwd=ROOT,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "PATH": os.pathsep.join((str(python.parent), os.environ["PATH"])),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        text = report.read_text("utf-8") if report.exists() else "<testsuites/>"
    found = read(text, version, folder, time.monotonic() - start)
    # 0: all passed, 1: some failed, which the report names.
    if done.returncode > 1 or (done.returncode == 1 and not found.failed):
        print(done.stdout[-3000:], flush=True)
        ended = f"{folder}: pytest ended with {done.returncode}"
        return Run(
            version, folder, found.passed, found.seconds, (*found.failed, ended), found.skipped
        )
    return found


def read(report: str, version: str, folder: str, seconds: float) -> Run:
    """Read pytest's report in JUnit's format."""
    passed, failed, skipped = 0, [], []
    for case in ET.fromstring(report).iter("testcase"):
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        elif skip is not None:
            skipped.append(skip.get("message") or "no reason")
        else:
            passed += 1
    return Run(version, folder, passed, seconds, tuple(dict.fromkeys(failed)), tuple(skipped))


def page(runs: list[Run]) -> str:
    """Write the results as a table, and name what failed and why what was skipped."""
    versions = list(dict.fromkeys(one.version for one in runs))
    by_cell = {(one.folder, one.version): one for one in runs}
    lines = [
        "Passed / failed / skipped, seconds.",
        "",
        f"| tests | {' | '.join(f'torch {version}' for version in versions)} |",
        f"|---|{'---|' * len(versions)}",
    ]
    for folder in dict.fromkeys(one.folder for one in runs):
        cells = [_cell([by_cell[folder, version]]) for version in versions]
        lines.append(f"| {folder} | {' | '.join(cells)} |")
    totals = [_cell([one for one in runs if one.version == version]) for version in versions]
    lines += [f"| all | {' | '.join(totals)} |", ""]
    lines += [f"- failed on {one.version}: `{name}`" for one in runs for name in one.failed]
    for version in versions:
        reasons = Counter(why for one in runs if one.version == version for why in one.skipped)
        lines += [f"- skipped on {version}: {n} for: {why}" for why, n in sorted(reasons.items())]
    return "\n".join(lines).rstrip()


def _cell(runs: list[Run]) -> str:
    passed, failed, skipped = (
        sum(one.passed for one in runs),
        sum(len(one.failed) for one in runs),
        sum(len(one.skipped) for one in runs),
    )
    return f"{passed} / {failed} / {skipped}, {sum(one.seconds for one in runs):.0f} s"


def write(path: Path, runs: list[Run]) -> None:
    """Replace the results in the page, all at once."""
    before, begin, rest = path.read_text("utf-8").partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not begin or not end:
        raise SystemExit(f"{path} has no place for results: {' '.join(MARKS)}")
    new = path.with_suffix(".new")
    new.write_text(f"{before}{begin}\n{page(runs)}\n{end}{after}", "utf-8")
    os.replace(new, path)


def main() -> int:
    """Run every version and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", nargs="+", default=list(VERSIONS))
    parser.add_argument("--newest", action="store_true", help="only the newest version")
    parser.add_argument("--tests", nargs="+", help="only these folders")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(tempfile.gettempdir()) / "dtensor-registry-matrix",
        help="where environments are kept (default: %(default)s)",
    )
    chosen = parser.parse_args()
    versions = [VERSIONS[-1]] if chosen.newest else chosen.versions
    tests = chosen.tests or folders()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    pythons = {}
    for version in versions:
        print(f"environment for torch {version} in {chosen.folder}", flush=True)
        pythons[version] = environment(version, chosen.folder)
    start, runs = time.monotonic(), []
    for version, python in pythons.items():
        for folder in tests:
            runs.append(run(python, version, folder))
            minutes = (time.monotonic() - start) / 60
            counted = f"[{len(runs)}/{len(tests) * len(versions)}, {minutes:.0f} min]"
            print(f"{counted} {runs[-1]}", flush=True)
    print(f"\n{page(runs)}")
    if versions == list(VERSIONS) and tests == folders():
        write(PAGE, runs)
    return 1 if any(one.failed for one in runs) else 0


if __name__ == "__main__":
    raise SystemExit(main())
