"""Ways in which a plugin can misbehave, and what the user sees of each.

`docs/bad-plugins.md` is made of this table: python tests/bad_plugins/cases.py
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

PAGE = Path(__file__).parents[2] / "docs" / "bad-plugins.md"

IMPORTS = (
    "from dtensor_registry import FallbackStrategy, SingleDimStrategy, einsum, hookimpl, row\n"
)
SOUND = f"""{IMPORTS}
@hookimpl
def provide_single_dim_strategy():
    return [SingleDimStrategy("aten.neg.default", lambda op, args, kwargs: [])]
"""


def hook(body: str, signature: str = "provide_single_dim_strategy()") -> str:
    return f"{IMPORTS}\n@hookimpl\ndef {signature}:\n    {body}\n"


def rule(body: str) -> str:
    """A plugin whose rule for `aten.neg.default` misbehaves."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return (
        f"from dtensor_registry import ShardingPlaceholder, SingleDimStrategy, hookimpl\n"
        f"S = ShardingPlaceholder\n\ndef rows(op, args, kwargs):\n{lines}\n\n@hookimpl\n"
        "def provide_single_dim_strategy():\n"
        "    return [SingleDimStrategy('aten.neg.default', rows)]\n"
    )


@dataclass(frozen=True)
class Case:
    """One misbehaviour.

    Attributes:
        name: what the plugin does.
        source: its module.
        when: `start`: `install()` raises, nothing is installed; `call`: the op that its rule is
            about raises; `told`: a warning, and everything else works; `borne`: nothing happens.
        seen: part of the message.
    """

    name: str
    source: str
    when: Literal["start", "call", "told", "borne"]
    seen: str = ""


TAMPER = "from torch.distributed.tensor import DTensor\nPROP = DTensor._op_dispatcher"

