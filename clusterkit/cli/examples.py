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
    file: str = ""
    """The module of this package that holds it; empty if it is named like the command."""


GUIDES = {
    "init": Guide(
        START,
        "Inspect a cluster over one login and write its settings.",
        (
            ("", "ask for a host from ~/.ssh/config"),
            ("uni --yes", "accept every suggestion"),
            ("uni --dry-run", "show what would change, write nothing"),
            ("--local", "this machine only: your own program, no login"),
        ),
        ("doctor", "config", "first-cluster.md"),
    ),
    "doctor": Guide(
        START,
        "Check every step from here to a container on a node.",
        (
            ("", "all checks, up to a container on a compute node"),
            ("--no-job --profile a40-2m", "everything except the compute node"),
            ("--fix", "also repair what is safe to repair"),
        ),
        ("init", "why", "doctor.md"),
    ),
    "login": Guide(
        START,
        "Log in once for all later commands.",
        (
            ("", "log in to the default cluster"),
            ("uni --keep 30m", "log out after 30 minutes without a command"),
            ("uni --accept-new", "a host that you never logged in to"),
        ),
        ("logout", "ssh.md"),
    ),
    "build": Guide(
        START,
        "Build the trainer image, or convert a Docker image.",
        (
            ("", "clusterkit-trainer.sif, with this machine's Apptainer"),
            ("--cluster uni", "as a job on the cluster: needs no Apptainer here"),
            ("mine.sif --from docker-daemon:mine:latest", "convert a Docker image"),
            ("mine.sif --definition mine.def", "use your own definition"),
        ),
        ("deploy", "storage list", "images.md"),
    ),
    "deploy": Guide(
        START,
        "Send the image and the code to a cluster.",
        (
            ("", "image and code to the default cluster"),
            ("--dry-run", "what would be sent, and how long it would take"),
            ("--cluster uni --image mine.sif", "another cluster, another image"),
        ),
        ("submit", "storage prune", "images.md"),
    ),
    "config": Guide(
        START,
        "Print the resolved settings as TOML.",
        (
            ("", "the settings in force"),
            ("--show-origin", "also where each value was set"),
            ("profiles.a40-2m", "one part of them"),
            ("allow", "let this project start what it names for this machine"),
        ),
        ("profiles", "configuration.md", "security.md"),
    ),
    "profiles": Guide(
        START,
        "List the profiles; * marks the default one.",
        (("", "one line per profile"), ("--config other/clusterkit.toml", "those of another project")),
        ("config", "submit", "profiles.md"),
    ),
    "demo": Guide(
        START,
        "Train a small run on this machine, from submit to report.",
        (("", "four Meta-World tasks, a few minutes"), ("--total-steps 32000", "the same, ended early")),
        ("report", "index.md"),
    ),
    "completion": Guide(
        START,
        "Print or install completion for your shell.",
        (("--install", "for your shell"), ("zsh", "print the script for zsh")),
        ("commands.md",),
    ),
    "skill": Guide(
        START,
        "Print a one-page guide to this version for coding agents.",
        (("", "print it"), ("--out agents/clusterkit.txt", "where an agent reads it")),
        ("json.md",),
    ),
    "logout": Guide(
        START,
        "End a kept login and the commands that use it.",
        (("", "every kept login"), ("uni", "only the login to this cluster")),
        ("login", "ssh.md"),
        file="login",
    ),
    "plan": Guide(
        RUN,
        "Estimate what a run needs and when it would start.",
        (
            ("--profile a40-2m", "memory, run time and start time"),
            ("--profile a40-2m --times 1h,4h,1d", "which time limit starts first"),
        ),
        ("submit", "plan.md"),
    ),
    "tune": Guide(
        RUN,
        "Measure on a compute node which settings are fastest.",
        (
            ("--profile a40-2m --dry-run", "what would be submitted"),
            ("--profile a40-2m --minutes 10", "measure, then ask before writing the profile"),
        ),
        ("plan", "report", "tune.md"),
    ),
    "submit": Guide(
        RUN,
        "Submit a run or a group of runs, and print its id.",
        (
            ("--profile a40-2m --dry-run", "look first; nothing is sent"),
            ("--profile a40-2m --seed 1 --time 4h --until-done", "past the limit"),
            ("--profile a40-2m --seeds 42..51", "ten runs, one job array"),
            ("--profile check -- --json", "arguments after -- go to the program"),
        ),
        ("status", "resume", "sweeps.md", "until-done.md"),
    ),
    "search": Guide(
        RUN,
        "Search for the best values of parameters.",
        (
            ("lr --space lr=log:1e-5:1e-2 --unlock lr", "24 trials, 4 at a time"),
            ("net --space w=64:512 --metric score -- --width {w}", "your own program"),
            ("lr", "go on after an interruption"),
            ("lr --best", "the trials so far, the best first"),
        ),
        ("submit", "report", "search.md"),
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
        "Submit an earlier run again as a new run, and print its id.",
        (
            ("last --seed 7", "the same code and image, another seed"),
            ("last --time 8h --dry-run", "what would run, without submitting it"),
            ("paper.tar.zst --cluster uni", "from an export"),
        ),
        ("export", "resume", "sharing.md"),
    ),
    "cancel": Guide(
        RUN,
        "Cancel runs; what they have written stays.",
        (
            ("last", "asks first if the run is running"),
            ("--group mt10-20260102-030405-k3f9 --yes", "all runs of a sweep"),
            ("--all --cluster uni", "all runs of this project on that cluster"),
        ),
        ("resume", "status"),
    ),
    "rehearse": Guide(
        RUN,
        "Rehearse how a run continues past its time limit.",
        (
            ("--profile a40-2m", "two minutes on a node of that profile"),
            ("--profile a40-2m --cluster uni", "on this cluster"),
        ),
        ("submit", "until-done.md"),
    ),
    "dev": Guide(
        RUN,
        "Ask for a job to work in, and open a shell inside it.",
        (
            ("--profile a40-2m", "with the profile's resources"),
            ("--time 30m --keep", "leave the job when the shell ends"),
        ),
        ("forward", "ssh-config", "interactive.md"),
    ),
    "status": Guide(
        WATCH,
        "Show the state of your runs.",
        (
            ("", "runs that may still run, and those that ended recently"),
            ("--watch", "until all have ended"),
            ("--state failed --since 2d", "only runs that failed in the last two days"),
            ("last --json", "for scripts"),
        ),
        ("why", "logs", "status.md"),
    ),
    "why": Guide(
        WATCH,
        "Explain why a run waits, failed or is silent.",
        (("last", ""), ("mt10-20260102 --json", "a run by the start of its id, for scripts")),
        ("status", "logs", "troubleshooting.md"),
    ),
    "logs": Guide(
        WATCH,
        "Print or follow the log of a run.",
        (
            ("last --follow", "through requeues, until the run ends"),
            ("last -n 200", "the last 200 lines"),
            ("last --attempt 1 --stderr", "standard error of one attempt"),
        ),
        ("why", "curves"),
    ),
    "curves": Guide(
        WATCH,
        "Draw learning curves in the terminal, live.",
        (("last", ""), ("last --once", "print the curves and exit")),
        ("report", "logs", "status"),
    ),
    "shell": Guide(
        WATCH,
        "Open a shell next to a running program.",
        (
            ("", "in the newest run"),
            ("last -- nvidia-smi", "run one command and return its exit status"),
        ),
        ("top", "forward"),
    ),
    "forward": Guide(
        WATCH,
        "Reach ports of a running program on this machine.",
        (
            ("last 8888", "http://127.0.0.1:8888 here"),
            ("last 9000:8888 :6006", "port 9000 here, and a free one"),
        ),
        ("shell", "dev", "interactive.md"),
    ),
    "ssh": Guide(
        WATCH,
        "Open ssh to the job and container of a running program.",
        (
            ("last", "a shell"),
            ("last -- nvidia-smi -L", "one command"),
        ),
        ("ssh-config", "shell", "interactive.md"),
    ),
    "ssh-config": Guide(
        WATCH,
        "Print the ssh configuration of a running program's job.",
        (("", "of the newest run"), ("last", "for a file that ~/.ssh/config includes")),
        ("ssh", "interactive.md"),
        file="ssh",
    ),
    "top": Guide(
        WATCH,
        "Show the live resource usage of a run or group.",
        (("last", ""), ("last --once", ""), ("last --json", "one object per line")),
        ("shell", "report.md"),
    ),
    "notify": Guide(
        WATCH,
        "Send a test notice to where notices of ended runs go.",
        (("", "to the webhook and the command of [notify]"), ("--json", "for scripts")),
        ("status", "notify.md"),
    ),
    "sync-results": Guide(
        RESULTS,
        "Download new results, then upload them to W&B.",
        (
            ("", "what is new in all runs, then W&B"),
            ("last --watch", "while the run goes on"),
            ("--checkpoints all --bandwidth-limit 10M", "with replay data, at a limited rate"),
            ("--wandb-dry-run", "show what would be uploaded to W&B"),
        ),
        ("report", "storage clean", "wandb.md"),
    ),
    "report": Guide(
        RESULTS,
        "Draw learning curves and write a one-page report.",
        (
            ("last", "curves and one HTML page"),
            ("mt10-20260102-030405-k3f9 --out paper", "all seeds of a sweep"),
            ("last --advice", "what to request next time"),
        ),
        ("curves", "diff", "report.md"),
    ),
    "evaluate": Guide(
        RESULTS,
        "Measure a synced model's success rate or return.",
        (
            ("last --episodes 50", ""),
            ("last --checkpoint best --json", "for scripts"),
        ),
        ("play", "sharing.md"),
        file="model",
    ),
    "play": Guide(
        RESULTS,
        "Film a synced model, task by task.",
        (
            ("last", "one video per task"),
            ("last --task reach --task drawer-close --out films", ""),
        ),
        ("evaluate", "sharing.md"),
        file="model",
    ),
    "diff": Guide(
        RESULTS,
        "Show the differences between two runs.",
        (
            ("", "the last two runs"),
            ("mt10-20260102", "a run and the one submitted before it"),
            ("results/mine last --json", "a folder and a run"),
        ),
        ("report", "sharing.md"),
    ),
    "export": Guide(
        RESULTS,
        "Write all that is needed to repeat a run to one archive.",
        (("last", ""), ("last --with-image -o paper.tar.zst", "including the image")),
        ("rerun", "sharing.md"),
    ),
    "storage": Guide(
        HOUSE,
        "See and free space on a cluster.",
        (
            ("list", "the images there and the runs that use them"),
            ("prune --dry-run", "images and snapshots that no run uses"),
            ("clean --older 30d", "old results that have come home"),
        ),
        ("deploy", "sync-results", "images.md"),
    ),
    "storage list": Guide(
        HOUSE,
        "List the images on a cluster.",
        (("", ""), ("--cluster uni --json", "for scripts")),
        ("storage prune", "deploy", "images.md"),
    ),
    "storage prune": Guide(
        HOUSE,
        "Remove images and snapshots that no run uses.",
        (("--dry-run", "what would be removed"), ("--ended", "also what only ended runs used; asks first")),
        ("storage list", "storage clean", "images.md"),
    ),
    "storage clean": Guide(
        HOUSE,
        "Delete from the cluster what has come home.",
        (
            ("--dry-run", "what would be deleted"),
            ("--older 30d --yes", "only runs unchanged for 30 days, without asking"),
        ),
        ("sync-results", "storage prune"),
    ),
}
