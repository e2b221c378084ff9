"""The program itself: help, version, exit codes, and what becomes of errors."""

from __future__ import annotations

import argparse
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from dtensor_registry import cli
from dtensor_registry.cli import commands
from dtensor_registry.cli.command import Command
from dtensor_registry.cli.command_line import build_parser, main, parse
from dtensor_registry.cli.commands import OWN, find_commands
from dtensor_registry.errors import RegistryError, SettingsError

COMMANDS = find_commands().usable


def test_version_is_that_of_the_installed_host(site: Any) -> None:
    site.install("dtensor-registry", "9.8.7", {})
    shown = site.run("--version")
    assert (shown.code, shown.out, shown.err) == (0, "dtensor-registry 9.8.7\n", "")


def test_help_lists_every_command_with_an_example(site: Any) -> None:
    shown = site.run("--help")
    assert (shown.code, shown.err) == (0, "")
    for command in COMMANDS:
        assert f"\n    {command.name} " in shown.out
        assert command.summary in shown.out
        assert f"\n  {command.example}\n" in shown.out


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_of_a_command_has_its_example_and_json(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([command.name, "--help"])
    shown = capsys.readouterr().out
    assert f"example:\n  {command.example}\n" in shown
    assert "--json" in shown


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_example_is_a_command_line_of_its_command(command: Command) -> None:
    name, *arguments = shlex.split(command.example)
    assert name == "dtensor-registry"
    assert build_parser(find_commands(arguments)).parse_args(arguments).command is command


def test_commands_are_in_alphabetical_order() -> None:
    names = [command.name for command in COMMANDS]
    assert names == sorted(names)


@pytest.mark.parametrize("arguments", [[], ["plugin"], ["plugins", "acme"], ["ops", "--jsn"]])
def test_wrong_command_line_exits_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "usage: dtensor-registry" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_wrong_setting_exits_with_2_and_no_traceback(command: Command, call: Any) -> None:
    _, name, *arguments = shlex.split(command.example)  # some commands need arguments
    shown = call(name, "--json", *arguments, settings={"DTENSOR_REGISTRY_ORDRE": "[]"})
    assert (shown.code, shown.out) == (2, "")
    assert shown.err == (
        "error: environment variable DTENSOR_REGISTRY_ORDRE is no setting;"
        " did you mean 'DTENSOR_REGISTRY_ORDER'?\n"
    )


@pytest.mark.parametrize(
    ("error", "code"), [(SettingsError("no such thing"), 2), (RegistryError("no such thing"), 1)]
)
def test_named_error_is_printed_without_traceback(
    error: Exception,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    raising(error, monkeypatch)
    assert main(["plugins"]) == code
    assert capsys.readouterr().err == "error: no such thing\n"


def test_any_other_error_is_said_to_be_a_fault_and_where_it_comes_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(ZeroDivisionError("ours\nframe #1"), monkeypatch)
    assert main(["plugins", "--json"]) == 1
    said = re.sub(r"test_program.py:\d+", "test_program.py:N", capsys.readouterr().err)
    assert said == (
        "error: this is a fault of dtensor-registry, or of a plugin or program that it ran:"
        " ZeroDivisionError: ours (tests/cli/test_program.py:N)\n"
        "  See where it comes from:  dtensor-registry --traceback plugins --json\n"
    )


def test_any_other_error_keeps_its_traceback_if_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raising(ZeroDivisionError("ours"), monkeypatch)
    with pytest.raises(ZeroDivisionError, match="ours"):
        main(["--traceback", "plugins"])


def test_ctrl_c_ends_a_command_with_130_and_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(KeyboardInterrupt(), monkeypatch)
    assert main(["plugins"]) == 130
    assert capsys.readouterr().err == "error: interrupted\n"


@pytest.mark.parametrize("made_of_it", [ImportError("half"), RegistryError("half")])
def test_ctrl_c_is_told_even_where_another_error_was_made_of_it(
    made_of_it: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(arguments: argparse.Namespace) -> int:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise made_of_it

    running(run, monkeypatch)
    before = signal.getsignal(signal.SIGINT)
    assert main(["plugins"]) == 130
    assert capsys.readouterr().err == "error: interrupted\n"
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    "words",
    [
        ["aten.mm", "f32[8,8]", "-1", "--mesh", "2", "--why-not", "R"],
        ["aten.mm", "--mesh", "2", "f32[8,8]", "--why-not", "R", "-1"],
        ["--why-not", "R", "--mesh", "2", "aten.mm", "f32[8,8]", "-1"],
    ],
)
def test_options_stand_before_between_and_after_other_arguments(words: list[str]) -> None:
    read = parse(["explain", *words])
    assert (read.op, read.inputs) == ("aten.mm", ["f32[8,8]", "-1"])
    assert (read.mesh, read.why_not) == ("2", ["R"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["ops", "--jsn"], "usage: dtensor-registry ops ["),
        (["ops", "--", "x"], "dtensor-registry ops: error: unrecognized arguments: x\n"),
        (["audit", "a.py", "--steps", "3"], "goes after -- :  ... -- --steps 3\n"),
    ],
)
def test_unknown_words_are_told_with_the_usage_of_their_command(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    said = capsys.readouterr().err
    assert said.startswith(f"usage: dtensor-registry {words[0]} [")
    assert told in said


def test_reader_that_goes_away_causes_no_traceback(site: Any) -> None:
    with subprocess.Popen(
        [sys.executable, "-S", "-m", "dtensor_registry.cli", "plugins", "--json"],
        cwd=site.working,
        env=site.environment({}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.close()
        assert run.stderr.read() == b""


def test_package_exposes_what_scripts_and_added_commands_need() -> None:
    assert cli.__all__ == ["Command", "main"]
    assert (cli.main, cli.Command) == (main, Command)


def raising(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `plugins` a command that raises."""

    def run(arguments: argparse.Namespace) -> int:
        raise error

    running(run, monkeypatch)


def running(run: Callable[[argparse.Namespace], int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `plugins` a command that runs this."""
    plugins = next(command for command in OWN if command.name == "plugins")
    monkeypatch.setattr(commands, "OWN", (replace(plugins, run=run),))
