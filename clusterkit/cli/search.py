"""`clusterkit search`."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from clusterkit.cli import options
from clusterkit.cli.submit import ProgramCommand, large_files
from clusterkit.cli.ui.console import note, out, print_document, printable
from clusterkit.cli.ui.lines import plain_table
from clusterkit.config.options import native_words
from clusterkit.errors import ConfigError, RunError
from clusterkit.project import chosen_profile, load_project, open_ledger, request_of
from clusterkit.units import plural

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings
    from clusterkit.search.definition import Definition
    from clusterkit.search.study import SearchTrial
    from clusterkit.submit.request import SubmitRequest


COMMAND = ProgramCommand


class Direction(StrEnum):
    """What is better."""

    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"


class Sampler(StrEnum):
    """How values are chosen."""

    TPE = "tpe"
    RANDOM = "random"


class Prune(StrEnum):
    """How trials are ended early."""

    ASHA = "asha"
    NONE = "none"


def search(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the search, old or new.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- ARGUMENT", help="Arguments of the program; {NAME} stands for a parameter."
        ),
    ] = None,
    space: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUES",
            help="A parameter and its values: LOW:HIGH, log:LOW:HIGH or VALUE,VALUE; or a TOML file with "
            "such pairs. Names mean the same as for `submit --sweep`.",
        ),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(metavar="METRIC", help="Metric to improve; success if left out.")
    ] = None,
    direction: Annotated[
        Direction | None,
        typer.Option(metavar="maximize|minimize", help="Which is better; a higher one if left out."),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Number of trials; 24 if left out.")
    ] = None,
    at_once: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Maximum number of trials under way; 4 if left out."),
    ] = None,
    sampler: Annotated[
        Sampler | None, typer.Option(metavar="tpe|random", help="How values are chosen; tpe if left out.")
    ] = None,
    prune: Annotated[
        Prune | None,
        typer.Option(metavar="asha|none", help="How bad trials are ended early; asha if left out."),
    ] = None,
    profile: options.Profile = None,
    cluster: options.Cluster = None,
    total_steps: options.TotalSteps = None,
    time: options.Time = None,
    overrides: options.Set = None,
    unlock: options.Unlock = None,
    native: options.Native = None,
    best: Annotated[
        bool, typer.Option("--best", help="Only show the trials so far, the best first; ask no cluster.")
    ] = False,
    yes: options.Yes = False,
    send_large: options.SendLarge = False,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Search for the best values of parameters.

    Each trial is a run. The command submits them, ends bad ones early, and stays until all have ended. After
    an interruption, `clusterkit search NAME` goes on.

    Examples:
      # 24 trials, 4 at a time
      clusterkit search lr --space lr=log:1e-5:1e-2 --unlock lr
      # your own program
      clusterkit search net --space w=64:512 --metric score -- --width {w}
      # go on after an interruption
      clusterkit search lr
      # the trials so far, the best first
      clusterkit search lr --best

    See also: clusterkit submit, clusterkit report, search.md
    """
    from clusterkit.search.definition import folder_of, held, read_definition
    from clusterkit.search.space import read_space
    from clusterkit.search.study import load_optuna

    load_optuna()  # before anything is made
    settings = load_project(config)
    folder = folder_of(settings.project_dir / ".clusterkit", name)
    if best:
        _show_known(folder, name, as_json=as_json)
        return
    given: dict[str, Any] = {
        "space": read_space(space) if space else None,
        "metric": metric,
        "direction": direction and direction.value,
        "trials": trials,
        "at_once": at_once,
        "sampler": sampler and sampler.value,
        "prune": prune and prune.value,
        "profile": profile,
        "cluster": cluster,
        "total_steps": total_steps,
        "time": time,
        "overrides": _tuple(overrides),
        "unlock": _tuple(unlock),
        "native": native_words(native) or None,
        "arguments": _tuple(arguments),
    }
    with open_ledger(settings) as ledger:
        from clusterkit.cli.ui.console import note, transfer_bar
        from clusterkit.commands.search import SearchTools
        from clusterkit.commands.search import search as command
        from clusterkit.folders import make_private
        from clusterkit.runs.secret_values import find_secrets
        from clusterkit.search.plan import check_search, sample_plan
        from clusterkit.submit.pipeline import take

        known = read_definition(folder)
        definition = known.changed(given) if known else _new(settings, name, given)
        asked, request = _request(settings, definition, send_large=send_large, yes=yes)
        check_search(asked, ledger, definition, request)
        values = find_secrets(asked)
        values.refuse_shown(search=definition)
        plan = sample_plan(asked, definition, request)
        taken = None if known else take(asked, plan, ledger, values, transfer_bar)
        make_private(folder)
        with held(folder, name):
            known = read_definition(folder)  # another command may have begun it meanwhile
            definition = known.changed(given) if known else definition
            definition.write(folder)
            note(f"{'goes on with' if known else 'begins'} search {name}: group {definition.group}")
            tools = SearchTools(asked, ledger, request, folder, transfer_bar, note, values, taken)
            try:
                found = command(definition, tools)
            except KeyboardInterrupt:
                note(f"the runs go on, and so does `clusterkit search {name}`")
                raise
    show_trials(definition, found, as_json=as_json)
    if not any(one.state == "complete" for one in found):
        raise RunError(
            f"no trial of search {name} has completed", hint=f"`clusterkit why {definition.group}` says why"
        )


