"""Formats the help: commands in groups, each command's help ending with its examples.

The help is plain text, because rich panels would double the startup time.
"""

from __future__ import annotations

import re
import textwrap
from inspect import getdoc
from typing import Any

from typer.core import TyperCommand

from clusterkit.config.options import NATIVE_OPTION
from clusterkit.resources import page
from clusterkit.trackers import BUILT_IN

LAST = "Other options"
"""The title above options that no group names: `--config` and `--help`."""

GROUPS = {
    "build": {
        "Image": "--from --bootstrap --torch --definition --arch",
        "Cluster": f"--cluster --partition {NATIVE_OPTION}",
        "Checks and output": "--print --force --json",
    },
    "init": {
        "Cluster": "--name --root --account --partition --container --image",
        "This machine": "--local --program --trainer",
        "Ready-made": "--example --examples",
        "Settings file": "--user --yes --force --dry-run --json",
        "Login": "--accept-new --ssh-config",
    },
    "plan": {
        "Run": f"--profile --cluster --time --nodes --until-done {NATIVE_OPTION} --total-steps",
        "Alternatives": "--times --gpus --ranks",
        "Recipe": "--set --unlock",
        "Your own environment": "--observation-dim --action-dim --action-choices",
        "Checks and output": "--send-large --json",
    },
    "tune": {
        "Run": "--profile --cluster",
        "Measurements": "--minutes --num-envs --workers --precision",
        "Recipe": "--set --unlock",
        "Checks and output": "--no-wait --dry-run --script --yes --json",
    },
    "submit": {
        "Run": "--profile --cluster --name --seed --total-steps --time --nodes --first --until-done "
        + NATIVE_OPTION,
        "Several runs": "--seeds --sweep --max-parallel --pack --in-one",
        "One after another": "--after --then --then-always",
        "Recipe": "--set --unlock",
        "Checks and output": "--dry-run --script --yes --send-large --verify-image --json",
    },
    "rerun": {
        "Changes": f"--cluster --seed --name --profile --time --total-steps --until-done {NATIVE_OPTION}",
        "Checks and output": "--dry-run --yes --json",
    },
    "sync-results": {
        "Download": "--cluster --checkpoints --watch --bandwidth-limit --json",
        "W&B": "--no-wandb --wandb-dry-run --wandb-entity --wandb-project",
        "Other trackers": " ".join(f"--{name}" for name in BUILT_IN),
    },
    "search": {
        "Search": "--space --metric --direction --trials --at-once --sampler --prune",
        "Run": f"--profile --cluster --total-steps --time {NATIVE_OPTION}",
        "Recipe": "--set --unlock",
        "Checks and output": "--best --yes --send-large --json",
    },
    "status": {
        "Which runs": "--all --state --cluster --group --name --profile --since",
        "Display": "--watch --expand --json",
    },
}
"""Command -> title -> the long names of its options."""


_TYPE = re.compile(r"^(  (?:-- )?[A-Za-z]\S*)( <\S+>)", re.MULTILINE)
"""An argument's metavar and Typer's name for its type."""

_WIDEST = 25
"""A longer option has a line of its own, above its description."""


_PAGE = re.compile(r"[a-z-]+\.md")


def part(docstring: str) -> tuple[str, str]:
    """Returns a command's docstring as its help and, from its examples on, the lines after its options.

    click does not rewrap lines that follow a backspace character.
    """
    about, _, rest = docstring.partition("\n\nExamples:\n")
    examples, _, see = rest.partition("\n\nSee also: ")
    names = see.split(", ")
    named = ", ".join(page(name) if _PAGE.fullmatch(name) else name for name in names)
    also = textwrap.wrap(f"See also: {named}", 76, break_on_hyphens=False, subsequent_indent="  ")
    lines = ["\b", "Examples:", examples, "", "\b", *also]
    return about, "\n".join(lines)


class Command(TyperCommand):
    """A command whose help ends with its examples and omits Python types."""

    def get_help(self, ctx: Any) -> str:
        """Returns the help as printed."""
        self.help, self.epilog = part(getdoc(self.callback) or "")
        return _TYPE.sub(lambda found: found[1] + " " * len(found[2]), super().get_help(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the arguments, then the options: in groups if there are many."""
        groups = GROUPS.get(self.name or "")
        if groups is None:
            super().format_options(ctx, formatter)
            return
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Arguments", *groups)}
        title_of = {name: title for title, names in groups.items() for name in names.split()}
        for one in self.get_params(ctx):
            title = "Arguments" if one.param_type_name == "argument" else title_of.get(long_name(one), LAST)
            if (record := one.get_help_record(ctx)) is not None:
                sections.setdefault(title, []).append(record)
        names = [name for records in sections.values() for name, _ in records]
        widest = max(len(name) for name in names if len(name) <= _WIDEST)
        for title, records in sections.items():
            if records:
                with formatter.section(title):  # padded to the same width, so that their second columns align
                    formatter.write_dl([(f"{name:{widest}}", text) for name, text in records], col_max=widest)


def long_name(option: Any) -> str:
    """Returns the first long name of an option; empty for an argument."""
    return next((name for name in option.opts if name.startswith("--")), "")
