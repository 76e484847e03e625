"""A project's environment on a cluster whose nodes have no network: in a container and outside, once each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.allowing import allow
from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User

OTHERS = """
[clusters.bare]
host = "login"
ssh_config = "{ssh_config}"
root = "/share/$USER/{root}"
container = "none"
prelude = ["export PATH={tools}:$PATH"]

[profiles.small]
cpus = 1
time = "5m"
"""
SHOW = "import os; print('in', os.environ['CONDA_PREFIX'], flush=True)\n"
# Stands for micromamba, whose packages no network could bring here. $4 is the environment's folder.
TOOL = """#!/bin/sh
mkdir -p "$4/bin" "$4/conda-meta" && : >"$4/conda-meta/alpha-1.0-0.json"
ln -s /usr/bin/python3 "$4/bin/python"
echo built >>"$(dirname "$(dirname "$4")")/builds"
sleep 3
"""


@pytest.fixture(scope="module")
def person(cluster: Cluster, small_sif: Path, tmp_path_factory: pytest.TempPathFactory) -> User:
    home = tmp_path_factory.mktemp("environments")
    tools = cluster.share / f"{home.name}-tools"
    tools.mkdir()
    (tools / "micromamba").write_text(TOOL)
    for path in (tools / "micromamba", tools):
        path.chmod(0o755)
    there = f"/share/{tools.relative_to(cluster.share)}"
    user = User.settle(home, cluster, small_sif)
    project = 'program = ["python", "show.py"]\nenvironment = "environment.yml"\ndefault_profile = "small"'
    site = f'[clusters.site]\nbinds = ["{there}/micromamba:/usr/bin/micromamba"]'
    settings = user.folder / "clusterkit.toml"
    text = settings.read_text().replace('default_profile = "tiny"', project).replace("[clusters.site]", site)
    settings.write_text(text + OTHERS.format(ssh_config=cluster.ssh_config, root=home.name, tools=there))
    (user.folder / "show.py").write_text(SHOW)
    (user.folder / "environment.yml").write_text("dependencies:\n- alpha=1.0\n")
    allow(user.folder)
    return user


@pytest.mark.parametrize("name", ["site", "bare"])
def test_it_is_built_once_in_a_container_and_outside(person: User, name: str) -> None:
    words = ("--cluster", name, "--seeds", "1..4", "--yes")
    if name == "site":
        deployed = json.loads(person.types("deploy", "--cluster", name, "--json"))["environment"]
        assert deployed["build_job"]
        again = json.loads(person.types("deploy", "--cluster", name, "--json"))["environment"]
        assert again["build_job"] in (deployed["build_job"], None if again["built"] else "")
    group = person.submits(*words)
    runs = person.ended(group)
    assert {run["state"] for run in runs.values()} == {"COMPLETED"}, runs
    logs = [(person.root / "runs" / run / "attempts/0/log").read_text() for run in runs]
    (place,) = {log.partition("\nin ")[2].split()[0] for log in logs}
    folder = person.root / "environments" / Path(place).parts[-3]
    assert (folder / "builds").read_text() == "built\n"
    assert sum("the environment is built" in log for log in logs) <= 1
    spec = json.loads((person.root / "runs" / next(iter(runs)) / "run.json").read_text())
    assert spec["environment"]["digest"] == folder.name
    assert ((spec["image"] or {}).get("digest") is not None) == (name == "site")
    assert (person.root / "runs" / next(iter(runs)) / "environment.txt").read_text() == "alpha==1.0\n"
