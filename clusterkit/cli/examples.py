"""The purpose, examples and related commands of each command.

Each example works as written if the cluster, profile or run it names exists; a test parses all of them.
"""

from __future__ import annotations

from typing import NamedTuple

START, RUN, WATCH, RESULTS, HOUSE = "Start", "Run", "Watch", "Results", "Housekeeping"
PANELS = (START, RUN, WATCH, RESULTS, HOUSE)


class Guide(NamedTuple):
    """What the help says about a command besides its docstring and options."""

    panel: str
    short: str
    """The first sentence of the command's help, so that the list of commands loads none of them."""
    examples: tuple[tuple[str, str], ...]
    """Pairs of arguments and what they do; the description is empty if it is obvious."""
    see: tuple[str, ...]
    """Related commands, or pages of docs/."""


GUIDES = {
    "init": Guide(
        START,
        "Look at a cluster over one login and write its settings.",
        (
            ("", "asks for a host, of those in ~/.ssh/config"),
            ("uni --yes", "take what is suggested"),
            ("uni --diff", "what would change today; writes nothing"),
            ("--local", "this machine alone, and your program; no login"),
        ),
        ("doctor", "config", "first-cluster.md"),
    ),
    "doctor": Guide(
        START,
        "Check everything between here and a container on a node.",
        (
            ("", "from here to inside a container on a node"),
            ("--no-job --profile a40-2m", "all but the node"),
            ("--fix", "and mend what is safe to mend"),
        ),
        ("init", "why", "doctor.md"),
    ),
    "login": Guide(
        START,
        "Log in once, for all later commands.",
        (
            ("", "the default cluster; asks what the server asks"),
            ("uni --keep 30m", "until half an hour has passed without a command"),
            ("uni --accept-new", "a host that was never logged in to"),
        ),
        ("logout", "ssh.md"),
    ),
    "build": Guide(
        START,
        "Build the trainer image, or convert an image of Docker's.",
        (
            ("", "clusterkit-trainer.sif, with this machine's Apptainer"),
            ("--on uni", "there, as a job: no Apptainer is needed here"),
            ("mine.sif --from docker-daemon:mine:latest", "convert a Docker image"),
            ("mine.sif --definition mine.def", "a definition of your own"),
        ),
        ("deploy", "images", "images.md"),
    ),
    "deploy": Guide(
        START,
        "Send the image and the code to a cluster.",
        (
            ("", "image and code to the default cluster"),
            ("--plan", "what would be sent, and how long it takes"),
            ("--cluster uni --image mine.sif", "another cluster, another image"),
        ),
        ("submit", "gc", "images.md"),
    ),
    "config": Guide(
        START,
        "Print the resolved settings, as TOML.",
        (
            ("", "what holds"),
            ("--show-origin", "and where each value was written"),
            ("profiles.a40-2m", "one part of it"),
        ),
        ("profiles", "configuration.md"),
    ),
    "profiles": Guide(
        START,
        "List the profiles; * marks the default one.",
        (("", "a line for each"), ("--config other/clusterkit.toml", "of another project")),
        ("config", "submit", "profiles.md"),
    ),
    "demo": Guide(
        START,
        "Train a small run here, start to finish.",
        (("", "four Meta-World tasks, a few minutes"), ("--profile local-demo", "the same, by name")),
        ("report", "index.md"),
    ),
    "completion": Guide(
        START,
        "Print or install completion for your shell.",
        (("--install", "for your shell"), ("zsh", "print the script for zsh")),
        ("commands.md",),
    ),
    "logout": Guide(
        START,
        "End a kept login and the commands that use it.",
        (("", "every kept login"), ("uni", "only that of this cluster")),
        ("login", "ssh.md"),
    ),
    "plan": Guide(
        RUN,
        "Say what a run would take and when it would start.",
        (
            ("--profile a40-2m", "memory, time, start; changes nothing"),
            ("--profile a40-2m --times 1h,4h,1d", "which request starts first"),
            ("--compare", "the profile on every GPU"),
        ),
        ("submit", "plan.md"),
    ),
    "tune": Guide(
        RUN,
        "Measure on the real node which settings are fastest.",
        (
            ("--profile a40-2m --dry-run", "what would be submitted"),
            ("--profile a40-2m --minutes 10", "measure, then ask to write the profile"),
        ),
        ("plan", "report", "tune.md"),
    ),
    "submit": Guide(
        RUN,
        "Submit a run, or a group of runs; print its id.",
        (
            ("--profile a40-2m --dry-run", "look first; nothing is sent"),
            ("--profile a40-2m --seed 1 --time 4h --until-done", "past the limit"),
            ("--profile a40-2m --seeds 42..51", "ten runs, one job array"),
            ("--profile check -- --json", "what follows -- is the program's"),
        ),
        ("status", "resume", "sweeps.md", "until-done.md"),
    ),
    "resume": Guide(
        RUN,
        "Continue a run that ended too early.",
        (
            ("last", "from its newest checkpoint"),
            ("last --time 12h", "with more time"),
            ("last --cluster other", "move it to another cluster"),
        ),
        ("rerun", "why", "until-done.md"),
    ),
    "rerun": Guide(
        RUN,
        "Submit a run once more, as a new one; print its run id.",
        (
            ("last --seed 7", "the same code and image, another seed"),
            ("paper.tar.zst --cluster uni", "out of an export"),
        ),
        ("export", "resume", "sharing.md"),
    ),
    "cancel": Guide(
        RUN,
        "End runs; what they have written stays.",
        (
            ("last", "asks first if it runs"),
            ("--group mt10-20260102-030405-k3f9 --yes", "all runs of a sweep"),
            ("--all --cluster uni", "all of this project there"),
        ),
        ("resume", "status"),
    ),
    "drill": Guide(
        RUN,
        "Rehearse how a run goes on past its time limit.",
        (
            ("--profile a40-2m", "two minutes on a node of that profile"),
            ("--profile a40-2m --cluster uni", "on this cluster"),
        ),
        ("submit", "until-done.md"),
    ),
    "status": Guide(
        WATCH,
        "Show where runs stand.",
        (
            ("", "what may still run, and what ended lately"),
            ("--watch", "until all have ended"),
            ("--state failed --since 2d", "only these"),
            ("last --json", "for scripts"),
        ),
        ("why", "logs", "status.md"),
    ),
    "why": Guide(
        WATCH,
        "Say why a run waits, failed or is silent.",
        (("last", ""), ("mt10-20260102 --json", "a run by the beginning of its id, for scripts")),
        ("status", "logs", "troubleshooting.md"),
    ),
    "logs": Guide(
        WATCH,
        "Print a run's log, or follow it.",
        (
            ("last --follow", "through requeues, until it ends"),
            ("last --tail 200", ""),
            ("last --attempt 1 --stderr", "what one attempt wrote to standard error"),
        ),
        ("why", "watch"),
    ),
    "watch": Guide(
        WATCH,
        "Draw the curves of a run or group in the terminal, live.",
        (("last", ""), ("last --once", "print the curves and end")),
        ("report", "logs", "status"),
    ),
    "shell": Guide(
        WATCH,
        "Open a shell beside a running program.",
        (("last", ""), ("last -- nvidia-smi", "one command, its exit status")),
        ("top", "logs"),
    ),
    "top": Guide(
        WATCH,
        "Show live what a running run, or a group, uses.",
        (("last", ""), ("last --once", ""), ("last --json", "an object a line")),
        ("shell", "report.md"),
    ),
    "sync-results": Guide(
        RESULTS,
        "Bring home what is new, then upload to W&B.",
        (
            ("", "what is new of all runs, then W&B"),
            ("last --watch", "while it runs"),
            ("--checkpoints all --bandwidth-limit 10M", "with replay data, at ease"),
            ("--wandb-dry-run", "what would be uploaded"),
        ),
        ("report", "clean", "wandb.md"),
    ),
    "report": Guide(
        RESULTS,
        "Draw learning curves and write one page about runs.",
        (
            ("last", "curves and one HTML page"),
            ("mt10-20260102-030405-k3f9 --out paper", "all seeds of a sweep"),
            ("last --advice", "what to ask for next time"),
        ),
        ("watch", "diff", "report.md"),
    ),
    "evaluate": Guide(
        RESULTS,
        "Measure a synced model's success rates, or returns, here.",
        (
            ("last --episodes 50", ""),
            ("last --checkpoint best --json", "for scripts"),
        ),
        ("play", "sharing.md"),
    ),
    "play": Guide(
        RESULTS,
        "Film a synced model here, task by task.",
        (
            ("last", "a video for each task"),
            ("last --task reach --task drawer-close --out films", ""),
        ),
        ("evaluate", "sharing.md"),
    ),
    "diff": Guide(
        RESULTS,
        "Show what differs between two runs.",
        (("mt10-20260102 last", "two runs by name"), ("results/mine last --json", "a folder and a run")),
        ("report", "sharing.md"),
    ),
    "export": Guide(
        RESULTS,
        "Write all that is needed to repeat a run into one archive.",
        (("last", ""), ("last --with-image -o paper.tar.zst", "with the image itself")),
        ("rerun", "sharing.md"),
    ),
    "clean": Guide(
        HOUSE,
        "Delete from the cluster what has already come home.",
        (("--dry-run", "what is here too, and would go"), ("--older 30d --yes", "of old runs, no question")),
        ("sync-results", "gc"),
    ),
    "images": Guide(
        HOUSE,
        "List the images of a cluster.",
        (("", ""), ("--cluster uni --json", "for scripts")),
        ("gc", "deploy", "images.md"),
    ),
    "gc": Guide(
        HOUSE,
        "Remove images and snapshots that no run uses.",
        (("--dry-run", "what no run uses"), ("--ended", "also what only ended runs used; asks first")),
        ("images", "clean", "images.md"),
    ),
}
