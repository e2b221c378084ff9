"""`dtensor-registry lock`, `diff`, and setting `lock`: whole outputs and exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import importlib_metadata
import pytest
import torch
from pydantic import TypeAdapter

import dtensor_registry as dr
from dtensor_registry import fingerprint
from dtensor_registry.cli import main
from dtensor_registry.cli.diff import DiffReport
from dtensor_registry.errors import LockFileError, LockMismatchError
from dtensor_registry.lock import Lock, parse_lock
from dtensor_registry.torch_patch.override_stack import LOAN

DOCS = Path(__file__).parents[2] / "docs"

PLUGIN = """
    from dtensor_registry import ShardingPlaceholder, SingleDimStrategy, einsum, hookimpl

    def kept():
        return [[ShardingPlaceholder(0)] * 2, [ShardingPlaceholder(1)] * 2]

    def keep(op, args, kwargs):
        return kept()

    @hookimpl
    def provide_single_dim_strategy():
        return [
            SingleDimStrategy("aten.mm.default", einsum("mk,kn->mn")),
            SingleDimStrategy("aten.renorm.default", keep),
            SingleDimStrategy("lock_test.later", keep),
        ]
"""

LOCK = """\
{
"format": "dtensor-registry lock, format 2",
"ground": {
 "torch": "TORCH",
 "host": "HOST",
 "python": "PYTHON",
 "setting fallback": "{\\"before_decomposition\\": false, \\"exclude\\": [], \
\\"include\\": [\\"*\\"], \\"max_bytes\\": null, \\"mode\\": \\"off\\", \\"ops\\": {}, \
\\"order\\": [\\"*\\"]}",
 "setting torch_rules": "true",
 "plugin acme": "acme-rules 1.0 (MODULE) active"
},
"ops": [
{"op": "aten.mm.default", "plugin": "acme", "distribution": "acme-rules 1.0", "in_torch": true, \
"rule": "einsum(mk,kn->mn) #HASH, file HASH", \
"rows": ["S(0) <- S(0), R", "P(sum) <- S(1), S(0)", "S(1) <- R, S(1)", "P(sum) <- P(sum), R", \
"P(avg) <- P(avg), R", "P(sum) <- R, P(sum)", "P(avg) <- R, P(avg)"]},
{"op": "aten.renorm.default", "plugin": "acme", "distribution": "acme-rules 1.0", \
"in_torch": false, "rule": "MODULE.keep #HASH, file HASH", \
"rows": ["S(0) <- S(0)", "S(1) <- S(1)"]},
{"op": "lock_test.later", "plugin": "acme", "distribution": "acme-rules 1.0", \
"in_torch": false, "rule": "MODULE.keep #HASH, file HASH", "rows": ["pending"]}
]
}
"""

Run = Callable[..., tuple[int, str, str]]


TRAIT = ('einsum("mk,kn->mn"))', 'einsum("mk,kn->mn"), allow_uneven_sharding=True)')
HELPER = ("* 2, [ShardingPlaceholder(1)] * 2]", "* 2, [ShardingPlaceholder(1)] * 2][::-1]")


@pytest.fixture
def module(fake_distribution: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Install a plugin, and admit no other."""
    name: str = fake_distribution("acme-rules", dedent(PLUGIN))
    monkeypatch.setenv("DTENSOR_REGISTRY_ALLOWED", '["acme-rules"]')
    return name


