"""What each command is for, examples of it, and what else to look at.

An example works as it stands, given the cluster, profile or run that it names; a test parses every one.
"""

from __future__ import annotations

from typing import NamedTuple

START, RUN, WATCH, RESULTS, HOUSE = "Start", "Run", "Watch", "Results", "Housekeeping"
PANELS = (START, RUN, WATCH, RESULTS, HOUSE)


class Guide(NamedTuple):
    """What is said about a command beside its own help."""

    panel: str
    examples: tuple[tuple[str, str], ...]
    """Arguments, and what they do; empty where it is plain."""
    see: tuple[str, ...]
    """Commands, or pages of docs/."""


GUIDES = {
    "init": Guide(
        START,
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
        (
            ("", "from here to inside a container on a node"),
            ("--no-job --profile a40-2m", "all but the node"),
            ("--fix", "and mend what is safe to mend"),
        ),
        ("init", "why", "doctor.md"),
    ),
    "login": Guide(
        START,
        (
            ("", "the default cluster; asks what the server asks"),
            ("uni --keep 30m", "until half an hour has passed without a command"),
            ("uni --accept-new", "a host that was never logged in to"),
        ),
        ("logout", "ssh.md"),
    ),
    "build": Guide(
        START,
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
        (
            ("", "image and code to the default cluster"),
            ("--plan", "what would be sent, and how long it takes"),
            ("--cluster uni --image mine.sif", "another cluster, another image"),
        ),
        ("submit", "gc", "images.md"),
    ),
    "config": Guide(
        START,
        (
            ("", "what holds"),
            ("--show-origin", "and where each value was written"),
            ("profiles.a40-2m", "one part of it"),
        ),
        ("profiles", "configuration.md"),
    ),
    "profiles": Guide(
        START,
        (("", "a line for each"), ("--config other/clusterkit.toml", "of another project")),
        ("config", "submit", "profiles.md"),
    ),
    "demo": Guide(
        START,
        (("", "four Meta-World tasks, a few minutes"), ("--profile local-demo", "the same, by name")),
        ("report", "index.md"),
    ),
    "completion": Guide(
        START,
        (("--install", "for your shell"), ("zsh", "print the script for zsh")),
        ("commands.md",),
    ),
    "logout": Guide(
        START,
        (("", "every kept login"), ("uni", "only that of this cluster")),
        ("login", "ssh.md"),
    ),
    "plan": Guide(
        RUN,
        (
            ("--profile a40-2m", "memory, time, start; changes nothing"),
            ("--profile a40-2m --times 1h,4h,1d", "which request starts first"),
            ("--compare", "the profile on every GPU"),
        ),
        ("submit", "plan.md"),
    ),
    "tune": Guide(
        RUN,
        (
            ("--profile a40-2m --dry-run", "what would be submitted"),
            ("--profile a40-2m --minutes 10", "measure, then ask to write the profile"),
        ),
        ("plan", "report", "tune.md"),
    ),
    "submit": Guide(
        RUN,
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
        (
            ("last", "from its newest checkpoint"),
            ("last --time 12h", "with more time"),
            ("last --cluster other", "move it to another cluster"),
        ),
        ("rerun", "why", "until-done.md"),
    ),
    "rerun": Guide(
        RUN,
        (
            ("last --seed 7", "the same code and image, another seed"),
            ("paper.tar.zst --cluster uni", "out of an export"),
        ),
        ("export", "resume", "sharing.md"),
    ),
    "cancel": Guide(
        RUN,
        (
            ("last", "asks first if it runs"),
            ("--group mt10-20260102-030405-k3f9 --yes", "all runs of a sweep"),
            ("--all --cluster uni", "all of this project there"),
        ),
        ("resume", "status"),
    ),
    "drill": Guide(
        RUN,
        (
            ("--profile a40-2m", "two minutes on a node of that profile"),
            ("--profile a40-2m --cluster uni", "on this cluster"),
        ),
        ("submit", "until-done.md"),
    ),
    "status": Guide(
        WATCH,
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
        (("last", ""), ("mt10-20260102 --json", "a run by the beginning of its id, for scripts")),
        ("status", "logs", "troubleshooting.md"),
    ),
    "logs": Guide(
        WATCH,
        (
            ("last --follow", "through requeues, until it ends"),
            ("last --tail 200", ""),
            ("last --attempt 1 --stderr", "what one attempt wrote to standard error"),
        ),
        ("why", "watch"),
    ),
    "watch": Guide(
        WATCH, (("last", ""), ("last --once", "print the curves and end")), ("report", "logs", "status")
    ),
    "shell": Guide(
        WATCH, (("last", ""), ("last -- nvidia-smi", "one command, its exit status")), ("top", "logs")
    ),
    "top": Guide(
        WATCH,
        (("last", ""), ("last --once", ""), ("last --json", "an object a line")),
        ("shell", "report.md"),
    ),
    "sync-results": Guide(
        RESULTS,
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
        (
            ("last", "curves and one HTML page"),
            ("mt10-20260102-030405-k3f9 --out paper", "all seeds of a sweep"),
            ("last --advice", "what to ask for next time"),
        ),
        ("watch", "diff", "report.md"),
    ),
    "evaluate": Guide(
        RESULTS,
        (
            ("last --episodes 50", ""),
            ("last --checkpoint best --json", "for scripts"),
        ),
        ("play", "sharing.md"),
    ),
    "play": Guide(
        RESULTS,
        (
            ("last", "a video for each task"),
            ("last --task reach --task drawer-close --out films", ""),
        ),
        ("evaluate", "sharing.md"),
    ),
    "diff": Guide(
        RESULTS,
        (("mt10-20260102 last", "two runs by name"), ("results/mine last --json", "a folder and a run")),
        ("report", "sharing.md"),
    ),
    "export": Guide(
        RESULTS,
        (("last", ""), ("last --with-image -o paper.tar.zst", "with the image itself")),
        ("rerun", "sharing.md"),
    ),
    "clean": Guide(
        HOUSE,
        (("--dry-run", "what is here too, and would go"), ("--older 30d --yes", "of old runs, no question")),
        ("sync-results", "gc"),
    ),
    "images": Guide(
        HOUSE, (("", ""), ("--cluster uni --json", "for scripts")), ("gc", "deploy", "images.md")
    ),
    "gc": Guide(
        HOUSE,
        (("--dry-run", "what no run uses"), ("--ended", "also what only ended runs used; asks first")),
        ("images", "clean", "images.md"),
    ),
}
