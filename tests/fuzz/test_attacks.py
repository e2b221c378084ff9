"""Random attacks by metadata, settings and rules: errors of ours only, no hang, tables exact."""

from __future__ import annotations

import os
import random
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _MaskPartial, _StridedShard

import dtensor_registry as dr
from dtensor_registry.diagnosis.plugin_checks import check_metadata
from dtensor_registry.discovery import PluginWarning, discover, list_plugins
from dtensor_registry.errors import RegistryError
from dtensor_registry.settings import FallbackSettings, Settings, read_settings

LONG = bool(os.environ.get("DTENSOR_REGISTRY_LONG"))
ATTACKS = 1000 if LONG else 60
BATCH = 20
PATIENCE = 30
"""Seconds that one attack may take on a busy machine."""

Attack = Callable[[random.Random, Path, Any], None]


@contextmanager
def ends_in_time(what: str) -> Iterator[None]:
    """Fail when the block takes too long, wherever it is."""

    def too_long(*_: Any) -> None:
        pytest.fail(f"{what} hangs")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def junk(chance: random.Random) -> bytes:
    parts = [b"\xff", b"\x00", b"[", b"]", b"=", b"\n", b":", b"zed", b"\xc3\xa9", b" ", b"'"]
    return b"".join(chance.choices(parts, k=chance.randrange(12)))


def by_metadata(chance: random.Random, folder: Path, mesh: Any) -> None:
    names = ["zed-1.0.dist-info", "zed-1.1.dist-info", "zed.egg-info", "-.dist-info", ".dist-info"]
    for part in chance.sample(["one", "two"], chance.randrange(1, 3)):
        info = folder / part / chance.choice(names)
        info.mkdir(parents=True)
        metadata = [b"Name: zed\n", b"Version: 1.0\n", b"Version: soon\n", b"Requires-Dist: ((\n"]
        metadata += [b"Requires-Dist: dtensor-registry; extra ==\n", junk(chance)]
        groups = [b"[dtensor_registry]\n", b"[other]\n", b"zed = zed_rules\n", b" = zed\n"]
        groups += [b"a:b = c:d.e\n", b"x = \n", b"zed = zed_rules\n", junk(chance)]
        for file, lines in (("METADATA", metadata), ("PKG-INFO", metadata)):
            if chance.random() < 0.6:
                (info / file).write_bytes(b"".join(chance.choices(lines, k=chance.randrange(6))))
        kind = chance.random()
        if kind < 0.8:
            text = b"".join(chance.choices(groups, k=chance.randrange(6)))
            (info / "entry_points.txt").write_bytes(text)
        elif kind < 0.9:
            (info / "entry_points.txt").mkdir()
        else:
            os.symlink("entry_points.txt", info / "entry_points.txt")
        sys.path.append(str(info.parent))
    settings = read_settings(
        allowed=chance.choice([["zed"], [], ["zed", "-"]]),
        on_plugin_error=chance.choice(["skip", "error"]),
        required=chance.choice([[], [], ["zed"], ["zed>=1"]]),
    )
    check_metadata()
    list_plugins(settings)
    discover(settings)


def by_settings(chance: random.Random, folder: Path, mesh: Any) -> None:
    fields = [
        *Settings.model_fields,
        *(f"fallback__{name}" for name in FallbackSettings.model_fields),
    ]
    values = [
        "",
        "[]",
        "{}",
        "null",
        "-1",
        "1e400",
        "nan",
        '["*", "*"]',
        '[""]',
        '{"": ""}',
        "[" * 9999,
    ]
    values += [
        '{"a": {}}',
        '"x"',
        '["\\ud800"]',
        "9" * 5000,
        "true",
        '[["a"]]',
        '{"a": [1]}',
        "a:b:c",
    ]
    for name in chance.sample([*fields, "links__tp__latency", "ordre"], chance.randrange(3)):
        os.environ[f"DTENSOR_REGISTRY_{name.upper()}"] = chance.choice(values)
    file = chance.choice(["dtensor_registry.toml", "pyproject.toml"])
    make: list[Callable[[], Any]] = [
        lambda: None,
        lambda: os.mkdir(file),
        lambda: os.mkfifo(file),
        lambda: os.symlink(file, file),
        lambda: Path(file).write_bytes(junk(chance)),
        lambda: Path(file).write_text(f"{chance.choice(fields)} = {chance.choice(values)}"),
        lambda: Path(file).write_text(f"[tool]\ndtensor_registry = {chance.choice(values)}"),
        lambda: Path(file).write_text(f"{chance.choice(fields)} = {'[' * 3000}{']' * 3000}"),
    ]
    chance.choice(make)()
    with dr.install():
        pass


