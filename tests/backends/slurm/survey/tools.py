"""Programs on PATH that answer what a recorded site answered."""

from __future__ import annotations

from pathlib import Path

from tests.backends.slurm.survey.sites import Parts, text_of
from tests.programs import write_program


def slurm_tools(folder: Path, parts: Parts) -> None:
    """The tools that a survey asks; the internet is away."""

    def saying(name: str) -> str:
        file = folder / f"{name}.out"
        file.write_text(text_of(parts, name))
        return f"cat {file}"

    write_program(folder, "sbatch", saying("version"))
    write_program(
        folder, "scontrol", f"case $* in *config) {saying('config')};; *) {saying('partitions')};; esac"
    )
    write_program(folder, "sinfo", saying("nodes"))
    write_program(folder, "sshare", saying("shares"))
    users, rows, qos = saying("user"), saying("associations"), saying("qos")
    write_program(
        folder, "sacctmgr", f"case $* in *' user '*) {users};; *' assoc '*) {rows};; *) {qos};; esac"
    )
    write_program(folder, "curl", "exit 6")
