"""Errors reach whoever is to read them: by pickle, by copy, and with remedies that work."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import re
import shlex
from concurrent.futures import ProcessPoolExecutor

import pytest
from packaging.requirements import Requirement

from dtensor_registry.cli.command_line import parse
from dtensor_registry.discovery import Plugin
from dtensor_registry.discovery.settings_check import admit, is_disabled_for
from dtensor_registry.errors import PluginError, RegistryError, RuleError
from dtensor_registry.settings import read_settings
from tests.trust.error_samples import OP, PLUGIN, error_classes, sample

CLASSES = error_classes()


def test_there_are_errors_to_try() -> None:
    assert len(CLASSES) > 25


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_is_the_same_after_a_round_trip(kind: type[RegistryError]) -> None:
    error = sample(kind)
    assert error.__dict__, "an error carries what it knows in fields"
    for other in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error), copy.copy(error)):
        assert type(other) is kind
        assert (str(other), other.args) == (str(error), error.args)
        assert repr(other) == repr(error)
        assert list(other.__dict__) == list(error.__dict__)
        assert {k: str(v) for k, v in other.__dict__.items()} == {
            k: str(v) for k, v in error.__dict__.items()
        }


def _fail() -> None:
    raise RuleError(OP, PLUGIN, "acme-rules 1.0", "it raised KeyError: 'x'", "[S(0)]")


def test_an_error_of_a_worker_reaches_the_program_that_waits_for_it() -> None:
    with (
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool,
        pytest.raises(RuleError, match="it raised KeyError") as caught,
    ):
        pool.submit(_fail).result(timeout=120)
    assert (caught.value.op, caught.value.row) == (OP, "[S(0)]")


def typed(message: str) -> list[list[str]]:
    """List what a message tells the user to type, as a shell would split it."""
    found = [shlex.split(text) for text in re.findall(r"DTENSOR_REGISTRY_.*", message)]
    found += [shlex.split(text) for text in re.findall(r":  (dtensor-registry .*)", message)]
    return found + [shlex.split(text) for text in re.findall(r"pip install .*", message)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_what_an_error_tells_the_user_to_type_is_accepted(
    kind: type[RegistryError], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in typed(str(sample(kind))):
        if words[0] == "dtensor-registry":
            assert parse(words[1:]).command
        elif words[0] == "pip":
            assert [Requirement(word) for word in words[2:]]
        else:
            (assignment,) = words
            variable, _, value = assignment.partition("=")
            monkeypatch.setenv(variable, value)
            assert read_settings().model_fields_set
            monkeypatch.delenv(variable)


def test_the_remedies_of_the_error_classes_are_found() -> None:
    words = [words for kind in CLASSES for words in typed(str(sample(kind)))]
    assert {first.partition("=")[0] for first, *_ in words} == {
        "DTENSOR_REGISTRY_DISABLED",
        "DTENSOR_REGISTRY_FALLBACK__MODE",
        "DTENSOR_REGISTRY_ON_PLUGIN_ERROR",
        "DTENSOR_REGISTRY_ORDER",
        "DTENSOR_REGISTRY_PINS",
        "dtensor-registry",
        "pip",
    }


def set_by(error: RegistryError, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in typed(str(error)):
        if words[0].startswith("DTENSOR_REGISTRY_"):
            variable, _, value = words[0].partition("=")
            monkeypatch.setenv(variable, value)


@pytest.mark.parametrize("name", ["acme", "a:b", "a:b:c", "it's", 'a"b', "a b"])
def test_the_printed_switch_turns_a_plugin_off_whatever_its_name_is(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_by(PluginError(name, "acme-rules 1.0", "it raised"), monkeypatch)
    plugin = Plugin(name, "acme-rules", "1.0", "acme_rules.plugin:RULES")
    assert admit(plugin, read_settings()).state == "disabled"
    assert admit(Plugin("other", "other", "1.0", "other"), read_settings()).state == "active"


@pytest.mark.parametrize("name", ["acme", "a:b", "a:b:c", "it's", "a[b]"])
def test_the_printed_switch_takes_one_op_from_a_plugin_whatever_its_name_is(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_by(RuleError(OP, name, "acme-rules 1.0", "it raised"), monkeypatch)
    settings = read_settings()
    assert is_disabled_for(settings, name, "acme-rules", OP)
    assert not is_disabled_for(settings, name, "acme-rules", "acme.other.default")
    assert not is_disabled_for(settings, "other", "other", OP)
    assert admit(Plugin(name, "acme-rules", "1.0", "acme_rules"), settings).state == "active"


def test_a_plugin_is_turned_off_by_its_module_also_where_that_has_a_colon() -> None:
    plugin = Plugin("acme", "acme-rules", "1.0", "acme_rules.plugin:RULES")
    off = read_settings(disabled=["acme_rules.plugin:RULES"])
    assert admit(plugin, off).state == "disabled"
