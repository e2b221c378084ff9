"""Broken packages of other people stop nothing; one of ours is named with its folder."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from dtensor_registry.cli import main
from dtensor_registry.diagnosis.plugin_checks import check_metadata
from dtensor_registry.discovery import PluginWarning, discover, list_plugins
from dtensor_registry.errors import BrokenPluginsError, RequiredPluginError
from dtensor_registry.settings import read_settings

METADATA = b"Metadata-Version: 2.1\nName: zed-rules\nVersion: 1.0\n"
ENTRY_POINTS = b"[dtensor_registry]\nzed = zed_rules\n"
BROKEN_METADATA = {
    "empty": None,
    "nameless": b"Metadata-Version: 2.1\nVersion: 1.0\n",
    "without a version": b"Metadata-Version: 2.1\nName: zed-rules\n",
    "not UTF-8": METADATA + b"Author: J\xe9r\xf4me\n",
}

Leave = Callable[..., Path]


@pytest.fixture
def leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Leave:
    """Leave a folder of metadata on `sys.path`: `leave(metadata, entry_points) -> folder`."""

    def make(
        metadata: bytes | None,
        entry_points: bytes | None = None,
        name: str = "zed_rules-1.0.dist-info",
        parent: str = "there",
    ) -> Path:
        folder = tmp_path / parent / name
        folder.mkdir(parents=True)
        file = "METADATA" if name.endswith("dist-info") else "PKG-INFO"
        for name, content in ((file, metadata), ("entry_points.txt", entry_points)):
            if content is not None:
                (folder / name).write_bytes(content)
        if str(folder.parent) not in sys.path:
            monkeypatch.setattr(sys, "path", [*sys.path, str(folder.parent)])
        return folder

    return make


def others() -> list[str]:
    return [p.name for p in list_plugins(read_settings()) if p.name != "zed"]


@pytest.mark.parametrize("kind", BROKEN_METADATA)
def test_a_broken_package_of_somebody_else_is_passed_over_and_listed_by_doctor(
    kind: str, leave: Leave
) -> None:
    before = others()
    folder = leave(BROKEN_METADATA[kind], name="leftover-1.0.dist-info")
    found = discover(read_settings(on_plugin_error="error", allowed=[]))
    assert [plugin.name for plugin in found.plugins if plugin.name != "zed"] == before
    check = check_metadata()
    assert check.state == "warn"
    assert any(detail.startswith(f"{folder}: its ") for detail in check.details)


@pytest.mark.parametrize("entry_points", [b"\xff\xfe", b"[dtensor_regis\xe9]\n", b"[a]\nb\n"])
def test_entry_points_of_somebody_else_that_cannot_be_read_are_passed_over(
    entry_points: bytes, leave: Leave
) -> None:
    before = others()
    folder = leave(METADATA, entry_points)
    assert others() == before
    assert any(f"{folder}: its entry_points.txt" in line for line in check_metadata().details)


@pytest.mark.parametrize(
    ("metadata", "entry_points"),
    [
        *((metadata, ENTRY_POINTS) for metadata in BROKEN_METADATA.values()),
        (METADATA, ENTRY_POINTS + b"b\xe9 = c\n"),
        (METADATA, ENTRY_POINTS + b"no equals sign\n"),
        (METADATA, b"[dtensor_registry]\n = zed_rules\n"),
    ],
    ids=[*BROKEN_METADATA, "entry points not UTF-8", "no entry point", "an empty name"],
)
def test_a_plugin_whose_metadata_cannot_be_read_is_broken_and_named_with_its_folder(
    metadata: bytes | None, entry_points: bytes, leave: Leave
) -> None:
    folder = leave(metadata, entry_points)
    settings = read_settings(allowed=["zed-rules", "zed_rules"])
    with pytest.raises(BrokenPluginsError) as caught:
        discover(settings)
    (failure,) = caught.value.failures
    assert str(folder) in str(failure)
    switched_off = read_settings(disabled=[failure.plugin])
    assert {p.state for p in list_plugins(switched_off) if "zed" in p.distribution} == {"disabled"}
    with pytest.warns(PluginWarning, match="cannot be used"):
        left = discover(read_settings(allowed=["zed-rules"], on_plugin_error="skip"))
    assert [p.state for p in left.plugins if p.distribution.startswith("zed_rules")] in (
        ["failed"],
        [],
    )


def test_commands_name_the_folder_of_a_plugin_that_cannot_be_read(
    leave: Leave, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = leave(None, ENTRY_POINTS)
    monkeypatch.setenv("DTENSOR_REGISTRY_ALLOWED", '["zed-rules"]')
    monkeypatch.setenv("COLUMNS", "400")
    for command in ("plugins", "doctor"):
        assert main([command]) == 1
        told = " ".join("".join(capsys.readouterr()).split())
        assert str(folder) in told
        assert "fault of dtensor-registry" not in told


def test_a_copy_that_cannot_be_read_gives_way_to_one_that_can(leave: Leave) -> None:
    stale = leave(None, ENTRY_POINTS, parent="first")
    leave(METADATA, ENTRY_POINTS, parent="second")
    (plugin,) = [p for p in list_plugins(read_settings()) if p.name == "zed"]
    assert (plugin.state, plugin.distribution) == ("active", "zed-rules")
    assert any(line.startswith(f"{stale}: its metadata") for line in check_metadata().details)


def test_of_two_versions_in_one_folder_the_newest_is_taken_and_the_other_named(
    leave: Leave,
) -> None:
    newest = METADATA.replace(b"1.0", b"1.10")
    leave(newest, ENTRY_POINTS, "zed_rules-1.10.dist-info")
    stale = leave(METADATA.replace(b"1.0", b"1.9"), ENTRY_POINTS, "zed_rules-1.9.dist-info")
    with pytest.warns(PluginWarning) as told:
        (plugin,) = [
            p
            for p in discover(read_settings(allowed=["zed-rules"], on_plugin_error="skip")).plugins
            if p.name == "zed"
        ]
    assert plugin.version == "1.10"
    assert any(str(warning.message).startswith(f"{stale}: a second copy") for warning in told)


def test_an_egg_info_without_entry_points_that_hides_a_plugin_is_named(leave: Leave) -> None:
    hiding = leave(METADATA, None, "zed_rules.egg-info", "first")
    hidden = leave(METADATA, ENTRY_POINTS, parent="second")
    with pytest.warns(PluginWarning) as told:
        found = discover(read_settings(allowed=["zed-rules"]))
    assert "zed" not in [plugin.name for plugin in found.plugins]
    (message,) = [text for text in map(str, (w.message for w in told)) if "sys.path" in text]
    assert message.startswith(str(hidden))
    assert f"{hiding} is taken, which declares no entry point" in message


def test_a_required_distribution_that_declares_no_plugin_is_named_with_its_folder(
    leave: Leave,
) -> None:
    folder = leave(METADATA, None, "zed_rules.egg-info")
    with pytest.raises(RequiredPluginError, match="which declares no plugin") as caught:
        discover(read_settings(allowed=[], required=["zed-rules"]))
    assert str(folder) in str(caught.value)


def test_equal_copies_of_one_plugin_are_one(leave: Leave) -> None:
    leave(METADATA, ENTRY_POINTS, parent="first")
    leave(METADATA, ENTRY_POINTS, parent="second")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [p.name for p in list_plugins(read_settings())].count("zed") == 1
    assert not any("zed_rules" in line for line in check_metadata().details)


def test_a_version_that_is_none_does_not_satisfy_a_requirement(leave: Leave) -> None:
    leave(METADATA.replace(b"1.0", b"latest"), ENTRY_POINTS)
    (folder,) = [entry for entry in sys.path if entry.endswith("there")]
    Path(folder, "zed_rules.py").write_text(
        "from dtensor_registry import hookimpl\n"
        "@hookimpl\ndef provide_single_dim_strategy():\n    return []\n"
    )
    with pytest.raises(RequiredPluginError, match="zed-rules latest is installed"):
        discover(read_settings(allowed=["zed-rules"], required=["zed-rules>=1"]))
    sys.modules.pop("zed_rules", None)
