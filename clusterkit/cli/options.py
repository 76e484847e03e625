"""Options and arguments that several commands share; a command names them as `options.Cluster`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clusterkit.config.options import NATIVE, NATIVE_OPTION

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings file instead of the clusterkit.toml in or above this folder.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option("--cluster", "-c", metavar="NAME", help="Cluster to use instead of the default one."),
]
OnlyCluster = Annotated[
    str | None, typer.Option("--cluster", "-c", metavar="NAME", help="Only runs on this cluster.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for scripts.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; show what would be done.")]
AcceptNew = Annotated[
    bool,
    typer.Option("--accept-new", help="Accept the key of an unknown host; a changed key is always refused."),
]
Runs = Annotated[
    list[str] | None,
    typer.Argument(metavar="RUN", help="Run ids, groups, the start of an id, job ids, or `last`."),
]
Run = Annotated[str, typer.Argument(metavar="RUN", help="A run id, the start of one, a job id, or `last`.")]
RunOrGroup = Annotated[
    str, typer.Argument(metavar="RUN", help="A run id, a group, the start of an id, a job id, or `last`.")
]
OtherTime = Annotated[
    str | None, typer.Option("--time", metavar="TIME", help="New time limit, e.g. 90m, 4h, 1d12h.")
]
OtherProfile = Annotated[
    str | None,
    typer.Option("--profile", "-p", metavar="PROFILE", help="Request the resources of this profile."),
]
UntilDoneAsBefore = Annotated[
    bool | None,
    typer.Option(
        "--until-done/--not-until-done",
        help="Continue past the time limit, in as many attempts as needed; as before if left out.",
    ),
]
Native = Annotated[
    list[str] | None,
    typer.Option(
        NATIVE_OPTION,
        metavar="OPTION",
        help=f"An {NATIVE} option, which overrides all other settings, e.g. qos=long.",
    ),
]
SendLarge = Annotated[
    bool, typer.Option("--send-large", help="Send files larger than `max_file_size` without asking.")
]
Script = Annotated[bool, typer.Option("--script", help="Print the job script only; change nothing.")]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile", "-p", metavar="PROFILE", help="Profile of the run; `clusterkit profiles` lists them."
    ),
]
Name = Annotated[
    str | None, typer.Option(metavar="NAME", help="Name of the run; the profile's name if left out.")
]
Seed = Annotated[int | None, typer.Option(metavar="N", min=0, help="Seed of the run.")]
Seeds = Annotated[str | None, typer.Option(metavar="SEEDS", help="One run per seed: 42..51 or 1,2,5.")]
TotalSteps = Annotated[int | None, typer.Option(metavar="N", min=1, help="Environment steps over all tasks.")]
Time = Annotated[str | None, typer.Option(metavar="TIME", help="Time limit, e.g. 90m, 4h, 1d12h.")]
Nodes = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Number of nodes, instead of the profile's.")
]
UntilDone = Annotated[
    bool | None,
    typer.Option(
        "--until-done/--not-until-done", help="Continue past the time limit, in as many attempts as needed."
    ),
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change a recipe value, e.g. lr=3e-4.")
]
Unlock = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Allow a locked recipe value to change; marks the run as modified."),
]
Metric = Annotated[
    str | None,
    typer.Option(metavar="METRIC", help="The metric, by its logged name; if left out, the main ones."),
]