@pytest.fixture
def run(module: str, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def expected(module: str) -> str:
    try:
        host = importlib_metadata.version("dtensor-registry")
    except importlib_metadata.PackageNotFoundError:
        host = "(a source tree)"
    words = {
        "TORCH": torch.__version__,
        "HOST": host,
        "PYTHON": ".".join(map(str, sys.version_info[:2])),
        "MODULE": module,
    }
    return re.sub("|".join(words), lambda word: words[word[0]], LOCK)


def without_hashes(text: str) -> str:
    return re.sub("#[0-9a-f]{12}, file [0-9a-f]{12}", "#HASH, file HASH", text)


def test_lock_prints_one_line_per_op(run: Run, module: str) -> None:
    code, out, err = run("lock")
    assert (code, err) == (0, "")
    assert without_hashes(out) == expected(module)


def test_lock_writes_to_a_file_and_diff_finds_no_difference(run: Run) -> None:
    assert run("lock", "rules.lock") == (0, "rules.lock: 3 ops\n", "")
    assert Path("rules.lock").read_text("utf-8") == run("lock")[1]
    assert run("diff", "rules.lock") == (0, "rules.lock -> now: no difference\n", "")
    assert run("diff", "rules.lock", "rules.lock")[:2] == (
        0,
        "rules.lock -> rules.lock: no difference\n",
    )


def test_lock_as_json_is_what_the_published_schema_says(run: Run) -> None:
    published = json.loads((DOCS / "lock.schema.json").read_text("utf-8"))
    assert published == TypeAdapter(Lock).json_schema(mode="serialization"), (
        "python -m tests.audit.write_schemas"
    )
    code, out, _ = run("lock", "--json")
    report = json.loads(out)
    assert parse_lock(out.encode(), "the screen")
    assert (code, set(report)) == (0, set(published["properties"]))
    assert report["ground"]["torch"] == torch.__version__
    assert [(op["op"], op["plugin"], op["in_torch"]) for op in report["ops"]] == [
        ("aten.mm.default", "acme", True),
        ("aten.renorm.default", "acme", False),
        ("lock_test.later", "acme", False),
    ]


def edit(*changes: tuple[str, str]) -> None:
    """Change the lock file, as if it had been written in another environment."""
    text = Path("rules.lock").read_text("utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    Path("rules.lock").write_text(text, "utf-8")


CHANGES = (
    ('"S(0) <- S(0), R", ', ""),
    ('"acme-rules 1.0", "in_torch": true', '"acme-rules 0.9", "in_torch": false'),
    ('"aten.renorm.default", "plugin": "acme"', '"aten.renorm.default", "plugin": "other"'),
)
TOLD = [
    "aten.mm.default: version: acme-rules 0.9 -> acme-rules 1.0",
    "aten.mm.default: torch now has its own rule for this op",
    "aten.mm.default: rows gained: S(0) <- S(0), R",
    "aten.renorm.default: owner: other (acme-rules 1.0) -> acme (acme-rules 1.0)",
]


def test_diff_says_what_differs_from_now_and_exits_with_1(run: Run) -> None:
    run("lock", "rules.lock")
    edit(*CHANGES)
    lines = "\n".join([*TOLD, "rules.lock -> now: 4 differences"])
    assert run("diff", "rules.lock") == (1, f"{lines}\n", "")


def test_diff_of_two_files_asks_nobody(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("lock", "rules.lock")
    before = Path("rules.lock").rename("old.lock")
    run("lock", "rules.lock")
    edit(('"S(0) <- S(0), R", ', ""))
    monkeypatch.setenv("DTENSOR_REGISTRY_REQUIRED", '["not-there"]')
    assert run("diff", str(before), "rules.lock") == (
        1,
        "aten.mm.default: rows lost: S(0) <- S(0), R\nold.lock -> rules.lock: 1 difference\n",
        "",
    )


def test_diff_as_json_is_what_the_published_schema_says(run: Run) -> None:
    published = json.loads((DOCS / "diff.schema.json").read_text("utf-8"))
    assert published == TypeAdapter(DiffReport).json_schema(mode="serialization"), (
        "python -m tests.audit.write_schemas"
    )
    run("lock", "rules.lock")
    edit(CHANGES[0])
    code, out, _ = run("diff", "rules.lock", "--json")
    TypeAdapter(DiffReport).validate_json(out)
    assert code == 1
    assert json.loads(out) == {
        "before": "rules.lock",
        "after": "now",
        "differences": [
            {
                "about": "aten.mm.default",
                "change": "rows gained",
                "before": "",
                "after": "S(0) <- S(0), R",
            }
        ],
    }


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (TRAIT, ["aten.mm.default: rule", "aten.renorm.default: rule", "lock_test.later: rule"]),
        (
            HELPER,
            [
                "aten.mm.default: rule",
                "aten.renorm.default: rule",
                "aten.renorm.default: rows in another order",
                "lock_test.later: rule",
            ],
        ),
    ],
    ids=["a trait", "a function that the rule calls"],
)
def test_what_neither_name_nor_version_shows_is_a_difference(
    run: Run, module: str, change: tuple[str, str], lines: list[str]
) -> None:
    run("lock", "rules.lock")
    source = Path(str(sys.modules[module].__file__))
    assert change[0] in source.read_text("utf-8")
    source.write_text(source.read_text("utf-8").replace(*change), "utf-8")
    del sys.modules[module]
    fingerprint._file_digest.cache_clear()
    code, out, _ = run("diff", "rules.lock")
    assert (code, [line.rpartition(": ")[0] for line in out.splitlines()[:-1]]) == (1, lines)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["diff", "nowhere.lock"], "nowhere.lock: it cannot be read: No such file or directory"),
        (["diff", "broken.lock"], "broken.lock: Invalid JSON: key must be a string at line 2"),
        (["diff", "bytes.lock"], "bytes.lock: Invalid JSON: "),
        (["lock", "no/such/file"], "no/such/file: cannot be written: there is no folder no/such"),
        (["lock", "."], ".: cannot be written: it is a folder"),
    ],
)
def test_a_file_that_is_of_no_use_exits_with_2(run: Run, command: list[str], said: str) -> None:
    Path("broken.lock").write_text("{\n<<<<<<< HEAD\n")
    Path("bytes.lock").write_bytes(b"\xff\xfe")
    code, out, err = run(*command)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {said}")


