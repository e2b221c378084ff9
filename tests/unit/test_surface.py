"""The list of private names that the host stands on is complete, and is checked."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import dtensor_registry
from dtensor_registry._torch import surface
from dtensor_registry._torch.surface import (
    SURFACE,
    TESTED,
    TOOLS,
    PrivateName,
    check_surface,
    missing_tools,
)
from dtensor_registry.errors import UnsupportedTorchError

FOLDER = Path(dtensor_registry.__file__).parent / "_torch"
FILES = sorted(FOLDER.rglob("*.py"))
# torch's database of samples is a part that may be missing; its own module says so.
OPTIONAL = {("torch.testing._internal.common_methods_invocations", "op_db")}


def imported_private_names(file: Path) -> Iterator[tuple[str, str]]:
    """Yield (module, name) for each import of a private name of torch's."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            for alias in node.names:
                path = f"{node.module}.{alias.name}"
                if any(part.startswith("_") for part in path.split(".")):
                    yield str(node.module), alias.name


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(FOLDER)))
def test_every_private_name_that_is_imported_is_on_the_list(file: Path) -> None:
    # A tool may use what the host stands on, but a job must not hang on what a tool uses.
    names = SURFACE if file.parent == FOLDER else (*SURFACE, *TOOLS)
    listed = OPTIONAL | {(name.module, name.path.partition(".")[0]) for name in names}
    modules = {name.module for name in names}
    missing = [
        f"{module}.{name}"
        for module, name in imported_private_names(file)
        if (module, name) not in listed and f"{module}.{name}" not in modules
    ]
    assert missing == []


def test_the_running_torch_has_all_of_it() -> None:
    check_surface()
    assert missing_tools() == []


def test_what_only_tools_miss_does_not_stop_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = PrivateName("torch._C", "no_such_name")
    monkeypatch.setattr(surface, "TOOLS", (*TOOLS, gone))
    check_surface()
    assert missing_tools() == ["torch._C.no_such_name is missing"]


def test_a_torch_without_a_name_is_refused_naming_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = PrivateName("torch.distributed.tensor._dispatch", "OpDispatcher.no_such_method")
    moved = PrivateName("torch.distributed.tensor._op_schema", "OpStrategy", ("plans",))
    monkeypatch.setattr(surface, "SURFACE", (*SURFACE, gone, moved))
    with pytest.raises(UnsupportedTorchError) as caught:
        check_surface()
    assert caught.value.missing == (
        "torch.distributed.tensor._dispatch.OpDispatcher.no_such_method is missing",
        "torch.distributed.tensor._op_schema.OpStrategy takes (strategies), expected (plans, ...)",
    )
    assert "Nothing was installed" in str(caught.value)


def test_a_name_of_other_versions_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = PrivateName("torch._C", "no_such_name", until="2.13")
    to_come = PrivateName("torch._C", "no_such_name", since="99")
    monkeypatch.setattr(surface, "SURFACE", (*SURFACE, gone, to_come))
    check_surface()


def test_a_torch_that_is_newer_than_all_tested_must_have_what_the_last_one_has() -> None:
    assert PrivateName("torch._C", "x").belongs_to("99.0")
    assert PrivateName("torch._C", "x", since=TESTED[1]).belongs_to(f"{TESTED[1]}+cu130")
    assert not PrivateName("torch._C", "x", until=TESTED[1]).belongs_to(TESTED[1])
