"""`dtensor-registry plugins`: who is installed, version, state and reason."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

ACME = """
    import torch
    from dtensor_registry import FallbackStrategy, SingleDimStrategy, einsum, hookimpl, pointwise

    @hookimpl
    def provide_single_dim_strategy():
        return [
            SingleDimStrategy("aten.mm.default", einsum("mk,kn->mn")),
            SingleDimStrategy(["aten.sin.default", "aten.cos.default"], pointwise()),
        ]

    @hookimpl
    def provide_fallback():
        return [FallbackStrategy("gather-all", lambda op, args, kwargs: [])]
"""

OTHER = """
    from dtensor_registry import SingleDimStrategy, hookimpl, pointwise

    @hookimpl
    def provide_single_dim_strategy():
        return [SingleDimStrategy("aten.tan.default", pointwise())]
"""

SETTINGS = {
    "DTENSOR_REGISTRY_DISABLED": '["other"]',
    "DTENSOR_REGISTRY_ALLOWED": '["acme-rules", "other-rules"]',
    "DTENSOR_REGISTRY_ORDER": '["acme", "*", "torch"]',
}

Call = Callable[..., Any]

BROKEN = {
    "raises when imported": (
        "raise ImportError('no [red]kernels[/red] for Tensor[]')",
        "importing it raised ImportError: no [red]kernels[/red] for Tensor[]",
    ),
    "raises in its hook": (
        """
        from dtensor_registry import hookimpl

        @hookimpl
        def provide_single_dim_strategy():
            raise KeyError("gone")
        """,
        "its hook provide_single_dim_strategy raised KeyError: 'gone'",
    ),
    "has no hook": ("", "no function in broken_rules is marked @hookimpl"),
}


@pytest.fixture
def three(site: Any) -> Any:
    """A site with plugins acme, other and stranger."""
    site.install("acme-rules", "2.3.0", {"acme": "acme_rules"}, acme_rules=ACME)
    site.install("other-rules", "0.4.1", {"other": "other_rules"}, other_rules=OTHER)
    site.install("stranger", "1", {"stranger": "stranger_rules"}, stranger_rules=OTHER)
    return site


def table(text: str) -> str:
    return dedent(text).lstrip("\n")


def test_table_shows_each_plugin_with_its_state_and_the_reason(three: Any) -> None:
    shown = three.run("plugins", settings=SETTINGS)
    assert shown.out == table(
        """
        plugin     distribution   version   module           state         reason
        ─────────────────────────────────────────────────────────────────────────────────────────────────────────
        acme       acme-rules     2.3.0     acme_rules       active
        other      other-rules    0.4.1     other_rules      disabled      'other' in setting 'disabled'
        stranger   stranger       1         stranger_rules   not allowed   'stranger' is not in setting 'allowed'

        order, highest first: acme, *, torch
        """  # noqa: E501
    )
    assert (shown.code, shown.err) == (0, "")


@pytest.mark.usefixtures("three")
def test_json_says_the_same(call: Call) -> None:
    shown = call("plugins", "--json", settings=SETTINGS)
    assert json.loads(shown.out) == {
        "plugins": [
            {
                "name": "acme",
                "distribution": "acme-rules",
                "version": "2.3.0",
                "module": "acme_rules",
                "state": "active",
                "reason": "",
            },
            {
                "name": "other",
                "distribution": "other-rules",
                "version": "0.4.1",
                "module": "other_rules",
                "state": "disabled",
                "reason": "'other' in setting 'disabled'",
            },
            {
                "name": "stranger",
                "distribution": "stranger",
                "version": "1",
                "module": "stranger_rules",
                "state": "not allowed",
                "reason": "'stranger' is not in setting 'allowed'",
            },
        ],
        "order": ["acme", "*", "torch"],
    }
    assert (shown.code, shown.err) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["plugins"], set(), id="listing imports neither torch nor a plugin"),
        pytest.param(["plugins", "--load"], {"torch", "acme_rules"}, id="and the check is alive"),
    ],
)
def test_what_is_imported(three: Any, arguments: list[str], expected: set[str]) -> None:
    probe = """
