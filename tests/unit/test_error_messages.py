"""Whole error messages: fact, place, evidence, next step."""

from __future__ import annotations

from dtensor_registry.errors import (
    BrokenPluginsError,
    ConflictingStrategiesError,
    FallbackRefusedError,
    MissingRanksError,
    NoStrategyError,
    NoValidRowError,
    OverwrittenEntryError,
    PluginError,
    RanksDisagreeError,
    RuleError,
    UnsupportedTorchError,
)

OWNER = "acme-rules 2.3.0 (entry point 'acme', acme/rules.py:41)"


def test_conflicting_strategies() -> None:
    error = ConflictingStrategiesError(
        "aten.mm.default",
        [OWNER, "other-rules 0.4.1 (entry point 'other', other/mm.py:12)"],
        ["acme", "other"],
        ["acme", "*", "corrections", "torch", "pointwise", "matrix", "structure"],
    )
    assert str(error) == (
        "aten.mm.default has 2 providers of equal rank.\n"
        "  acme-rules 2.3.0 (entry point 'acme', acme/rules.py:41)\n"
        "  other-rules 0.4.1 (entry point 'other', other/mm.py:12)\n"
        "Put one first:  DTENSOR_REGISTRY_ORDER="
        '\'["acme", "*", "corrections", "torch", "pointwise", "matrix", "structure"]\'\n'
        'or pin the op:  DTENSOR_REGISTRY_PINS=\'{"aten.mm.default": "acme"}\'\n'
        "See what each offers:  dtensor-registry ops aten.mm.default"
    )
    assert (error.op, error.plugins) == ("aten.mm.default", ("acme", "other"))


def test_a_wrong_rule_with_the_row() -> None:
    error = RuleError("acme.f.default", "acme", OWNER, "the row has 1 entries", "[S(0)]")
    assert str(error) == (
        "the sharding rule for acme.f.default is wrong: the row has 1 entries\n"
        "  rule of acme-rules 2.3.0 (entry point 'acme', acme/rules.py:41)\n"
        "  row:  [S(0)]\n"
        "  A row lists one placement per tensor output, then one per tensor input in schema"
        " order.\n"
        "  Until it is mended:  DTENSOR_REGISTRY_DISABLED='[\"acme:acme.f.default\"]'"
    )


def test_a_wrong_rule_without_a_row() -> None:
    error = RuleError("acme.f.default", "acme", OWNER, "it raised KeyError: 'x'")
    assert str(error) == (
        "the sharding rule for acme.f.default is wrong: it raised KeyError: 'x'\n"
        "  rule of acme-rules 2.3.0 (entry point 'acme', acme/rules.py:41)\n"
        "  A row lists one placement per tensor output, then one per tensor input in schema"
        " order.\n"
        "  Until it is mended:  DTENSOR_REGISTRY_DISABLED='[\"acme:acme.f.default\"]'"
    )


def test_no_valid_row() -> None:
    error = NoValidRowError(
        "acme.f_.default", "acme", OWNER, "(8, 4)@(S(0))", "4", ["one reason", "another"]
    )
    assert str(error) == (
        "acme.f_.default: no row of its sharding rule fits these inputs.\n"
        "  rule of acme-rules 2.3.0 (entry point 'acme', acme/rules.py:41)\n"
        "  inputs (8, 4)@(S(0)) on mesh 4\n"
        "    one reason\n"
        "    another\n"
        "  Redistribute an input first, or leave the op to others:"
        "  DTENSOR_REGISTRY_DISABLED='[\"acme:acme.f_.default\"]'\n"
        "  See why:  dtensor-registry explain acme.f_.default"
    )
    assert error.reasons == ("one reason", "another")


def test_broken_plugins() -> None:
    failures = [
        PluginError("acme", "acme-rules 2.3.0 (entry point 'acme', acme)", "importing it raised X"),
        PluginError("other", "other 1.0 (entry point 'other', other)", "no hook"),
    ]
    error = BrokenPluginsError(failures)
    assert str(error) == (
        "2 plugin(s) cannot be used, so nothing was installed.\n"
        "- plugin 'acme' of acme-rules 2.3.0 (entry point 'acme', acme) cannot be used:"
        " importing it raised X\n"
        "  Switch it off:  DTENSOR_REGISTRY_DISABLED='[\"acme\"]'\n"
        "- plugin 'other' of other 1.0 (entry point 'other', other) cannot be used: no hook\n"
        "  Switch it off:  DTENSOR_REGISTRY_DISABLED='[\"other\"]'\n"
        "  Or go on without broken plugins (every rank must agree):"
        "  DTENSOR_REGISTRY_ON_PLUGIN_ERROR=skip"
    )
    assert error.failures == tuple(failures)


def test_a_refused_fallback_begins_as_torchs_own_error_and_is_one() -> None:
    error = FallbackRefusedError("acme.f.default", [("replicate", "it is random")])
    assert str(error) == (
        "Operator acme.f.default does not have a sharding strategy registered.\n"
        "  fallback 'replicate' refused: it is random\n"
        "  Write a rule: SingleDimStrategy('acme.f.default', rule); see docs/write-a-plugin.md\n"
        "  See why:  dtensor-registry explain acme.f.default"
    )
    assert isinstance(error, NotImplementedError)


def test_no_strategy_begins_as_torchs_own_error_and_is_one() -> None:
    error = NoStrategyError("acme.f.default", "x: (8, 4)@(S(0))", "(4,)", unshaped=False)
    assert str(error) == (
        "Operator acme.f.default does not have a sharding strategy registered.\n"
        "  inputs x: (8, 4)@(S(0)) on mesh (4,)\n"
        "  Write a rule:  SingleDimStrategy('acme.f.default', rule), see docs/write-a-plugin.md\n"
        "  or run it on whole tensors:  DTENSOR_REGISTRY_FALLBACK__MODE=warn\n"
        "  See why:  dtensor-registry explain acme.f.default"
    )
    assert isinstance(error, NotImplementedError)


def test_overwritten_entries() -> None:
    assert str(OverwrittenEntryError(["aten.mm.default in op_to_schema_info"])) == (
        "1 entries of torch's tables were overwritten by other code since the registry wrote"
        " them; they were left as found, all others restored.\n"
        "  aten.mm.default in op_to_schema_info\n"
        "  Register through dtensor_registry, or undo the other change first."
    )


def test_an_unsupported_torch() -> None:
    assert str(UnsupportedTorchError("9.9", ["torch._C.x is missing"])) == (
        "torch 9.9 is not one that dtensor_registry can work with:\n"
        "  torch._C.x is missing\n"
        "Nothing was installed. Use a torch in the tested range (see README), or report this."
    )


def test_ranks_that_do_not_decide_alike() -> None:
    error = RanksDisagreeError(2, ["torch\n    rank 0: 2.13.0\n    rank 1: 2.14.1"])
    assert str(error) == (
        "2 ranks do not decide alike; they would wait for each other for ever, or compute"
        " different values.\n"
        "  torch\n"
        "      rank 0: 2.13.0\n"
        "      rank 1: 2.14.1\n"
        "  Give every rank the same distributions and settings; what a rank has:"
        "  dtensor-registry plugins --load"
    )


def test_ranks_that_did_not_come() -> None:
    assert str(MissingRanksError("ranks 1, 3-4", 60.0)) == (
        "ranks 1, 3-4 did not come within 60 s to compare rules.\n"
        "  Every rank of the group must call check_ranks(), equally often; see the log of the"
        " missing ones for why they did not: a plugin may have failed there."
    )
