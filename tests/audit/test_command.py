"""`dtensor-registry audit`: whole outputs, exit codes, the published schema, the page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from pydantic import TypeAdapter

from dtensor_registry.auditing import AuditReport
from dtensor_registry.cli import main
from dtensor_registry.torch_patch.override_stack import LOAN

SCHEMA = Path(__file__).parents[2] / "docs" / "audit.schema.json"

PLUGIN = """
    from dtensor_registry import SingleDimStrategy, hookimpl, pointwise

    @hookimpl
    def provide_single_dim_strategy():
        return [SingleDimStrategy("aten.exp.default", pointwise())]
"""

HEAD = """\
    import sys
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2))
    x = distribute_tensor(torch.ones(8, 8), mesh, [Shard(0), Replicate()], src_data_rank=None)
    print("rank", dist.get_rank(), "of", dist.get_world_size(), sys.argv)
"""

RULED = HEAD + "    y = torch.exp(x) @ x\n"
UNRULED = (
    HEAD
    + """\
    z = torch.renorm(x, 2, 0, 1.0)
    y = torch.exp(z) @ x
    if y.sum().full_tensor().item() > 0:
        torch.renorm(y, 2, 0, 1.0)
"""
)
FAILING = RULED + "    torch.exp(y.nonsense)\n"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    fake_distribution: Any,
) -> Run:
    """Write `train.py` here and audit it: `run(source, *arguments) -> exit code, out, err`."""
    fake_distribution("acme-rules", dedent(PLUGIN))
    monkeypatch.setenv("DTENSOR_REGISTRY_ALLOWED", '["acme-rules"]')

    def audit(source: str, *arguments: str) -> tuple[int, str, str]:
        Path("train.py").write_text(dedent(source))
        code = main(["audit", "train.py", "--mesh", "2x2", *arguments])
        told = capsys.readouterr()
        out = "\n".join(line.rstrip() for line in told.out.splitlines())
        return code, re.sub("─+", "---", out), told.err

    return audit


def test_plain_output_of_a_program_whose_ops_all_have_rules(run: Run) -> None:
    code, out, err = run(RULED, "--install", "--", "--steps", "1")
    assert (code, err) == (0, "rank 0 of 4 ['train.py', '--steps', '1']\n")
    assert out == dedent(
        """\
        train.py as rank 0 of 4; nothing was allocated or sent

        op                 calls   decided by   moved                    collectives    bytes   line
        ---
        aten.mm.default    1       torch        1 x S(0), R -> R, S(1)   1 all_gather   64      train.py:11
        aten.exp.default   1       acme                                                 0       train.py:11

        2 ops, 2 calls: plugin 1, torch 1; 64 bytes moved"""  # noqa: E501
    )


def test_ops_without_a_rule_come_first_and_do_not_end_the_program(run: Run) -> None:
    code, out, err = run(UNRULED)
    assert code == 1
    assert out == dedent(
        """\
        train.py as rank 0 of 4; nothing was allocated or sent

        op                    calls   decided by    moved                 collectives    bytes   line
        ---
        aten.renorm.default   2       nobody                                             0       train.py:11 and 1 more
        (redistribute)        1       the program                         1 all_reduce   4       train.py:13
        aten.exp.default      1       torch                                              0       train.py:12
        aten.mm.default       1       torch         1 x R, R -> S(1), R                  0       train.py:12
        aten.sum.default      1       torch                                              0       train.py:13

        4 ops, 5 calls: none 1, torch 3; 4 bytes moved

        Nobody has a rule for these; what they return was made up from whole tensors:
          aten.renorm.default: Operator aten.renorm.default does not have a sharding strategy registered.
          Write rules:  docs/write-a-plugin.md
          or run them on whole tensors:  DTENSOR_REGISTRY_FALLBACK__MODE=warn"""  # noqa: E501
    )
    assert err == dedent(
        """\
        rank 0 of 4 ['train.py']
        warning: 1 time the program read a value of a tensor that has none here; it was given 1, or False (train.py:13)
        warning: no rules of the registry were in force: the program does not install it
          To see what it would do:  dtensor-registry audit --install ...
        """  # noqa: E501
    )


def test_a_program_that_installs_the_registry_and_runs_no_op_is_not_said_to_lack_it(
    run: Run,
) -> None:
    source = (
        HEAD
        + """\
    import dtensor_registry
    dtensor_registry.install()
    x.redistribute(mesh, [Replicate(), Replicate()])