def test_lock_leaves_a_file_of_the_users_as_it_is(run: Run) -> None:
    Path("train.py").write_text("import torch\n")
    code, out, err = run("lock", "train.py")
    assert (code, out) == (2, "")
    assert err == (
        "error: train.py: it is there and is no lock file, so it was left as it is\n"
        "  Name another file, or take it away first:  mv train.py train.py.old\n"
    )
    assert Path("train.py").read_text() == "import torch\n"


@pytest.mark.parametrize("text", ["", "# dtensor-registry lock, format 1\n", "lock"])
def test_lock_writes_anew_what_is_a_lock_or_empty(run: Run, text: str) -> None:
    whole = run("lock")[1]
    Path("rules.lock").write_text(whole if text == "lock" else text)
    assert run("lock", "rules.lock")[0] == 0
    assert Path("rules.lock").read_text("utf-8") == whole


def test_lock_prints_no_warning_of_the_ops_that_it_asks(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["lock", "rules.lock"]) == 0
    out, err = capfd.readouterr()
    assert (out[:12], err) == ("rules.lock: ", "")
    assert '{"op": "aten.addr.out", ' in Path("rules.lock").read_text(
        "utf-8"
    )  # its `out` is resized


@pytest.mark.slow
def test_the_text_does_not_depend_on_the_hash_seed(run: Run) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dtensor_registry.cli", "lock"],
        env={**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, run("lock")[1]), done.stderr


def test_install_goes_by_the_lock_file_of_the_settings(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("lock", "rules.lock")
    monkeypatch.setenv("DTENSOR_REGISTRY_LOCK", "rules.lock")
    with dr.install() as installation:
        assert installation.active


def test_install_puts_nothing_in_force_when_the_lock_file_differs(run: Run) -> None:
    run("lock", "rules.lock")
    edit(*CHANGES)
    with pytest.raises(LockMismatchError) as caught:
        dr.install(lock="rules.lock")
    assert LOAN.layers == ()
    assert caught.value.differences == tuple(TOLD)
    assert str(caught.value) == "\n".join(
        [
            "what is installed differs from lock file rules.lock in 4 point(s), so nothing was put"
            " in force.",
            *(f"  {line}" for line in TOLD),
            "  See all:  dtensor-registry diff rules.lock",
            "  If that is what you want:  dtensor-registry lock rules.lock",
        ]
    )


def test_a_long_list_of_differences_is_cut() -> None:
    error = LockMismatchError("rules.lock", [f"op {number}" for number in range(30)])
    assert "  op 19\n  ... 10 more\n" in str(error)


def test_a_lock_file_that_is_broken_or_missing_stops_install(run: Run) -> None:
    with pytest.raises(LockFileError, match=r"it cannot be read: .*; setting 'lock' names it"):
        dr.install(lock="rules.lock")
    run("lock", "rules.lock")
    edit(('"torch": ', '"torch" '))
    with pytest.raises(LockFileError, match=r"rules\.lock: .* at line 4 "):
        dr.install(lock="rules.lock")
    assert LOAN.layers == ()


def test_an_op_that_was_pending_in_the_lock_file_may_exist_by_now(run: Run) -> None:
    run("lock", "rules.lock")
    library = torch.library.Library("lock_test", "FRAGMENT")
    library.define("later(Tensor x) -> Tensor")
    assert run("diff", "rules.lock")[0] == 0
    run("lock", "new.lock")
    assert '"lock_test.later.default", "plugin": "acme"' in Path("new.lock").read_text("utf-8")
    with dr.install(lock="rules.lock"):
        pass
