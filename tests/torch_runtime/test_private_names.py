"""Whatever private name of torch the host's or the kit's code reads is on their lists.

What a name belongs to cannot be told from the source alone, so names are compared: an attribute is
private if it starts with an underscore, or if a class on the list has one of that name.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch.compiler.config

import dtensor_registry
from dtensor_registry.torch_runtime.compat import SURFACE, TABLES, TOOLS, PrivateName
from dtensor_registry_kit import torch_private
from dtensor_registry_kit.torch_private import PRIVATE_NAMES

HOST = Path(dtensor_registry.__file__).parent
FILES = sorted(HOST.rglob("*.py"))
KIT = Path(torch_private.__file__).parent
KIT_FILES = sorted(KIT.rglob("*.py"))
# A tool may use what the host stands on, but a job must not hang on what a tool uses.
TOOL_FOLDERS = ("auditing", "explanation", "torch_fake")
TOOL_FILES = ("source_lines.py",)
# Where private names of torch may be read.
PRIVATE_PLACES = {"torch_fake", "torch_patch", "torch_runtime", "torch_private.py"}
# torch's database of samples is a part that may be missing; its own module says so.
OPTIONAL = {
    "torch.testing._internal.common_methods_invocations",
    "torch.testing._internal.common_methods_invocations.op_db",
}
# What a private class of torch has too, but is not read from one.
OTHERS = {
    "alias": "of the host's Parameter",
    "cache_clear": "of functools.cache",
    "device_mesh": "of DTensor, public",
    "mesh_shape": "of the host's Problem",
    "ndim": "of tensors and DeviceMesh, public",
    "overload": "of the host's Verdict",
    "ranks": "of the host's Asked",
}


def listed(names: Iterable[PrivateName]) -> tuple[set[str], set[str]]:
    """The dotted names on the list, and the names of attributes."""
    dotted: set[str] = set()
    attributes = set(TABLES)
    for name in names:
        parts = name.path.split(".")
        dotted |= {".".join((name.module, *parts[:end])) for end in range(len(parts) + 1)}
        attributes |= {*parts, *name.attributes, *(name.parameters or ())}
    return dotted, attributes


def classes(names: Iterable[PrivateName]) -> set[type]:
    """Each class of torch's on the list, or of which an object is on it."""
    found = set()
    for name in names:
        value: Any = importlib.import_module(name.module)
        for part in name.path.split("."):
            value = getattr(value, part, None)
            found.add(value if inspect.isclass(value) else type(value))
    return {one for one in found if one.__module__.partition(".")[0] == "torch"}


def members(owner: type) -> set[str]:
    """The attributes of a class and its instances; of a public class, the private ones."""
    names = set(vars(owner))
    inherited = {name for base in owner.__mro__[1:] if is_public(base) for name in dir(base)}
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    except (OSError, TypeError):  # written in C
        tree = ast.Module([], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node):
            names.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    wanted = (lambda name: name.startswith("_")) if is_public(owner) else (lambda name: True)
    return {name for name in names - inherited if wanted(name) and not name.startswith("__")}


def is_public(owner: type) -> bool:
    return not any(p.startswith("_") for p in (*owner.__module__.split("."), owner.__qualname__))


def is_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def own_names() -> set[str]:
    """The private names that the host itself defines: not torch's."""
    names = set()
    for file in (*FILES, *KIT_FILES):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names |= {node.attr} if is_self(node) else set()
    return names


def imports(tree: ast.AST) -> dict[str, str]:
    """What each imported name of a module stands for, dotted."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                found[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def full_name(node: ast.AST, known: dict[str, str]) -> str | None:
    """What a chain of attributes stands for that starts at an imported name."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = full_name(node.value, known)
        return f"{owner}.{node.attr}" if owner else None
    return None


def private_part(name: str) -> str | None:
    """The part of a dotted name of torch's that must be on the list: up to a private attribute.

    The attribute is private, or it is one of a private module.
    """
    parts = name.split(".")
    if parts[:1] != ["torch"] or parts[:2] == ["torch", "ops"]:
        return None
    modules = 1
    while modules < len(parts) and ".".join(parts[: modules + 1]) in sys.modules:
        modules += 1
    if any(part.startswith("_") for part in parts[:modules]):
        return ".".join(parts[: modules + 1]) if modules < len(parts) else None
    for end, part in enumerate(parts):
        if part.startswith("_") and not part.startswith("__"):
            return ".".join(parts[: end + 1])
    return None