CASES = (
    Case(
        "imports a module that is not there",
        "import no_such_module",
        "start",
        "importing it raised ModuleNotFoundError: No module named 'no_such_module'",
    ),
    Case("has a syntax error", "def", "start", "importing it raised SyntaxError: invalid syntax"),
    Case(
        "ends the program at import",
        "raise SystemExit(3)",
        "start",
        "importing it raised SystemExit: 3",
    ),
    Case(
        "ends the program by an exception of its own kind",
        "class Stop(BaseException): pass\nraise Stop('now')",
        "start",
        "importing it raised Stop: now",
    ),
    Case(
        "raises in its hook",
        hook("raise ValueError('no rows today')"),
        "start",
        "its hook provide_single_dim_strategy raised ValueError: no rows today",
    ),
    Case(
        "ends the program in its hook",
        hook("raise SystemExit"),
        "start",
        "its hook provide_single_dim_strategy raised SystemExit",
    ),
    Case(
        "raises in the middle of what it yields",
        hook("yield SingleDimStrategy('aten.neg.default', lambda o, a, k: []); 1 / 0"),
        "start",
        "its hook provide_single_dim_strategy raised ZeroDivisionError",
    ),
    Case(
        "yields without end",
        hook(
            "n = 0\n    while True:\n        n += 1\n"
            "        yield SingleDimStrategy(f'acme.f{n}.default', lambda o, a, k: [])"
        ),
        "start",
        "its hook provide_single_dim_strategy gives more than 20000 results",
    ),
    Case(
        "returns nothing",
        hook("pass"),
        "start",
        "its hook provide_single_dim_strategy returned None; return an empty list for nothing",
    ),
    Case(
        "returns a number",
        hook("return 3"),
        "start",
        "its hook provide_single_dim_strategy returned 3, which is no iterable",
    ),
    Case(
        "returns names of ops",
        hook("return ['aten.neg.default']"),
        "start",
        "its hook provide_single_dim_strategy returned a str ('aten.neg.default') among its",
    ),
    Case(
        "returns strategies from the hook for fallbacks",
        hook(
            "return [SingleDimStrategy('aten.neg.default', lambda o, a, k: [])]",
            "provide_fallback()",
        ),
        "start",
        "every one must be a FallbackStrategy",
    ),
    Case(
        "gives a string for a rule",
        hook("return [SingleDimStrategy('acme.f.default', 'mk,kn->mn')]"),
        "start",
        "SingleDimStrategy(acme.f.default): rule is a str, neither a function",
    ),
    Case(
        "writes an op's name wrong",
        hook("return [SingleDimStrategy('neg', lambda o, a, k: [])]"),
        "start",
        "'neg' is no op name: write 'namespace.op' or 'namespace.op.overload'",
    ),
    Case(
        "names an op that torch does not have",
        hook("return [SingleDimStrategy('aten.negg.default', lambda o, a, k: [])]"),
        "told",
        "aten.negg.default, which torch does not have; did you mean 'aten.neg.default'?",
    ),
    Case(
        "has a row for an argument that the op does not have",
        hook("return [SingleDimStrategy('aten.sin.default', row(out='S(0)', x='S(0)'))]"),
        "told",
        "aten.sin.default(Tensor self) has no tensor argument 'x'; it has self",
    ),
    Case(
        "misspells a hook",
        hook("return []", "provide_single_dim_strategies()"),
        "start",
        "unknown hook 'provide_single_dim_strategies'",
    ),
    Case(
        "implements a hook of a newer host",
        hook("return []", "provide_cost_model()"),
        "start",
        "(a misspelt hook, or one of a newer dtensor-registry)",
    ),
    Case(
        "takes an argument that only a newer host gives",
        hook("return []", "provide_single_dim_strategy(mesh)"),
        "start",
        "Argument(s) {'mesh'} are declared in the hookimpl but can not be found in the hookspec",
    ),
    Case(
        "marks no function as a hook",
        "def provide_single_dim_strategy():\n    return []\n",
        "start",
        "is marked @hookimpl",
    ),
    Case(
        "claims an op twice",
        hook(
            "return [SingleDimStrategy('aten.neg.default', lambda o, a, k: []) for _ in range(2)]"
        ),
        "start",
        "it claims aten.neg.default twice, at",
    ),
    Case(
        "claims 10,000 ops",
        hook(
            "return [SingleDimStrategy(f'acme.f{n}.default', lambda o, a, k: [])"
            " for n in range(10_000)]"
        ),
        "borne",
    ),
    Case(
        "gives a rule whose repr raises",
        f"""{IMPORTS}
class Rule:
    __slots__ = ()
    def __call__(self, op, args, kwargs): return []
    def __repr__(self): raise ValueError
    def __hash__(self): raise TypeError
@hookimpl
def provide_single_dim_strategy():
    return [SingleDimStrategy("aten.neg.default", Rule())]
""",
        "borne",
    ),
    Case("prints to stdout", f"print('hello')\n{SOUND}", "borne"),
    Case(
        "takes long to import",
        SOUND,
        "told",
        "to load, on every rank",
    ),
    Case(
        "registers into torch by itself",
        "import torch\nfrom torch.distributed.tensor import Replicate\n"
        "from torch.distributed.tensor.experimental import register_sharding\n"
        "@register_sharding(torch.ops.aten.topk.default)\n"
        f"def topk(x, *args):\n    return []\n{SOUND}",
        "start",
        "for aten.topk.default. This was undone; contribute strategies through the hooks",
    ),
    Case(
        "writes to torch's tables by itself",
        f"import torch\n{TAMPER}.sharding_propagator\n"
        "PROP.op_single_dim_strategy_funcs[torch.ops.aten.neg.default] = lambda *a: []\n"
        f"{SOUND}",
        "start",
        "it wrote to torch's op_single_dim_strategy_funcs for aten.neg.default",
    ),
    Case(
        "takes a rule out of torch's tables",
        f"import torch\n{TAMPER}.sharding_propagator\n"
        f"PROP.op_single_dim_strategy_funcs.pop(torch.ops.aten.neg.default)\n{SOUND}",
        "start",
        "it wrote to torch's op_single_dim_strategy_funcs for aten.neg.default",
    ),
    Case(
        "replaces a function of torch's sharding propagator",
        f"""from torch.distributed.tensor import _sharding_prop
old = _sharding_prop._select_min_cost_strategy
_sharding_prop._select_min_cost_strategy = lambda *args, **kwargs: old(*args, **kwargs)
{SOUND}""",
        "start",
        "it replaced torch's torch.distributed.tensor._sharding_prop._select_min_cost_strategy",
    ),
    Case(
        "replaces a method of torch's dispatcher",
        f"{TAMPER}\nPROP.unwrap_to_op_info = lambda *args: None\n{SOUND}",
        "start",
        "it replaced torch's OpDispatcher.unwrap_to_op_info",
    ),
    Case(
        "registers rules of this process at import",
        "import dtensor_registry as dr\n"
        f"dr.register_single_dim_strategy('aten.neg.default')(lambda op, a, k: [])\n{SOUND}",
        "start",
        "it put a rule for aten.neg.default in force by itself",
    ),
    Case(
        "installs at import",
        f"import dtensor_registry as dr\ndr.install()\n{SOUND}",
        "start",
        "looks for plugins, or installs, while it is loaded itself",
    ),
    Case(
        "installs in its hook",
        hook("import dtensor_registry as dr; dr.install(); return []"),
        "start",
        "looks for plugins, or installs, while it is loaded itself",
    ),
    Case(
        "has a rule that raises on some shapes only",
        rule("if args[0].shape[0] == 6: raise KeyError('six')\nreturn [[S(0), S(0)]]"),
        "call",
        "the sharding rule for aten.neg.default is wrong: it raised KeyError: 'six'",
    ),
    Case(
        "has a rule that ends the program",
        rule("raise SystemExit(1)"),
        "call",
        "the sharding rule for aten.neg.default is wrong: it raised SystemExit: 1",
    ),
    Case(
        "has a rule that returns a generator",
        rule("yield [S(0), S(0)]"),
        "call",
        "it returned a generator, not a list of rows",
    ),
    Case(
        "has a rule whose rows are too short",
        rule("return [[S(0)]]"),
        "call",
        "the row has 1 entries",
    ),
    Case(
        "has a rule that shards a dim which is not there",
        rule("return [[S(5), S(5)]]"),
        "call",
        "the sharding rule for aten.neg.default is wrong",
    ),
    Case(
        "has a rule that changes the arguments it is given",
        rule("kwargs['x'] = 1\nkwargs.clear()\nreturn [[S(0), S(0)]]"),
        "borne",
    ),
    Case(
        "has a rule that answers differently each time",
        "from itertools import count\nNUMBERS = count()\n"
        + rule("return [[S(0), S(0)]] if next(NUMBERS) % 2 == 0 else []"),
        "borne",
    ),
    Case(
        "has a rule that installs",
        rule("import dtensor_registry as dr\ndr.install(allowed=[])"),
        "call",
        "this thread is inside the dispatch of an op",
    ),
)