"""
    )
    code, out, err = run(source)
    assert "(redistribute)" in out
    assert (code, err) == (0, "rank 0 of 4 ['train.py']\n")


def test_a_folder_is_told_from_a_file_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path}: it is a folder; name a file of it\n"


def test_a_program_that_fails_is_audited_up_to_there(run: Run) -> None:
    code, out, err = run(FAILING, "--install")
    assert code == 1
    assert out.endswith("2 ops, 2 calls: plugin 1, torch 1; 64 bytes moved")
    assert err == dedent(
        """\
        rank 0 of 4 ['train.py']
        warning: the program did not come to its end; the audit is of what ran until then
          train.py:12: AttributeError: 'DTensor' object has no attribute 'nonsense'
        """
    )


@pytest.mark.parametrize(("exits", "code"), [("sys.exit()", 0), ("sys.exit(3)", 1)])
def test_a_program_may_exit_and_its_code_counts(run: Run, exits: str, code: int) -> None:
    found, _, err = run(RULED + f"    {exits}\n", "--install")
    assert found == code
    assert ("it exited with 3" in err) == bool(code)


def test_json_is_what_the_published_schema_says(run: Run) -> None:
    published = json.loads(SCHEMA.read_text("utf-8"))
    assert published == TypeAdapter(AuditReport).json_schema(mode="serialization"), (
        "python -m tests.audit.write_schemas"
    )
    code, out, _ = run(UNRULED, "--json")
    report = json.loads(out)
    assert set(report) == set(published["required"])
    assert code == 1
    assert {**report, "ops": report["ops"][:2]} == {
        "program": "train.py",
        "mesh": "2x2",
        "ranks": 4,
        "ops": [
            {
                "op": "aten.renorm.default",
                "calls": 2,
                "kind": "none",
                "decided_by": "nobody",
                "placements": ["R, R <- S(0), R", "R, R <- P(sum), R"],
                "moved": {},
                "collectives": {},
                "bytes": 0,
                "lines": [
                    {"line": "train.py:11", "backward": False, "calls": 1, "bytes": 0},
                    {"line": "train.py:14", "backward": False, "calls": 1, "bytes": 0},
                ],
                "reason": "Operator aten.renorm.default does not have a sharding strategy"
                " registered.",
            },
            {
                "op": "(redistribute)",
                "calls": 1,
                "kind": "program",
                "decided_by": "the program",
                "placements": [],
                "moved": {},
                "collectives": {"all_reduce": 1},
                "bytes": 4,
                "lines": [{"line": "train.py:13", "backward": False, "calls": 1, "bytes": 4}],
                "reason": "",
            },
        ],
        "lacking": ["aten.renorm.default"],
        "stopped": None,
        "made_up": {"train.py:13": 1},
        "in_force": False,
    }


def test_a_fallback_of_the_program_decides_as_it_does_for_real(
    run: Run, fake_distribution: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fallback = """
        from dtensor_registry import FallbackStrategy, hookimpl

        @hookimpl
        def provide_fallback():
            return [FallbackStrategy("gather", lambda op, args, kwargs: [])]
    """
    fake_distribution("gather-rules", dedent(fallback))
    monkeypatch.setenv("DTENSOR_REGISTRY_ALLOWED", '["acme-rules", "gather-rules"]')
    monkeypatch.setenv("DTENSOR_REGISTRY_FALLBACK__MODE", "silent")
    code, out, _ = run(UNRULED, "--install", "--json")
    first = json.loads(out)["ops"][0]
    assert (code, first["decided_by"], first["kind"]) == (0, "fallback gather", "fallback")
    assert first["collectives"] == {"all_gather": 1, "all_reduce": 1}


def test_a_program_that_leaves_rules_in_force_leaves_none_behind(run: Run) -> None:
    code, _, _ = run("import dtensor_registry\ndtensor_registry.install()\n")
    assert (code, LOAN.layers) == (0, ())


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nowhere.py", "nowhere.py: there is no such file"),
        ("train", "train: name a file, such as train.py, or module:function"),
        ("no_such:main", "no_such:main: there is no module no_such"),
        ("json:main", "json:main: module json has no function main"),
    ],
)
def test_a_program_that_is_not_there_exits_with_2(
    target: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", target]) == 2
    assert capsys.readouterr().err == f"error: {said}\n"


@pytest.mark.parametrize(
    "arguments", [["audit"], ["audit", "x.py", "--mesh", "2y"], ["ops", "--", "x"]]
)
def test_a_wrong_command_line_exits_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "usage: dtensor-registry" in capsys.readouterr().err


class Page(HTMLParser):
    """What a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.attributes.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_asks_for_nothing(run: Run) -> None:
    pytest.importorskip("jinja2")
    run(UNRULED, "--html", "audit.html")
    text = Path("audit.html").read_text("utf-8")
    page = Page(text)
    assert page.open == []
    for _, attributes in page.attributes:
        assert not {"src", "href"} & set(attributes) or attributes.get("href") == "#main"
    assert not re.search(r"url\((?!#)|@import|https?:", text)
    headings = [a for tag, a in page.attributes if tag == "th" and "aria-sort" in a]
    assert [a["scope"] for a in headings] == ["col"] * 10
    for said in ("aten.renorm.default", "train.py:11", "nobody", "1 x R, R -&gt; S(1), R"):
        assert said in text