import sys
from dtensor_registry.cli import main
main(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
"""
    imported = set(three.python("-c", probe, *arguments, settings=SETTINGS).err.split())
    assert "dtensor_registry.discovery" in imported
    watched = {"torch", "acme_rules", "other_rules", "stranger_rules"}
    assert imported & watched == expected


@pytest.mark.usefixtures("three")
def test_load_counts_what_each_plugin_contributes(call: Call) -> None:
    shown = call("plugins", "--load", settings=SETTINGS)
    assert shown.out == table(
        """
        plugin     distribution   version   module           state         strategies   fallbacks   reason
        ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
        acme       acme-rules     2.3.0     acme_rules       active        3            1
        other      other-rules    0.4.1     other_rules      disabled      -            -           'other' in setting 'disabled'
        stranger   stranger       1         stranger_rules   not allowed   -            -           'stranger' is not in setting 'allowed'

        order, highest first: acme, *, torch
        """  # noqa: E501
    )
    assert (shown.code, shown.err) == (0, "")


@pytest.mark.usefixtures("three")
def test_json_counts_nothing_for_a_plugin_that_was_not_loaded(call: Call) -> None:
    report = json.loads(call("plugins", "--load", "--json", settings=SETTINGS).out)
    counts = {p["name"]: (p["strategies"], p["fallbacks"]) for p in report["plugins"]}
    assert counts == {"acme": (3, 1), "other": (None, None), "stranger": (None, None)}


@pytest.mark.parametrize("on_plugin_error", ["error", "skip"])
@pytest.mark.parametrize("fault", BROKEN)
def test_broken_plugin_is_named_and_hides_no_other(
    site: Any, call: Call, fault: str, on_plugin_error: str
) -> None:
    source, cause = BROKEN[fault]
    site.install("broken-rules", "1.0", {"broken": "broken_rules"}, broken_rules=source)
    site.install("other-rules", "0.4.1", {"other": "other_rules"}, other_rules=OTHER)
    settings = {"DTENSOR_REGISTRY_ON_PLUGIN_ERROR": on_plugin_error}
    shown = call("plugins", "--load", "--json", settings=settings)
    assert shown.code == 1
    broken, other = json.loads(shown.out)["plugins"]
    assert (broken["state"], broken["strategies"], broken["reason"]) == ("failed", None, cause)
    assert (other["state"], other["strategies"], other["reason"]) == ("active", 1, "")
    assert shown.err == (
        "warning: plugin 'broken' of broken-rules 1.0 (entry point 'broken', broken_rules)"
        f" cannot be used: {cause}\n"
        "  Switch it off:  DTENSOR_REGISTRY_DISABLED='[\"broken\"]'\n"
    )


def test_table_shows_a_cause_letter_by_letter(site: Any, call: Call) -> None:
    source, cause = BROKEN["raises when imported"]
    site.install("broken-rules", "1.0", {"broken": "broken_rules"}, broken_rules=source)
    assert cause in call("plugins", "--load").out


def test_broken_plugin_is_no_concern_of_a_mere_list(site: Any, call: Call) -> None:
    site.install("broken-rules", "1.0", {"broken": "broken_rules"}, broken_rules="1 / 0")
    assert call("plugins").code == 0


def test_two_distributions_under_one_name_are_both_seen(site: Any, call: Call) -> None:
    site.install("acme-rules", "2.3.0", {"acme": "acme_rules"}, acme_rules=OTHER)
    site.install("acme-fork", "2.4.0", {"acme": "acme_fork"}, acme_fork=OTHER)
    shown = call("plugins", "--load", "--json")
    assert shown.code == 1
    found = [(p["distribution"], p["state"]) for p in json.loads(shown.out)["plugins"]]
    assert found == [("acme-fork", "failed"), ("acme-rules", "failed")]


def test_no_plugin_at_all_is_fine(call: Call) -> None:
    shown = call("plugins")
    assert shown.out == table(
        """
        no plugin is installed

        order, highest first: *, corrections, torch, pointwise, matrix, structure
        """
    )
    assert (shown.code, shown.err) == (0, "")


@pytest.mark.parametrize("load", [[], ["--load"]])
@pytest.mark.usefixtures("three")
def test_missing_requirement_is_a_problem_but_hides_nothing(call: Call, load: list[str]) -> None:
    settings = SETTINGS | {"DTENSOR_REGISTRY_REQUIRED": '["acme-rules>=3"]'}
    shown = call("plugins", *load, settings=settings)
    assert "acme-rules     2.3.0" in shown.out
    assert shown.code == 1
    assert shown.err == (
        "error: the settings require 'acme-rules>=3', but acme-rules 2.3.0 is installed.\n"
        "  Upgrade it:  pip install 'acme-rules>=3'\n"
    )


@pytest.mark.parametrize("load", [[], ["--load"]])
@pytest.mark.usefixtures("three")
def test_unknown_name_in_a_setting_is_a_warning(call: Call, load: list[str]) -> None:
    shown = call("plugins", *load, settings={"DTENSOR_REGISTRY_DISABLED": '["othr"]'})
    assert shown.code == 0
    assert shown.err == (
        "warning: setting 'disabled' names 'othr', which is not installed; did you mean 'other'?\n"
    )


def test_settings_file_of_the_working_directory_counts(three: Any, call: Call) -> None:
    file: Path = three.working / "dtensor_registry.toml"
    file.write_text('order = ["stranger", "*"]\n', "utf-8")
    assert "order, highest first: stranger, *\n" in call("plugins").out


@pytest.mark.usefixtures("three")
def test_other_files_than_terminals_get_whole_lines(call: Call) -> None:
    narrow = call("plugins", settings=SETTINGS | {"COLUMNS": "30"})
    assert narrow.out == call("plugins", settings=SETTINGS).out


def test_words_in_brackets_are_no_markup(call: Call) -> None:
    shown = call("plugins", settings={"DTENSOR_REGISTRY_ORDER": '["*", "[red]torch[/red]"]'})
    assert "order, highest first: *, [red]torch[/red]\n" in shown.out


def test_terminal_folds_cells_and_cuts_none(site: Any) -> None:
    site.install(
        "distribution-with-quite-a-long-name",
        "1.0.0",
        {"plugin_with_quite_a_long_name": "module_with_quite_a_long_name"},
    )
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-S", "-m", "dtensor_registry.cli", "plugins"],
        cwd=site.working,
        env=site.environment({"COLUMNS": "80", "TERM": "xterm"}),
        stdout=theirs,
    ) as program:
        os.close(theirs)
        shown = _read_to_end(ours).decode("utf-8")
        assert program.wait(timeout=120) == 0
    os.close(ours)
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert [line.rstrip() for line in plain.splitlines()] == [
        "                                distribut",
        "plugin                          ion         version   module     state    reason",
        "─" * 80,
        "plugin_with_quite_a_long_name   distribut   1.0.0     module_w   active",
        "                                ion-with-             ith_quit",
        "                                quite-a-l             e_a_long",
        "                                ong-name              _name",
        "",
        "order, highest first: *, corrections, torch, pointwise, matrix, structure",
    ]


def _read_to_end(terminal: int) -> bytes:
    chunks: list[bytes] = []
    while True:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:  # how Linux says that the other side is closed
            chunk = b""
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
