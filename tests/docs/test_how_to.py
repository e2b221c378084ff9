"""Every answer of the how-to page works, each on its own, in an empty folder."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dtensor_registry.cli import main
from dtensor_registry.torch_patch.override_stack import LOAN
from tests.docs.snippets import DOCS, Snippet, run_python, snippets

PAGE = DOCS / "how-to.md"
ALL = list(snippets(PAGE))

IN_PROCESS = [
    "Find out what is wrong",
    "Override one op",
    "Choose who wins",
    "Turn a plugin off",
    "Run ops that have no rule",
    "Install without changing the program",
    "Complete commands in the shell",
]
IN_OTHERS = [
    "Ship a plugin",
    "Use it under torchrun",
    "Use it under Slurm",
    "Use it in Ray workers",
]

SECONDS = 150
"""After which a program is stopped, with all that it started."""


def of(section: str) -> list[Snippet]:
    return [snippet for snippet in ALL if snippet.section == section]


def one(section: str, language: str) -> str:
    (code,) = (s.code for s in of(section) if s.language == language)
    return code


def commands(code: str) -> list[str]:
    lines = code.splitlines()
    assert all(line.startswith("$ ") for line in lines), code
    return [line.removeprefix("$ ") for line in lines]


def write_toml(code: str) -> None:
    """Put a block of settings into the file that it is for, and no other."""
    for name in ("pyproject.toml", "dtensor_registry.toml"):
        Path(name).unlink(missing_ok=True)
    in_pyproject = "[tool." in code or "[project." in code
    Path("pyproject.toml" if in_pyproject else "dtensor_registry.toml").write_text(code)


def run_command(line: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> str:
    """Run a line of a shell that calls our own program; return what it writes."""
    line, _, target = line.partition(" > ")
    words = shlex.split(line)
    if words[0] == "export":
        name, _, value = words[1].partition("=")
        monkeypatch.setenv(name, value)
        return ""
    with pytest.MonkeyPatch.context() as environment:
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            environment.setenv(name, value)
        assert words[0] == "dtensor-registry", line
        try:
            code = main(words[1:])
        except SystemExit as ended:
            code = int(ended.code or 0)
    out = str(capsys.readouterr().out)
    assert code == 0, out
    if target:
        Path(target).write_text(out)
    return out


def test_every_section_is_listed_at_the_top_and_run_here() -> None:
    text = PAGE.read_text("utf-8")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings == re.findall(r"^- \[(.*)\]\(#", text, re.MULTILINE)
    assert sorted(headings) == sorted([*IN_PROCESS, *IN_OTHERS])


@pytest.mark.parametrize("section", IN_PROCESS)
def test_an_answer_works(
    section: str, repository_plugins: None, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    if section.startswith("Complete"):
        pytest.importorskip("shtab")
    said = ""
    for snippet in of(section):
        if snippet.language == "python":
            run_python(snippet, {})
            said += capsys.readouterr().out
        elif snippet.language == "toml":
            write_toml(snippet.code)
        else:
            assert snippet.language == "console", f"line {snippet.line}: nothing runs this"
            for line in commands(snippet.code):
                said += run_command(line, monkeypatch, capsys)
        assert LOAN.layers == (), f"line {snippet.line}"
    for words in EXPECTED.get(section, ()):
        assert words in re.sub(" +", " ", said)


EXPECTED = {
    "Find out what is wrong": ["in force an installation, "],
    "Choose who wins": [
        "aten.mv.default torch pinned",
        "aten.add.Scalar torch (op_single_dim_strategy_funcs) step 1 of 'order' ('torch')",
        "aten.mm.default: dtensor-registry-matrix",
    ],
    "Turn a plugin off": [
        "disabled 'fallback' in setting 'disabled'",
        "not allowed 'dtensor-registry-pointwise' is not in setting 'allowed'",
    ],
    "Install without changing the program": ["autoload on, by DTENSOR_REGISTRY_AUTOLOAD"],
}


def test_the_settings_of_the_fallback_answer_are_read() -> None:
    from dtensor_registry.settings import read_settings

    write_toml(one("Run ops that have no rule", "toml"))
    fallback = read_settings().fallback
    assert (fallback.mode, fallback.exclude, fallback.max_bytes) == (
        "warn",
        ("aten.topk.*",),
        10**9,
    )


def run_program(*command: str, **environment: str) -> str:
    """Run a program with all its children, bounded; return what it writes."""
    with subprocess.Popen(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, f"{command}\n{out}\n{err}"
    return out


@pytest.mark.slow
def test_the_torchrun_answer_runs_on_two_ranks() -> None:
    Path("train.py").write_text(one("Use it under torchrun", "python"))
    (line,) = commands(one("Use it under torchrun", "console"))
    program, *arguments = shlex.split(line)
    assert program == "torchrun"
    out = run_program(sys.executable, "-m", "torch.distributed.run", *arguments)
    ranks = sorted(re.findall(r"rank (\d): \(Shard\(dim=0\),\), ([0-9a-f]{8})", out))
    assert [rank for rank, _ in ranks] == ["0", "1"]
    assert len({fingerprint for _, fingerprint in ranks}) == 1


@pytest.mark.slow
def test_the_ray_answer_runs_in_two_workers_with_a_stand_in_for_ray() -> None:
    Path("train.py").write_text(one("Use it under torchrun", "python"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = one("Use it in Ray workers", "python")
    assert '"29500"' in code
    Path("ray_train.py").write_text(code.replace("29500", str(port)))
    shutil.copy(Path(__file__).with_name("stand_in_ray.py"), "ray.py")
    (line,) = commands(one("Use it in Ray workers", "console"))
    program, *arguments = shlex.split(line)
    assert program == "python"
    out = run_program(sys.executable, *arguments)
    pins = '{"aten.mm.default": "torch"}'
    assert out.splitlines()[-1] == str([pins, pins])
    assert out.count("(Shard(dim=0),)") == 2


STAND_INS = {
    "scontrol": 'test "$*" = "show hostnames node[1-2]" && printf "node1\\nnode2\\n"',
    "srun": 'exec "$@"',
    "torchrun": 'printf "%s\\n" "$DTENSOR_REGISTRY_REQUIRED" "$DTENSOR_REGISTRY_CHECK_RANKS" "$@"',
}


def test_the_slurm_answer_starts_torchrun_with_arguments_that_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch.distributed.run import parse_args

    from dtensor_registry.settings import read_settings

    folder = Path("bin")
    folder.mkdir()
    for name, script in STAND_INS.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    Path("job.sh").write_text(one("Use it under Slurm", "bash"))
    path = f"{folder.resolve()}{os.pathsep}{os.environ['PATH']}"
    slurm = {"SLURM_NNODES": "2", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-2]"}
    out = run_program("bash", "-eu", "job.sh", PATH=path, **slurm)
    required, check_ranks, *arguments = out.splitlines()
    parsed = parse_args(arguments)
    assert (parsed.nnodes, parsed.rdzv_id, parsed.rdzv_endpoint) == ("2", "7", "node1:29500")
    assert parsed.training_script == "train.py"
    monkeypatch.setenv("DTENSOR_REGISTRY_REQUIRED", required)
    monkeypatch.setenv("DTENSOR_REGISTRY_CHECK_RANKS", check_ranks)
    settings = read_settings()
    assert settings.required == ("dtensor-registry-matrix",)
    assert settings.check_ranks == "wait"


def test_the_answer_on_shipping_names_what_tests_of_new_run(capsys: Any) -> None:
    new, *others = commands(one("Ship a plugin", "console"))
    assert main(shlex.split(new)[1:]) == 0
    assert Path("blue-rules/pyproject.toml").is_file()
    # tests/new/test_generated.py does these, without a network.
    assert others == [
        "pip install -e './blue-rules[test]'",
        "pytest blue-rules",
        "dtensor-registry verify blue-rules",
    ]
    assert one("Ship a plugin", "toml") in Path("blue-rules/pyproject.toml").read_text("utf-8")
