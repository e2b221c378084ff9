"""A test class that finds every rule of one distribution and makes a test per op and check."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import pytest

from dtensor_registry.settings import Settings
from dtensor_registry_kit.pytest_plugin.only import only
from dtensor_registry_kit.pytest_plugin.session import Bench, bench_of

LONG = "DTENSOR_REGISTRY_LONG"
"""Set in the environment: check every op, also where `every` says that some will do."""


class StrategyConformance:
    """Subclass it in a test file, name the distribution, and that is the file.

    Every op that the distribution has a rule for is checked once, against what the op itself
    computes, in a process of its own; each test then is about one kind of fault.

    Attributes:
        distribution: whose rules.
        samples: by op, calls `() -> Iterable[(args, kwargs)]` in place of those that the
            strategy brings.
        calls: how many calls of each op are tried.
        every: check every n-th op only; all of them when DTENSOR_REGISTRY_LONG is set.
        isolated: False runs the checks in the process of the tests, for a debugger.
        seconds: after which the check of one op is stopped.
    """

    distribution: ClassVar[str]
    samples: ClassVar[Mapping[str, Callable[[], Iterable[Any]]]] = {}
    calls: ClassVar[int] = 6
    every: ClassVar[int] = 1
    isolated: ClassVar[bool] = True
    seconds: ClassVar[float] = 120.0

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Make each test once per rule."""
        if "verified" not in metafunc.fixturenames:
            return
        bench = bench_of(metafunc.config, self.settings())
        keys = sorted(bench.targets)
        if not keys:
            raise pytest.UsageError(
                f"{type(self).__name__}: distribution {self.distribution!r} contributes no rule."
                " Is it installed, and does it declare an entry point in group 'dtensor_registry'?"
            )
        if not os.environ.get(LONG):
            keys = keys[:: self.every]
        metafunc.parametrize("verified", keys, ids=[op for _, op in keys], indirect=True)

    @classmethod
    def settings(cls) -> Settings:
        """Settings under which this distribution is the only one that there is."""
        return only(cls.distribution)

    @pytest.fixture
    def verified(self, request: pytest.FixtureRequest) -> Any:
        """The outcome of all checks of one rule."""
        bench: Bench = bench_of(request.config, self.settings())
        _, op = request.param
        given = self.samples.get(op)
        return bench.verify(
            request.param,
            calls=self.calls,
            seconds=self.seconds,
            given=None if given is None else list(given()),
            isolated=self.isolated,
        )

    def test_the_rule_answers_every_call_with_rows(self, verified: Any) -> None:
        """It neither raises nor returns what is no set of rows."""
        _fail_on(verified, "raises", "malformed")
        if not verified.report.samples:
            pytest.fail(
                f"{verified.op} was not checked: {verified.note or 'it has no sample that runs'}\n"
                "  Give SingleDimStrategy(samples=...) calls that the op takes.",
                pytrace=False,
            )

    def test_every_row_gives_the_result_of_the_whole_run(self, verified: Any) -> None:
        """Forward, on simulated ranks."""
        _fail_on(verified, "unsound", "crash")

    def test_every_row_gives_the_gradients_of_the_whole_run(self, verified: Any) -> None:
        """Backward, for differentiable ops."""
        _fail_on(verified, "backward")

    def test_dtensor_gives_the_result_of_the_whole_run(self, verified: Any) -> None:
        """Through real dispatch, for the choice that the expansion makes."""
        _fail_on(verified, "dispatch")

    def test_the_cache_key_holds_what_the_rows_depend_on(self, verified: Any) -> None:
        """No cached decision is reused for another argument."""
        _fail_on(verified, "cache key")

    def test_the_rule_always_gives_the_same_rows_and_changes_nothing(self, verified: Any) -> None:
        """It is a pure function."""
        _fail_on(verified, "changes", "impure")

    def test_the_rule_shards_where_it_could_and_repeats_no_row(self, verified: Any) -> None:
        """It is neither useless nor redundant."""
        _fail_on(verified, "vacuous", "duplicate")


def _fail_on(verified: Any, *kinds: str) -> None:
    """Fail with all findings of some kinds, each with the program that shows it again."""
    found = [finding for finding in verified.report.findings if finding.kind in kinds]
    if found:
        message = "\n".join(map(str, found))
        pytest.fail(
            f"{verified.op}: the rule {verified.report.rule} of {verified.report.owner}\n{message}",
            pytrace=False,
        )
