"""The survey's script, run by a real sh: Slurm's tools are small programs that print what a site printed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from clusterkit.backends.slurm.survey.missing import missing
from clusterkit.backends.slurm.survey.parse import SlurmSurvey, parse
from clusterkit.backends.slurm.survey.script import argv
from clusterkit.backends.survey import root_choice
from tests.backends.slurm.survey.sites import UNIVERSITY
from tests.backends.slurm.survey.tools import slurm_tools
from tests.programs import write_program


class Login:
    """A login node: a home, and programs on PATH before those of this machine."""

    def __init__(self, folder: Path) -> None:
        self.home, self.bin, self.slurm = folder / "home", folder / "bin", folder / "slurm"
        for path in (self.home, self.bin, self.slurm):
            path.mkdir()
        slurm_tools(self.slurm, UNIVERSITY)

    def survey(self, *, path: str = "", **variables: str) -> SlurmSurvey:
        environment = {"PATH": f"{path}{self.bin}:/usr/bin:/bin", "HOME": str(self.home), **variables}
        done = subprocess.run(
            argv(), env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.stderr == ""
        return parse(done.stdout)


@pytest.fixture
def login(tmp_path: Path) -> Login:
    return Login(tmp_path)


def test_slurm_on_the_path(login: Login) -> None:
    before = sorted(os.walk(login.home))
    site = login.survey(path=f"{login.slurm}:")
    assert sorted(os.walk(login.home)) == before
    assert (site.login_shell, site.slurm_path, site.silent) == (False, None, ())
    assert site.slurm is not None
    assert site.slurm.version == "20.11.9"
    assert [one.name for one in site.slurm.partitions] == ["small", "gpu", "gputest"]
    assert {one.account for one in site.slurm.associations} == {"proj_a", "proj_b"}
    assert (site.rsync is not None) == (shutil.which("rsync") is not None)
    assert site.internet is False
    assert site.roots[0].path == "$HOME"


def test_slurm_in_a_login_shell_that_talks(login: Login) -> None:
    (login.home / ".bash_profile").write_text(f'echo "Welcome, sbatch users"; PATH=$PATH:{login.slurm}\n')
    site = login.survey()
    assert site.login_shell
    assert site.slurm is not None
    assert len(site.slurm.partitions) == 3


def test_no_slurm(login: Login) -> None:
    site = login.survey()
    assert (site.slurm, site.login_shell) == (None, False)


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["scontrol", "sinfo", "sacctmgr", "sbatch"])
def test_a_tool_that_hangs_or_fails(login: Login, tool: str) -> None:
    write_program(login.slurm, tool, "sleep 60" if tool != "sinfo" else "echo broken >&2; exit 1")
    # only here, where it would be waited for: a busy machine may take its time for the rest
    write_program(login.bin, "timeout", 'shift; exec /usr/bin/timeout 3 "$@"')
    site = login.survey(path=f"{login.slurm}:")
    assert site.slurm is not None
    assert bool(site.silent) == (tool != "sinfo")
    assert bool(site.slurm.associations) == (tool != "sacctmgr")


def test_a_module_brings_the_runtime(login: Login, tmp_path: Path) -> None:
    (tmp_path / "tool/bin").mkdir(parents=True)
    (tmp_path / "tool/libexec/apptainer/bin").mkdir(parents=True)
    write_program(tmp_path / "tool/bin", "apptainer", "echo apptainer version 1.3.0")
    starter = tmp_path / "tool/libexec/apptainer/bin/starter-suid"
    starter.write_text("")
    starter.chmod(0o4755)
    (login.home / ".bash_profile").write_text(
        'module() { case "$*" in\n'
        '"-t avail") printf "/modules:\\ngcc/13\\napptainer/1.3.0\\n" >&2;;\n'
        f'"load apptainer") PATH=$PATH:{tmp_path}/tool/bin; echo loaded;;\n'
        "*) false;; esac; }\necho Hello\n"
    )
    site = login.survey(path=f"{login.slurm}:")
    (runtime,) = site.runtimes
    assert (runtime.name, runtime.version, runtime.module) == ("apptainer", "1.3.0", "apptainer")
    assert runtime.setuid
    assert site.modules == ("apptainer/1.3.0",)


def test_folders_of_variables_that_only_a_login_shell_has(login: Login, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (login.home / ".bash_profile").write_text(f"echo Hello; export WORK={tmp_path}/work SCRATCH=relative\n")
    found = {root.why: root for root in login.survey().roots}
    assert found["$WORK"].path == f"{tmp_path}/work"
    assert found["$WORK"].writable
    assert (found["$WORK"].free or 0) > 0
    assert "$SCRATCH" not in found
    assert found["$HOME"].path == "$HOME"


@pytest.mark.slow
@pytest.mark.needs("root")
def test_folders_that_others_could_change_are_left_out(login: Login, tmp_path: Path) -> None:
    lab = tmp_path / "lab"
    (lab / "me").mkdir(parents=True)
    os.chown(lab, 41002, 41002)
    site = login.survey(path=f"{login.slurm}:", WORK=f"{lab}/me")
    home, work = (next(one for one in site.roots if one.why == why) for why in ("$HOME", "$WORK"))
    assert home.faults == ()
    assert [fault.path for fault in work.faults] == [str(lab)]
    assert not [option for option in root_choice(site).options if str(lab) in option.value]
    (left_out,) = [one for one in missing(site, (), None, "none") if "left out" in one.what]
    assert f"{lab} belongs to 41002" in left_out.what
    assert 'trust = ["41002"]' in left_out.do
    asked = [
        subprocess.run(argv(f"{lab}/ck", trust=who), capture_output=True, text=True)
        for who in ((), ("41002",))
    ]
    assert [len(parse(done.stdout).chosen) for done in asked] == [1, 0]


def test_each_partition_has_the_architecture_of_its_nodes(login: Login) -> None:
    kinds = [("aarch64", "gpu,all"), ("x86_64", "all"), ("aarch64", "gpu")]
    row = "NodeName=n Arch={} CoresPerSocket=1 OS=Linux 6 RealMemory=1 Partitions={} Owner=N/A\n"
    rows = "".join(row.format(*kind) for kind in kinds)
    nodes = login.home / "nodes"
    nodes.write_text(rows + "NodeName=down CoresPerSocket=1 State=DOWN Partitions=small\n")
    write_program(login.slurm, "scontrol", f"case $* in *' node') cat {nodes};; esac")
    slurm = login.survey(path=f"{login.slurm}:").slurm
    assert slurm is not None
    assert slurm.tables.architectures == {"gpu": "aarch64", "all": "any"}