class Endless(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        while True:
            yield [Shard(0), Shard(0)]


class Raising(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        raise ValueError("not iterable after all")

    def __len__(self) -> int:
        raise KeyError("no length")


class Unprintable:
    def __repr__(self) -> str:
        raise ValueError("no repr")


def by_rule(chance: random.Random, folder: Path, mesh: Any) -> None:
    mask = _MaskPartial(offset_shape=torch.Size([8, 4]), offset_dim=0)
    right = [Shard(0), Shard(1), Replicate(), Partial(), dr.ShardingPlaceholder(0)]
    wrong = [None, "S(0)", 3, Shard(7), Shard(-1), Partial("nonsense"), mask, Unprintable()]
    wrong += [
        dr.ShardingPlaceholder(9),
        _StridedShard(5, split_factor=0),
        Endless(),
        Raising(),
        ...,
    ]
    entries = right * 3 + wrong

    def row() -> Any:
        kind = chance.random()
        if kind < 0.1:
            return chance.choice([None, "SS", 1, Endless([1]), Raising(), Unprintable(), {1: 2}])
        size = 2 if kind < 0.8 else chance.randrange(5)
        return chance.choice([list, tuple])(chance.choice(entries) for _ in range(size))

    rows = [row() for _ in range(chance.randrange(4))]
    returned = chance.choice([rows] * 6 + [Endless(), Raising(), None, iter(rows), rows * 60_000])

    def rule(op: Any, args: Any, kwargs: Any) -> Any:
        if chance.random() < 0.1:
            raise chance.choice([KeyError, RecursionError, SystemExit, AssertionError])("rule")
        if chance.random() < 0.1:
            with suppress(RegistryError):
                dr.install()
        return returned

    op = chance.choice([torch.relu, torch.neg])
    name = {torch.relu: "aten.relu.default", torch.neg: "aten.neg.default"}[op]
    handle = dr.register_single_dim_strategy(name)(rule)
    try:
        op(distribute_tensor(torch.ones(8, 4), mesh, [chance.choice([Replicate(), Shard(0)])]))
    except RuntimeError as error:
        # torch's propagator makes a RuntimeError of what a rule of ours raised; the words are ours.
        if not isinstance(error, RegistryError) and not isinstance(error.__cause__, RegistryError):
            raise
    finally:
        handle.undo()


ATTACK: tuple[Attack, ...] = (by_metadata, by_settings, by_rule)


@contextmanager
def a_process_that_is_put_back(folder: Path) -> Iterator[None]:
    path, variables = list(sys.path), dict(os.environ)
    folder.mkdir()
    os.chdir(folder)
    try:
        yield
    finally:
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(variables)
        os.chdir(folder.parent)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("start", range(0, ATTACKS, BATCH))
def test_no_attack_raises_an_error_of_anothers_hangs_or_leaves_a_trace(
    start: int, tmp_path: Path, local_mesh: Any
) -> None:
    mesh = local_mesh(4)
    tables = dict(torch.distributed.tensor.DTensor._op_dispatcher.sharding_propagator.__dict__)
    before = {name: dict(table) for name, table in tables.items() if isinstance(table, dict)}
    for seed in range(start, start + BATCH):
        attack = ATTACK[seed % len(ATTACK)]
        what = f"attack {seed}, {attack.__name__}"
        with a_process_that_is_put_back(tmp_path / str(seed)), warnings.catch_warnings():
            warnings.simplefilter("ignore", PluginWarning)
            with ends_in_time(what):
                try:
                    attack(random.Random(seed), tmp_path / str(seed), mesh)
                except RegistryError:
                    pass
                except Exception as error:
                    raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
        assert {name: tables[name] for name in before} == before, what
