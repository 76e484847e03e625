"""What each kind of site's answer means, for the Slurm versions that people meet."""

from __future__ import annotations

import pytest

from clusterkit.backends.slurm.request import Gpus
from clusterkit.backends.slurm.survey.parse import parse
from clusterkit.backends.slurm.tables import Association
from clusterkit.backends.survey import FoundRuntime
from clusterkit.errors import TransportError
from tests.backends.slurm.survey.sites import ALL, EMPTY, LABELLED, MANY_RULES, TESTBED, UNIVERSITY, answer


def test_the_test_cluster() -> None:
    site = parse(answer(TESTBED))
    assert (site.host_name, site.user, site.groups) == ("login", "alice", ("alice",))
    assert site.slurm is not None
    assert (site.slurm.version, site.slurm.tables.config.text("ClusterName")) == ("24.11.5", "testbed")
    assert [(one.name, one.default, one.max_time) for one in site.slurm.partitions] == [
        ("gpu-a40", True, 86400),
        ("gpu-a100", False, 86400),
    ]
    (nodes,) = site.slurm.partitions[0].nodes
    assert (nodes.count, nodes.usable, nodes.cpus, nodes.memory) == (1, True, 8, 64000 * 2**20)
    assert (nodes.gpus, nodes.features) == ((Gpus("a40", 4),), ())
    assert site.runtimes == (FoundRuntime("apptainer", "1.4.5", setuid=False),)
    assert (site.rsync, site.internet, site.user_namespaces) == ("3.4.1", False, True)
    assert [root.path for root in site.roots] == ["$HOME", "/share/$USER"]
    assert site.roots[0].total == 264212084 * 1024


def test_associations_by_partition_and_those_without_jobs() -> None:
    slurm = parse(answer(UNIVERSITY)).slurm
    assert slurm is not None
    first = slurm.associations[0]
    assert (first.account, first.partition, first.qos, first.default_qos) == (
        "proj_a",
        "small",
        ("normal",),
        "normal",
    )
    assert "no_jobs" not in {one.account for one in slurm.associations}
    limits = {name: row.max_time for name, row in slurm.tables.qos.items()}
    assert limits == {"normal": None, "gpulimit": 172800}
    gpu = slurm.partitions[1]
    assert (gpu.own_qos, gpu.cpus_per_node, gpu.memory_per_node) == ("gpulimit", 40, 307200 * 2**20)
    assert [(nodes.count, nodes.usable) for nodes in gpu.nodes] == [(70, True), (8, False)]


def test_quotas_and_roots_of_a_project() -> None:
    home, scratch, project = parse(answer(UNIVERSITY)).roots
    assert (home.path, home.quota_left) == ("$HOME", (10485760 - 9000000) * 1024)
    assert home.left == home.quota_left
    assert scratch.path == "/scratch/$USER"
    assert project.path == "/projappl/proj_a"


def test_a_login_shell_a_module_and_names_with_spaces() -> None:
    site = parse(answer(LABELLED))
    assert site.login_shell
    assert site.runtimes == (FoundRuntime("apptainer", "1.3.1", module="apptainer"),)
    assert site.modules == ("apptainer/1.3.1", "system/singularity-tools")
    assert site.slurm is not None
    names = [one.name for one in site.slurm.partitions]
    assert names == ["normal", "gpu", "owners of nodes", "gpu_down"]
    assert site.slurm.partitions[2].groups == ("rich",)
    assert site.slurm.partitions[3].state != "UP"


def test_rules() -> None:
    slurm = parse(answer(MANY_RULES)).slurm
    assert slurm is not None
    gpu, _, priority, h100, _ = slurm.partitions
    assert (gpu.denied_accounts, gpu.qos) == (("none", "guests"), ("normal",))
    assert priority.accounts == ("priority",)
    assert h100.denied_qos == ("course_2026",)


@pytest.mark.parametrize(
    ("state", "usable"),
    [
        *(
            (state, 1)
            for state in ("idle", "mixed", "allocated-", "idle~", "powered_down", "reserved", "maint")
        ),
        *(
            (state, 0)
            for state in ("down", "down*", "drained", "draining@", "idle*", "inval", "fail", "unknown*")
        ),
    ],
)
def test_states_of_nodes(state: str, usable: int) -> None:
    slurm = parse(answer(TESTBED | {"nodes": f"gpu-a40|1|{state}|8|64000|gpu:4|(null)\n"})).slurm
    assert slurm is not None
    assert slurm.partitions[0].nodes[0].usable == usable


def test_nothing_there() -> None:
    site = parse(answer(EMPTY))
    assert (site.slurm, site.runtimes, site.rsync) == (None, (), None)
    assert not site.roots[0].writable


def test_slurm_off_the_path() -> None:
    site = parse(answer(TESTBED | {"me": "login\nalice\n/opt/slurm/bin\nalice\n"}))
    assert site.slurm_path == "/opt/slurm/bin"
    assert site.slurm is not None


def test_accounts_of_a_site_whose_database_cannot_be_read() -> None:
    parts = TESTBED | {"associations": ("", 1), "shares": "root|\nproj|alice\nproj|bob\nproj|alice\n"}
    slurm = parse(answer(parts)).slurm
    assert slurm is not None
    assert slurm.associations == (Association({"Account": "proj"}),)


def test_what_hangs_is_named_and_does_not_matter() -> None:
    site = parse(answer(TESTBED | {"config": ("", 124), "partitions": None, "nodes": None}))
    assert site.silent == ("config",)
    assert site.slurm is not None
    assert site.slurm.partitions == ()


@pytest.mark.parametrize("name", ALL)
def test_an_answer_cut_off_anywhere_is_refused_or_read(name: str) -> None:
    whole = answer(ALL[name])
    assert parse(whole)
    for end in range(0, len(whole) - 1, 97):
        with pytest.raises(TransportError, match="cut short"):
            parse(whole[:end])
