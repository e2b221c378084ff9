"""Write docs/cli.md, docs/settings.md and schemas: python -m tests.docs.write_pages.

From the parsers and the model themselves, and not from what argparse prints, which differs between
versions of Python. The tests hold the pages against what is made anew.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dtensor_registry.autoload import SWITCH
from dtensor_registry.cli.command import Command
from dtensor_registry.cli.command_line import NAME, build_parser
from dtensor_registry.cli.commands import find_commands
from dtensor_registry.cli.ops import OpsReport
from dtensor_registry.cli.plugins import PluginsReport
from dtensor_registry.settings import PREFIX, SWITCHES, FallbackSettings, LinkSettings, Settings
from dtensor_registry_kit.commands.derive import DeriveReport
from dtensor_registry_kit.commands.verify import VerifyReport

DOCS = Path(__file__).resolve().parents[2] / "docs"

SCHEMAS: dict[str, type[BaseModel]] = {
    "derive": DeriveReport,
    "ops": OpsReport,
    "plugins": PluginsReport,
    "verify": VerifyReport,
}
"""Reports whose schemas are written here; those of other commands by tests of their own."""

SCHEMA_FILES = {"explain": "explanation.schema.json"}
"""Where it is not called as the command is."""

MADE = "<!-- Made by `python -m tests.docs.write_pages`; a test compares. -->"

CLI_HEAD = f"""\
# Command line

{MADE}

