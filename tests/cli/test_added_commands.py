"""Commands that other distributions add by an entry point."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

GREET = """
from dtensor_registry.cli import Command

def run(arguments):
    print(f"hello {arguments.who}")
    return 1

GREET = Command(
    name="greet",
    summary="greet somebody",
    details="Greet somebody.",
    example="dtensor-registry greet you",
    configure=lambda parser: parser.add_argument("who"),
    run=run,
)
"""
BROKEN = "import no_such_module_anywhere\n"


@pytest.fixture
def greet(site: Any) -> Any:
    """A site with a command `greet` of a distribution."""
    site.install("acme-tools", "1.5", {}, {"greet": "acme_greet:GREET"}, acme_greet=GREET)
    return site


def test_a_command_of_a_distribution_runs_and_gives_the_exit_code(greet: Any, call: Any) -> None:
    shown = call("greet", "you")
    assert (shown.code, shown.out, shown.err) == (1, "hello you\n", "")


def test_help_lists_it_among_all_others(greet: Any) -> None:
    shown = greet.run("--help")
    assert (shown.code, shown.err) == (0, "")
    assert "    greet     greet somebody\n" in shown.out
    assert "  dtensor-registry greet you\n" in shown.out
    assert shown.out.index("    explain ") < shown.out.index("    greet ")
    assert shown.out.index("    greet ") < shown.out.index("    lock ")


def test_another_command_does_not_import_it(site: Any) -> None:
    source = "raise SystemExit('imported')"
    site.install("acme-tools", "1.5", {}, {"greet": "acme_greet:GREET"}, acme_greet=source)
    shown = site.run("plugins")
    assert (shown.code, shown.err) == (0, "")


def test_a_broken_one_is_named_in_help_and_costs_no_other_command(site: Any) -> None:
    site.install("acme-tools", "1.5", {}, {"greet": "acme_greet:GREET"}, acme_greet=BROKEN)
    reason = (
        "acme-tools 1.5 (acme_greet:GREET) cannot be loaded:"
        " ModuleNotFoundError: No module named 'no_such_module_anywhere'"
    )
    shown = site.run("--help")
    assert shown.code == 0
    assert shown.err == (
        f"warning: the command 'greet' cannot be used: {reason}\n"
        "  Tell its author; every other command works without it.\n"
    )
    assert f" greet (unavailable: {reason})" in " ".join(shown.out.split())
    assert site.run("plugins").code == 0
    typed = site.run("greet", "you", "--loudly")
    assert (typed.code, typed.out) == (1, "")
    assert typed.err == shown.err.replace("warning:", "error:")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("GREET = print\n", "is no Command that is called 'greet'"),
        (GREET.replace('name="greet"', 'name="hail"'), "is no Command that is called 'greet'"),
        (GREET.replace("GREET =", "HAIL ="), "cannot be loaded: AttributeError: "),
    ],
)
def test_what_is_no_command_is_refused_by_name(site: Any, source: str, told: str) -> None:
    site.install("acme-tools", "1.5", {}, {"greet": "acme_greet:GREET"}, acme_greet=source)
    shown = site.run("greet", "you")
    assert (shown.code, shown.out) == (1, "")
    assert (
        f"error: the command 'greet' cannot be used: acme-tools 1.5 (acme_greet:GREET) {told}"
        in (shown.err)
    )


def test_two_that_add_one_command_are_both_named(greet: Any) -> None:
    greet.install("zeta-tools", "2.0", {}, {"greet": "zeta_greet:GREET"}, zeta_greet=GREET)
    shown = greet.run("greet", "you")
    assert (shown.code, shown.out) == (1, "")
    assert shown.err == (
        "error: the command 'greet' cannot be used: acme-tools 1.5 (acme_greet:GREET) and"
        " zeta-tools 2.0 (zeta_greet:GREET) add it both\n  Uninstall one of them.\n"
    )


def test_a_command_of_the_hosts_own_name_is_passed_over(site: Any) -> None:
    site.install("acme-tools", "1.5", {}, {"plugins": "acme_greet:GREET"}, acme_greet=BROKEN)
    assert site.run("plugins").out == site.run("plugins").out != ""
    assert site.run("--help").err == (
        "warning: acme-tools 1.5 (acme_greet:GREET) adds a command 'plugins', which is"
        " dtensor-registry's own name; it is passed over\n"
    )


def test_without_the_kit_its_commands_say_what_to_install(site: Any, packages: Path) -> None:
    bare = site.folder.parent / "bare"
    bare.mkdir()
    for entry in packages.iterdir():
        if not entry.name.startswith("dtensor_registry_kit"):
            (bare / entry.name).symlink_to(entry.resolve())
    site = type(site)(site.folder, (str(bare),), site.working)
    shown = site.run("verify", "acme", "--jobs", "2")
    assert (shown.code, shown.out) == (1, "")
    assert shown.err == (
        "error: the command 'verify' cannot be used: dtensor-registry-kit is not installed\n"
        "  pip install dtensor-registry-kit\n"
    )
    listed = site.run("--help")
    assert (listed.code, listed.err) == (0, "")
    assert "verify    (unavailable: dtensor-registry-kit is not installed)" in listed.out
    assert site.run("plugins").code == 0
