"""`--print-completion`: a script that completes commands, or the package that is missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dtensor_registry.cli import main
from dtensor_registry.cli.commands import find_commands
from dtensor_registry.cli.completion import SHELLS

COMPLETE = """
source "$1"
COMP_WORDS=(dtensor-registry "${@:2}")
COMP_CWORD=$(($# - 1))
_shtab_dtensor_registry
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_names_every_command(shell: str, capsys: Any) -> None:
    pytest.importorskip("shtab")
    with pytest.raises(SystemExit, match="0"):
        main(["--print-completion", shell])
    script = capsys.readouterr().out
    assert [c.name for c in find_commands().usable if c.name not in script] == []


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["d"], ["derive", "diff", "doctor"]),
        (["ver"], ["verify"]),
        (["plugins", "--l"], ["--load"]),
        (["lock", "comp"], ["completion.sh"]),
        (["audit", "comp"], ["completion.sh"]),
        (["new", "x", "--into", "fo"], ["folder"]),
    ],
)
def test_bash_completes_with_it(words: list[str], completed: list[str], capsys: Any) -> None:
    pytest.importorskip("shtab")
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    with pytest.raises(SystemExit, match="0"):
        main(["--print-completion", "bash"])
    Path("folder").mkdir()
    Path("completion.sh").write_text(capsys.readouterr().out)
    done = subprocess.run(
        [bash, "-c", COMPLETE, "bash", "completion.sh", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == (completed, "")


def test_without_shtab_it_says_what_to_install(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(SystemExit, match="1"):
        main(["--print-completion", "zsh"])
    assert capsys.readouterr().err == (
        "error: --print-completion zsh needs shtab, which is not installed.\n"
        "  pip install 'dtensor-registry[completion]'\n"
    )


def test_an_unknown_shell_exits_with_2(capsys: Any) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--print-completion", "cmd"])
    assert "usage: dtensor-registry" in capsys.readouterr().err
