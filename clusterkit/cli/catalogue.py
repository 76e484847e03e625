"""The commands by purpose, each with the first sentence of its help, so that a list of them imports none."""

from __future__ import annotations

PANELS = {
    "Start": {
        "init": "Inspect a cluster over one login and write its settings.",
        "doctor": "Check every step from here to a container on a node.",
        "login": "Log in once for all later commands.",
        "build": "Build the trainer image, or convert a Docker image.",
        "deploy": "Send the image and the code to a cluster.",
        "config": "Print the resolved settings as TOML.",
        "profiles": "List the profiles; * marks the default one.",
        "demo": "Train a small run on this machine, from submit to report.",
        "completion": "Print or install completion for your shell.",
        "docs": "Show a page of the documentation.",
        "skill": "Print a one-page guide to this version for coding agents.",
        "logout": "End a kept login and the commands that use it.",
    },
    "Run": {
        "plan": "Estimate what a run needs and when it would start.",
        "tune": "Measure on a compute node which settings are fastest.",
        "run": "Run a program from its first start to the report of its results.",
        "submit": "Submit a run or a group of runs, and print its id.",
        "search": "Search for the best values of parameters.",
        "resume": "Continue a run that ended too early.",
        "rerun": "Submit an earlier run again as a new run, and print its id.",
        "cancel": "Cancel runs; what they have written stays.",
        "rehearse": "Rehearse how a run continues past its time limit.",
        "dev": "Ask for a job to work in, and open a shell inside it.",
    },
    "Watch": {
        "status": "Show the state of your runs.",
        "why": "Explain why a run waits, failed or is silent.",
        "logs": "Print or follow the log of a run.",
        "curves": "Draw learning curves in the terminal, live.",
        "shell": "Open a shell next to a running program.",
        "forward": "Reach ports of a running program on this machine.",
        "ssh": "Open ssh to the job and container of a running program.",
        "ssh-config": "Print the ssh configuration of a running program's job.",
        "top": "Show the live resource usage of a run or group.",
        "notify": "Send a test notice to where notices of ended runs go.",
    },
    "Results": {
        "sync-results": "Download new results, then upload them to W&B.",
        "report": "Draw learning curves and write a one-page report.",
        "evaluate": "Measure a synced model's success rate or return.",
        "play": "Film a synced model, task by task.",
        "diff": "Show the differences between two runs.",
        "export": "Write all that is needed to repeat a run to one archive.",
    },
    "Housekeeping": {
        "storage": "See and free space on a cluster.",
        "storage list": "List the images and Python environments on a cluster.",
        "storage prune": "Remove images, snapshots and environments that no run uses.",
        "storage clean": "Delete from the cluster what has come home.",
    },
}
"""Title -> name of a command -> what it does."""

SHORT = {name: short for names in PANELS.values() for name, short in names.items()}

FILES = {
    "logout": "login",
    "ssh-config": "ssh",
    "evaluate": "model",
    "play": "model",
    "skill": "docs",
}
"""Command -> the module of this package that holds it, where that is not named like it."""


def children(group: str) -> dict[str, str]:
    """Returns what stands in a group of commands: the last word of each name -> the name."""
    start = f"{group} " if group else ""
    rest = {name.removeprefix(start): name for name in SHORT if name.startswith(start)}
    return {word: name for word, name in rest.items() if " " not in word}