def show_trials(definition: Definition, trials: Sequence[SearchTrial], *, as_json: bool) -> None:
    """Prints all trials, the best first."""
    from clusterkit.search.space import short
    from clusterkit.search.study import best_of, ranked

    found = ranked(trials, definition.direction)
    best = best_of(trials, definition.direction)
    if as_json:
        print_document(
            {
                "schema": 1,
                "search": definition.name,
                "group": definition.group,
                "metric": definition.metric,
                "direction": definition.direction,
                "best": best and best.number,
                "trials": [_object(one) for one in found],
            }
        )
        return
    why = ("why",) if any(one.why for one in found) else ()
    table = plain_table(
        "trial", definition.metric, "step", "state", *definition.space, *why, right=("trial", "step")
    )
    for one in found:
        value = "" if one.value is None else f"{one.value:.4g}"
        values = (short(one.values.get(name, "")) for name in definition.space)
        style = "bold" if one is best else "dim" if one.state in ("pruned", "failed") else ""
        step = "" if one.step is None else f"{one.step:,}"
        reason = (printable(one.why or ""),) if why else ()
        table.add_row(*map(Text, (str(one.number), value, step, one.state, *values, *reason)), style=style)
    out.print(table)
    states = [one.state for one in trials]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    note(f"{plural(len(trials), 'trial')}: {counts}" if trials else "no trials yet")
    if best is not None:
        note(f"best: {best.run_id}; `clusterkit rerun {best.run_id} --seed N` runs it with another seed")


def _object(one: SearchTrial) -> dict[str, Any]:
    found = asdict(one)
    del found["stopping"]
    return found


def _show_known(folder: Path, name: str, *, as_json: bool) -> None:
    from clusterkit.search.definition import read_definition
    from clusterkit.search.study import read_trials

    definition = read_definition(folder)
    if definition is None:
        others = sorted(one.name for one in folder.parent.glob("*"))
        raise RunError(
            f"no search {name!r} in this project",
            hint=f"searches: {', '.join(others)}"
            if others
            else "`clusterkit search NAME --space ...` begins one",
        )
    show_trials(definition, read_trials(folder, definition), as_json=as_json)


def _new(settings: Settings, name: str, given: Mapping[str, Any]) -> Definition:
    from clusterkit.results.metrics import SUCCESS
    from clusterkit.runs.spec import run_id, timestamp
    from clusterkit.search.definition import TRIALS, Definition

    if not given["space"]:
        raise ConfigError(
            f"no search {name!r} in this project, and a new one needs --space",
            hint="e.g. --space lr=log:1e-5:1e-2 --space batch=128,256",
        )
    now = datetime.now(UTC)
    usual = {
        "metric": SUCCESS,
        "direction": Direction.MAXIMIZE.value,
        "sampler": Sampler.TPE.value,
        "prune": Prune.ASHA.value,
        "profile": chosen_profile(settings, given["profile"], given["arguments"] or ()),
        "cluster": settings.cluster(given["cluster"]).name,
    }
    return Definition(
        name=name,
        group=run_id(name, now, secrets.token_hex(2)),
        created=timestamp(now),
        size=given["trials"] or TRIALS,
        **{**usual, **{field: value for field, value in given.items() if value is not None}},
    )


def _request(
    settings: Settings, definition: Definition, *, send_large: bool, yes: bool
) -> tuple[Settings, SubmitRequest]:
    """Returns the request for a trial without its values, and the settings with the search's changes."""
    from clusterkit.runs.program import assignments

    settings, request = request_of(
        settings,
        profile=definition.profile,
        cluster=definition.cluster,
        arguments=definition.arguments,
        time=definition.time,
        total_steps=definition.total_steps,
    )
    request = replace(
        request,
        name=definition.name,
        overrides=assignments(definition.overrides, "--set"),
        unlock=definition.unlock,
        native=definition.native,
        allow_large=large_files(send_large),
        allow_unread=yes,
    )
    return settings, request


def _tuple(texts: list[str] | None) -> tuple[str, ...] | None:
    return tuple(texts) if texts else None