MEANING = {
    "start": "`install()` raises `BrokenPluginsError`; nothing is installed",
    "call": "the call raises `RuleError`; other ops go on",
    "told": "a `PluginWarning`; it is installed",
    "borne": "it is installed and does no harm",
}


def page() -> str:
    """Write the page."""
    rows = [
        f"| {case.name} | {MEANING[case.when]} | {f'`{_cell(case.seen)}`' if case.seen else ''} |"
        for case in CASES
    ]
    return "\n".join([HEAD, *rows, TAIL])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


HEAD = """\
# Bad plugins

A plugin is code of somebody else that runs in every rank. What it does wrong must be seen at
once, with its owner and the setting that switches it off, and must not leave torch half changed.
By default a plugin that fails stops `install()`: a job must not run with other rules than it was
meant to. `DTENSOR_REGISTRY_ON_PLUGIN_ERROR=skip` goes on without it and warns; the failure is part
of the fingerprint, so a rank on which it did not fail is found by `check_ranks()`.

This page is made from the table that the tests run, `tests/bad_plugins/cases.py`.
In each case torch's tables are as before afterwards, and a sound plugin beside the bad one works
once the bad one is switched off as its message says. `RuleError` is a `RuntimeError`; where
torch itself asks for a decision, it raises another `RuntimeError` from it, which quotes it.

| the plugin | what happens | the message says |
|---|---|---|"""

TAIL = """
Also tested: two distributions under one entry-point name, one module under two entry points, a
plugin that needs a newer host, a name that settings use for something else
(`tests/discovery/test_broken_plugins.py`), metadata that is missing, no text, or there twice
(`tests/trust/test_broken_metadata.py`), rules that torch would pass over
(`tests/installation/test_installation.py`), and wrong rows of every kind
(`tests/torch_runtime/test_wrong_rules.py`, `docs/verification.md`).

## What is not noticed

- **A plugin that never returns** from its import or its hook: nothing in the process can end it.
  `py-spy dump`, or `python -X faulthandler`, says where it is. `check_ranks()` on the other ranks
  names the rank that did not come.
- **A rule that answers differently each time**: the first answer for given shapes is kept as long
  as rules do not change. Two ranks may keep different ones. Rules must be functions of their
  arguments.
- **What a plugin replaces outside of what the host stands on**, such as `torch.Tensor.add`.
- **What it does later**, in a thread or in a rule: it is code, and it runs with your rights.
  See [trust.md](trust.md).
"""

if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
