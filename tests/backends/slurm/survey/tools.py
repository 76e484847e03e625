"""Programs on PATH that answer what a recorded site answered."""

from __future__ import annotations

from pathlib import Path

from tests.backends.slurm.survey.sites import Parts, text_of


def program(folder: Path, name: str, script: str) -> None:
    """A program that is a few lines of sh."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def slurm_tools(folder: Path, parts: Parts) -> None:
    """The tools that a survey asks; the internet is away."""

    def saying(name: str) -> str:
        file = folder / f"{name}.out"
        file.write_text(text_of(parts, name))
        return f"cat {file}"

    program(folder, "sbatch", saying("version"))
    program(folder, "scontrol", f"case $* in *config) {saying('config')};; *) {saying('partitions')};; esac")
    program(folder, "sinfo", saying("nodes"))
    program(folder, "sshare", saying("shares"))
    users, rows, qos = saying("user"), saying("associations"), saying("qos")
    program(folder, "sacctmgr", f"case $* in *' user '*) {users};; *' assoc '*) {rows};; *) {qos};; esac")
    program(folder, "curl", "exit 6")