def literals(node: ast.AST) -> Iterator[str]:
    """The names that are asked for as text: `getattr(x, "name")` and `NAME = "_name"`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
        if node.func.id in ("getattr", "setattr", "hasattr", "delattr"):
            asked = node.args[1]
            if isinstance(asked, ast.Constant):
                yield str(asked.value)
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
        yield str(node.value.value)


def unlisted(file: Path, names: Iterable[PrivateName]) -> list[str]:
    """The private names of torch that a module reads and that are not on a list."""
    tree = ast.parse(file.read_text("utf-8"))
    # Elsewhere ruff stops private names, and nothing private is at hand.
    members = MEMBERS if PRIVATE_PLACES & set(file.parts) else set()
    known = imports(tree)
    on_list, attributes = listed(names)
    missing = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            full = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            full = [name for name in [full_name(node, known)] if name]
        for part in filter(None, map(private_part, full)):
            missing |= {part} - on_list - OPTIONAL
        read = set(literals(node)) & members
        # What starts at an imported name has been seen, but for attributes of torch's objects.
        if isinstance(node, ast.Attribute) and not is_self(node) and not is_module(full):
            read |= {node.attr} if node.attr in members or is_private(node.attr) else set()
        missing |= read - attributes - set(OTHERS)
    return sorted(missing)


def is_module(full: list[str]) -> bool:
    """Whether a chain of names is a module, an op or no part of torch."""
    return any(
        name in sys.modules or not name.startswith("torch.") or name.startswith("torch.ops.")
        for name in full
    )


NAMES = (*SURFACE, *TOOLS, *PRIVATE_NAMES)
MEMBERS = {
    *torch.compiler.config._config,
    *(name for owner in classes(NAMES) for name in members(owner)),
}
OWN = own_names()


def is_private(name: str) -> bool:
    """Whether an attribute is a private one that the host does not define itself."""
    return name.startswith("_") and not name.startswith("__") and name not in OWN


def names_for(file: Path) -> tuple[PrivateName, ...]:
    is_tool = file.parent.name in TOOL_FOLDERS or file.name in TOOL_FILES
    return (*SURFACE, *TOOLS) if is_tool else SURFACE


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(HOST)))
def test_every_private_name_that_is_read_is_on_the_list(file: Path) -> None:
    assert unlisted(file, names_for(file)) == []


@pytest.mark.parametrize("file", KIT_FILES, ids=lambda file: str(file.relative_to(KIT)))
def test_what_the_kit_reads_is_on_its_own_list_and_in_one_module(file: Path) -> None:
    assert unlisted(file, PRIVATE_NAMES if file.name == "torch_private.py" else ()) == []


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("dispatcher()._planted", "_planted"),
        ("spec.num_shards", "num_shards"),
        ("getattr(spec, 'num_shards')", "num_shards"),
        ("PLANTED = '_allow_implicit_replication'", "_allow_implicit_replication"),
        ("PLANTED = 'force_disable_caches'", "force_disable_caches"),
        ("torch._C._planted()", "torch._C._planted"),
        ("from torch._C import _planted", "torch._C._planted"),
        ("from torch._higher_order_ops import planted", "torch._higher_order_ops.planted"),
        ("_sharding_prop.planted", "torch.distributed.tensor._sharding_prop.planted"),
        ("DTensor._planted", "torch.distributed.tensor.DTensor._planted"),
    ],
)
def test_one_that_is_not_on_the_list_is_found(line: str, name: str, tmp_path: Path) -> None:
    imports = "import torch\nfrom torch.distributed.tensor import DTensor, _sharding_prop\n"
    copy = tmp_path / "torch_runtime" / "decide.py"
    copy.parent.mkdir()
    copy.write_text(
        f"{(HOST / 'torch_runtime' / 'decide.py').read_text('utf-8')}\n{imports}{line}\n"
    )
    assert name in unlisted(copy, SURFACE)


@pytest.mark.parametrize(
    "name",
    [
        "_FORCE_MIN_COST_REDISTRIBUTION_PLAN",
        "_random_ops",
        "cache_key_tag",
        "decomp_strategy",
        "env_value_default",
        "is_default_device_order",
        "op_to_shape_and_stride_idx",
        "shard_order",
        "wrap",
    ],
)
def test_one_that_is_taken_off_the_list_is_found(name: str) -> None:
    left = [
        replace(entry, attributes=tuple(a for a in entry.attributes if a != name))
        for entry in SURFACE
        if entry.path.rpartition(".")[2] != name
    ]
    files = [
        file for file in FILES if PRIVATE_PLACES & set(file.parts) and names_for(file) is SURFACE
    ]
    found = {part for file in files for part in unlisted(file, left)}
    assert name in {part.rpartition(".")[2] for part in found}


def test_what_is_read_of_others_is_on_no_list() -> None:
    _, attributes = listed(NAMES)
    assert set(OTHERS) & attributes == set()
    assert set(OTHERS) <= MEMBERS
