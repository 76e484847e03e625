"""Drafts settings for this machine, each key with its reason. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clusterkit.config.lines import Entry, Table
from clusterkit.hardware import Hardware, recognise

PROFILE = "here"
DEMO = "local-demo"
"""The shipped profile for the bundled trainer, which the user's own program does not need."""
_ABOUT = "Runs go to this machine: `clusterkit submit`. `clusterkit init HOST` adds a cluster."


@dataclass(frozen=True)
class LocalDraft:
    """The tables for this machine."""

    project: Table
    tables: tuple[Table, ...]


def draft(
    has: Hardware, program: Sequence[str] | None, python: str | None, *, elsewhere: bool = False
) -> LocalDraft:
    """The settings for running a project on this machine.

    Args:
        has: the machine's hardware.
        program: argv of the user's own program; None trains with the bundled trainer.
        python: the interpreter with the program's imports, if not clusterkit's own.
        elsewhere: whether the user's own settings send runs to another machine, which stays so.
    """
    head: tuple[str, ...] = () if elsewhere else (_ABOUT,)
    project = [] if elsewhere else [Entry("default_cluster", "local", "this machine; no login")]
    cluster = []
    if python is not None:
        cluster.append(Entry("python", python, "has what the program imports"))
    tables = [Table(("clusters", "local"), tuple(cluster))] if cluster else []
    if program is None:
        head += ('Your own program instead of the bundled trainer: program = ["python", "train.py"]',)
        project.append(
            Entry("default_profile", DEMO, "shipped: four tasks in minutes; `clusterkit profiles`")
        )
        return LocalDraft(Table(("project",), tuple(project), head), tuple(tables))
    project.append(Entry("default_profile", PROFILE, "what a run requests, below"))
    project.append(Entry("program", list(program), "`submit -- --lr 0.3` adds arguments"))
    cpus = has.cpus or 1
    entries = [
        Entry("cpus", cpus, "all of this machine's" if has.cpus else ""),
        Entry("threads", cpus, "OMP_NUM_THREADS of each run"),
        Entry("time", "4h", "ends the run then; `resume` continues from a checkpoint"),
    ]
    if has.gpus:
        known = recognise(has.gpu_name)
        entries.insert(0, Entry("gpu", known[0] if known else "gpu", has.gpu_name))
    about = f"One run of {' '.join(program)} on this machine ({has.words})."
    if "{seed}" in program:
        told = "`submit --seed 7` fills in {seed}; `submit --seeds 1..3` runs three seeds."
    else:
        told = 'If it takes a seed, add "--seed", "{seed}" to `program`; `submit --seeds 1..3` runs three.'
    tables.append(Table(("profiles", PROFILE), tuple(entries), (about, told)))
    return LocalDraft(Table(("project",), tuple(project), head), tuple(tables))
