"""Code that torch.compile compiled under other rules is not used, from memory or from disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.compiler.config as config
from torch.utils._config_module import _UNSET_SENTINEL

import dtensor_registry as dr
from dtensor_registry.torch_patch import compile_caches
from dtensor_registry.torch_patch.compile_caches import MARK, CompiledCodeWarning

PROGRAM = Path(__file__).with_name("compile_program.py")


def tag() -> str:
    return config.cache_key_tag


def registered(rows: Any = None) -> Any:
    return dr.register_single_dim_strategy("aten.relu.default")(rows or dr.pointwise())


def compiled_in_a_process(cache: Path, *rules: str) -> list[list[str]]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAM), *rules],
        env={
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": str(cache),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: list[list[str]] = json.loads(done.stdout.splitlines()[-1])
    return seen


def test_a_second_process_takes_code_of_other_rules_from_disk_but_not_where_keys_are_marked(
    tmp_path: Path,
) -> None:
    assert compiled_in_a_process(tmp_path, "gather?") == [["R", "compiled"]]
    # Without a mark the second process computes with the placements of the first one's rule.
    # With it, and after each change of rules in the process, code is compiled under the rule.
    assert compiled_in_a_process(tmp_path, "keep?", "keep", "gather") == [
        ["R", "from disk"],
        ["S(0)", "compiled"],
        ["R", "compiled"],
    ]


def test_while_rules_are_in_force_the_tag_says_which_and_afterwards_it_is_as_before() -> None:
    before = tag()
    with registered():
        one = tag()
        with dr.register_single_dim_strategy("aten.neg.default")(dr.pointwise()):
            two = tag()
        assert tag() == one
    with registered(lambda op, args, kwargs: []):
        other = tag()
    assert tag() == before
    assert len({before, one, two, other}) == 4
    assert all(text.startswith(f"{before}{MARK}") for text in (one, two, other))
    with registered():
        assert tag() == one


def test_every_thread_sees_the_tag() -> None:
    with registered(), ThreadPoolExecutor(1) as thread:
        assert thread.submit(tag).result() == tag()
        assert MARK in tag()


def test_a_tag_of_the_users_own_is_kept_and_given_back() -> None:
    config.cache_key_tag = "mine"
    try:
        with registered():
            assert tag().startswith(f"mine{MARK}")
            with dr.register_single_dim_strategy("aten.neg.default")(dr.pointwise()):
                assert tag().count(MARK) == 1
        assert tag() == "mine"
    finally:
        config._config["cache_key_tag"].user_override.set(_UNSET_SENTINEL)


def test_a_tag_from_the_environment_is_kept_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = config._config["cache_key_tag"]
    monkeypatch.setattr(entry, "env_value_default", "theirs")
    with registered():
        assert tag().startswith(f"theirs{MARK}")
    assert entry.env_value_default == "theirs"


def nothing_in_a_context() -> None:
    with dr.implicit_strategy_context([]):
        pass


@pytest.fixture
def resets(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Pretend that something is compiled, and note when it is dropped."""
    dropped: list[str] = []
    monkeypatch.setattr(compile_caches, "is_compiled", lambda: True)
    monkeypatch.setattr(torch.compiler, "reset", lambda: dropped.append("reset"))
    return dropped


def test_compiled_code_is_dropped_when_a_rule_comes_and_when_it_goes(resets: list[str]) -> None:
    registration = registered()
    assert resets == ["reset"]
    registration.undo()
    assert resets == ["reset"] * 2


def test_for_a_context_compiled_code_is_kept_and_the_user_is_told(resets: list[str]) -> None:
    with pytest.warns(CompiledCodeWarning, match="keeps the sharding decisions that it was"):
        nothing_in_a_context()
    assert resets == []