What `pip install dtensor-registry` puts on the path; `python -m dtensor_registry.cli` is the same.
`derive`, `new` and `verify` come with `pip install dtensor-registry-kit`; any distribution can
[add a command](write-a-plugin.md#add-a-command).
No command needs a GPU or a process group. Settings come from the environment and from files of the
working directory, as for `install()`; see [settings](settings.md).

Exit codes: 0 fine; 1 a problem was found (a broken plugin, a wrong rule, an op without one); 2 the
command line or a setting is wrong. Tables and JSON go to stdout, errors and warnings to stderr.
"""

SETTINGS_HEAD = f"""\
# Settings

{MADE}

Every setting is optional. Each is taken from the first of these that has it:

1. arguments: `dtensor_registry.install(order=["acme", "*", "torch"])`;
2. the environment: `{PREFIX}ORDER='["acme", "*", "torch"]'`, lists and tables as JSON, a field of a
   table after two underscores: `{PREFIX}FALLBACK__MODE=warn`, `{PREFIX}LINKS__TP__BANDWIDTH=300`
   (which is mesh dim `tp`: a dim whose name has capitals is given as JSON);
3. `dtensor_registry.toml` in the working directory;
4. `[tool.dtensor_registry]` in `pyproject.toml` in the working directory.

An unknown name is an error that names the nearest one. Every rank of a job must have the same
settings; [trust](trust.md) says how that is checked. `dtensor-registry doctor` says which settings
are other than by default, and what is wrong with them.
"""

TYPES = {
    "<class 'bool'>": "true or false",
    "<class 'str'>": "text",
    "float | None": "number",
    "int | None": "whole number",
    "<class 'int'>": "whole number",
    "typing.Optional[str]": "text",
    "tuple[str, ...]": "list of texts",
    "tuple[str, ...] | None": "list of texts",
    "dict[str, str]": "table: text to text",
    "dict[str, tuple[str, ...]]": "table: text to list of texts",
}
"""How types are told; one that is not here is to be added."""

SWITCHES_TOLD = {
    "AUTOLOAD": "`1`: install as soon as DTensor is imported;"
    " see [how to](how-to.md#install-without-changing-the-program)",
    "LONG": "set: the conformance kit checks every op, also where `every` says that some will do",
}


def cli_page() -> str:
    """Make docs/cli.md."""
    found = find_commands()
    parts = [CLI_HEAD, _table("argument", _arguments(build_parser(found)))]
    for command in found.usable:
        parser = argparse.ArgumentParser(add_help=False)
        parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
        command.configure(parser)
        arguments = list(_arguments(parser))
        if command.takes_rest:
            arguments.append(("`-- ...`", "what the program itself is given"))
        parts += [f"## `{_usage(command, parser)}`\n", _prose(command.details)]
        parts += [f"```console\n$ {command.example}\n```\n", _table("argument", arguments)]
        parts.append(
            f"`--json` prints what [{schema_of(command)}]({schema_of(command)}) describes.\n"
        )
    return "\n".join(parts)


def schema_of(command: Command) -> str:
    """Name the file that says what a command prints with `--json`."""
    return SCHEMA_FILES.get(command.name, f"{command.name}.schema.json")


def settings_page() -> str:
    """Make docs/settings.md."""
    parts = [SETTINGS_HEAD]
    nested = {"fallback": FallbackSettings, "links": LinkSettings}
    plain = {n: f for n, f in Settings.model_fields.items() if n not in nested}
    parts.append(_table("setting", _fields(plain, ""), "", "default", ""))
    parts.append(
        "## `fallback`\n\nWhat happens to an op that has neither rule nor decomposition.\n"
    )
    parts.append(
        _table("setting", _fields(FallbackSettings.model_fields, "fallback."), "", "default", "")
    )
    parts.append(f"## `links`\n\n{Settings.model_fields['links'].description}\n")
    parts.append(
        _table("setting", _fields(LinkSettings.model_fields, "links.<dim>."), "", "default", "")
    )
    parts.append("```toml\n[links.tp]\nbandwidth = 300.0\nlatency = 1.0\n```\n")
    parts.append(
        "## Variables that are no settings\n\nRead from the environment alone, before there are"
        " settings.\n"
    )
    switches = ((f"`{PREFIX}{name}`", SWITCHES_TOLD[name]) for name in SWITCHES)
    parts.append(_table("variable", switches))
    return "\n".join(parts)


def schemas() -> Iterator[tuple[str, str]]:
    """Make the schemas: file -> text."""
    for name, report in SCHEMAS.items():
        # Not as they are written, in full: fields that nobody set are left out.
        schema = report.model_json_schema(mode="validation")
        yield f"{name}.schema.json", json.dumps(schema, indent=2) + "\n"


def pages() -> dict[str, str]:
    """Make all files of docs/ that are made here."""
    return {"cli.md": cli_page(), "settings.md": settings_page(), **dict(schemas())}


def _arguments(parser: argparse.ArgumentParser) -> Iterator[tuple[str, ...]]:
    """Yield the names and the help of each argument, but for `--help`."""
    for action in parser._actions:
        if isinstance(action, (argparse._HelpAction, argparse._SubParsersAction)):
            continue
        metavar = str(action.metavar or action.dest)
        takes = f" {metavar}" if action.nargs != 0 else ""
        names = [f"`{option}{takes}`" for option in action.option_strings] or [f"`{metavar}`"]
        told = (action.help or "").replace("%%", "%")
        if action.default == argparse.SUPPRESS and "--version" in action.option_strings:
            told = "print the version and exit"
        yield ", ".join(names), _prose_cell(told)


def _usage(command: Command, parser: argparse.ArgumentParser) -> str:
    words = [NAME, command.name]
    for action in parser._actions:
        if not action.option_strings:
            name = str(action.metavar or action.dest)
            forms = {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} [{name} ...]"}
            words.append(forms.get(str(action.nargs), name))
    return " ".join(words)


def _fields(fields: dict[str, FieldInfo], above: str) -> Iterator[tuple[str, ...]]:
    for name, field in fields.items():
        default = field.get_default(call_default_factory=True)
        shown = "unset" if default is None else f"`{json.dumps(default)}`"
        yield (
            f"`{above}{name}`",
            _type(field.annotation),
            shown,
            _prose_cell(field.description or ""),
        )


def _type(annotation: Any) -> str:
    text = str(annotation)
    if text.startswith("typing.Literal"):
        return " or ".join(f"`{value}`" for value in annotation.__args__)
    # A text that is checked is a text.
    return TYPES[re.sub(r"typing\.Annotated\[(\w+),[^\]]*\]", r"\1", text)]


def _table(heading: str, rows: Any, *headings: str) -> str:
    columns = [heading, *(headings or ("",))]
    lines = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _prose(text: str) -> str:
    """Give the lines of a help text as they are, with what Markdown would obey made plain."""
    return f"{_escape(text)}\n"


def _prose_cell(text: str) -> str:
    return _escape(text).replace("|", "\\|").replace("\n", " ")


def _escape(text: str) -> str:
    """Keep stars and underscores outside of code from being taken for emphasis."""
    parts = text.split("`")
    parts[::2] = [part.replace("*", "\\*").replace("<", "\\<") for part in parts[::2]]
    return "`".join(parts)


if __name__ == "__main__":
    assert f"{PREFIX}AUTOLOAD" == SWITCH
    for file, text in pages().items():
        (DOCS / file).write_text(text, "utf-8")
