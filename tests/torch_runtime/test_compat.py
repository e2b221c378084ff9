"""The list of private names that the host stands on is complete, and is checked."""

from __future__ import annotations

import pytest

from dtensor_registry.errors import UnsupportedTorchError
from dtensor_registry.torch_runtime import compat
from dtensor_registry.torch_runtime.compat import (
    LATER,
    SURFACE,
    TESTED,
    TOOLS,
    PrivateName,
    check_surface,
    missing_tools,
)


def test_the_running_torch_has_all_of_it() -> None:
    check_surface()
    assert missing_tools() == []


def test_the_modules_that_torch_imports_late_have_what_is_read_of_them() -> None:
    assert [name.problem() for name in LATER] == [None] * len(LATER)


def test_what_only_tools_miss_does_not_stop_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = PrivateName("torch._C", "no_such_name")
    monkeypatch.setattr(compat, "TOOLS", (*TOOLS, gone))
    check_surface()
    assert missing_tools() == ["torch._C.no_such_name is missing"]


def test_a_torch_without_a_name_is_refused_naming_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = PrivateName("torch.distributed.tensor._dispatch", "OpDispatcher.no_such_method")
    moved = PrivateName("torch.distributed.tensor._op_schema", "OpStrategy", ("plans",))
    without = PrivateName("torch.distributed.tensor._op_schema", "OpSpec", attributes=("a", "b"))
    monkeypatch.setattr(compat, "SURFACE", (*SURFACE, gone, moved, without))
    with pytest.raises(UnsupportedTorchError) as caught:
        check_surface()
    assert caught.value.missing == (
        "torch.distributed.tensor._dispatch.OpDispatcher.no_such_method is missing",
        "torch.distributed.tensor._op_schema.OpStrategy takes (strategies), expected (plans, ...)",
        "torch.distributed.tensor._op_schema.OpSpec has no a, b",
    )
    assert "Nothing was installed" in str(caught.value)


def test_a_name_of_other_versions_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = PrivateName("torch._C", "no_such_name", until="2.13")
    to_come = PrivateName("torch._C", "no_such_name", since="99")
    monkeypatch.setattr(compat, "SURFACE", (*SURFACE, gone, to_come))
    check_surface()


def test_a_torch_that_is_newer_than_all_tested_must_have_what_the_last_one_has() -> None:
    assert PrivateName("torch._C", "x").belongs_to("99.0")
    assert PrivateName("torch._C", "x", since=TESTED[-1]).belongs_to(f"{TESTED[-1]}+cu130")
    assert not PrivateName("torch._C", "x", until=TESTED[-1]).belongs_to(TESTED[-1])
