"""The settings that follow from a survey: they load, say why, and ask for what the site accepts."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from clusterkit.backends.slurm.options import sbatch_options
from clusterkit.backends.slurm.survey import SlurmSurveyor
from clusterkit.backends.slurm.survey.draft import draft
from clusterkit.backends.slurm.survey.parse import parse
from clusterkit.backends.survey import SiteDraft, Wishes, root_choice
from clusterkit.config.layers import Layer, built_in_layer
from clusterkit.config.merge import merged
from clusterkit.config.settings import Settings, settings_from
from tests.backends.slurm.survey.sites import (
    ALL,
    EMPTY,
    LABELLED,
    MANY_RULES,
    TESTBED,
    UNIVERSITY,
    Parts,
    answer,
    text_of,
)

HERE = Path("/project")
LAYERS = (built_in_layer(HERE),)


def drafted(parts: Parts, *, before: dict[str, Any] | None = None, **wishes: Any) -> SiteDraft:
    """As for a person who takes what is suggested."""
    survey, before = parse(answer(parts)), before or {}
    accounts = SlurmSurveyor().accounts(survey, wishes.get("partition"), before).options
    roots = root_choice(survey).options
    suggested = {
        "account": accounts[0].value if accounts else None,
        "root": roots[0].value if roots else "~/ck",
        "root_about": "a folder",
    }
    shipped = settings_from(LAYERS, HERE, ()).profiles
    said = Wishes(**{"name": "uni", "host": "uni", **suggested, **wishes})
    return draft(survey, said, before=before, shipped=shipped)


def loaded(text: str) -> Settings:
    return settings_from((*LAYERS, Layer("clusterkit.toml", tomllib.loads(text), None, text)), HERE, ())


@pytest.mark.parametrize("name", ALL)
def test_what_is_written_loads_and_fits(name: str) -> None:
    found = drafted(ALL[name])
    settings = loaded(merged("", found))
    cluster = settings.cluster()
    assert cluster.host == "uni"
    for one in found.gpus:
        for profile in (f"check-{one.name}", f"{one.name}-test"):
            options = sbatch_options(cluster, settings.profile(profile))
            cpus = next(option for option in options if option.startswith("--cpus-per-task="))
            assert int(cpus.partition("=")[2]) <= one.cpus
            assert f"--partition={one.partition}" in options
    for profile in settings.profiles.values():
        if profile.gpu in cluster.gpus:
            sbatch_options(cluster, profile)  # none of them asks for more time than there is


def test_every_key_says_why() -> None:
    lines = merged("", drafted(LABELLED)).splitlines()
    keys = [at for at, line in enumerate(lines) if " = " in line and not line.startswith("#")]
    cluster = [at for at in keys if lines.index("[clusters.uni]") < at < lines.index("[profiles.check-v100]")]
    assert all("  # " in lines[at] or lines[at - 1].startswith("# ") for at in cluster)


def test_gpus_of_amd_say_so() -> None:
    nodes = "gpu-a40|1|idle|64|512000|gpu:mi250x:8|(null)\ngpu-a100|1|idle|8|64000|gpu:a100:2|(null)\n"
    gpus = loaded(merged("", drafted(TESTBED | {"nodes": nodes}))).cluster().gpus
    assert {name: (table.vendor, table.memory) for name, table in gpus.items()} == {
        "mi250x": ("amd", 64 << 30),
        "a100": ("nvidia", None),
    }
    assert "vendor" not in merged("", drafted(TESTBED))


def test_the_site_of_many_rules() -> None:
    settings = loaded(merged("", drafted(MANY_RULES)))
    cluster = settings.cluster()
    assert (cluster.account, cluster.max_time) == ("lab_xu", 12 * 3600)
    assert sbatch_options(cluster, settings.profile("a100-test"))[-4:] == (
        "--gres=gpu:nvidia_a100-sxm4-80gb:1",
        "--partition=gpu",
        "--account=lab_xu",
        "--qos=normal",
    )
    assert settings.profile("mt50-100m").until_done


@pytest.mark.parametrize(("name", "profile"), [("rules", "h100"), ("empty", "cpu")])
def test_a_program_of_the_users_own_needs_nothing_of_the_trainer(name: str, profile: str) -> None:
    text = merged(
        "[project]\nprogram = ['python', 'train.py']\n", drafted(ALL[name], own=True, container="none")
    )
    settings = loaded(text)
    assert settings.project.default_profile == profile
    assert settings.profile(profile).recipe is None
    assert settings.profile(profile).time == 4 * 3600
    assert (settings.cluster().container, settings.cluster().image) == ("none", None)
    assert "extends" not in text
    assert (
        loaded(merged("", drafted(ALL[name], own=True, image="mine.sif"))).cluster().image
        == HERE / "mine.sif"
    )


def test_modules_are_loaded_where_they_are_needed() -> None:
    cluster = loaded(merged("", drafted(LABELLED))).cluster()
    assert cluster.prelude == ("command -v module >/dev/null || . /etc/profile", "module load apptainer")
    assert cluster.login_shell
    assert cluster.partition == "normal"


@pytest.mark.parametrize(
    ("rows", "arch"),
    [
        ("x86_64 gpu-a40,cpu\nx86_64 gpu-a100", {"*": "x86_64"}),
        ("x86_64 gpu-a40,cpu\naarch64 gpu-a100", {"*": "x86_64", "gpu-a100": "aarch64"}),
        ("aarch64 gpu-a40,gpu-a100\nx86_64 gpu-a100", {"*": "aarch64", "gpu-a100": "any"}),
        ("", {}),
    ],
)
def test_the_architecture_of_the_nodes_is_that_of_their_partitions(rows: str, arch: dict[str, str]) -> None:
    table = {"host": "uni", "root": "/w", "arch": "ppc64le"}
    assert loaded(merged("", drafted(TESTBED | {"architectures": rows}, before=table))).cluster().arch == arch


def test_an_architecture_that_the_site_does_not_tell_stays() -> None:
    silent = drafted(TESTBED | {"architectures": ""}, before={"host": "uni", "root": "/w", "arch": "ppc64le"})
    assert not [key for key in silent.gone if "arch" in key]


def test_pyxis_is_taken_at_its_word() -> None:
    found = drafted(UNIVERSITY, container="pyxis")
    cluster = loaded(merged("", found)).cluster()
    assert (cluster.container, cluster.image) == ("pyxis", HERE / "image.sqsh")
    assert not [one for one in found.missing if "container" in one.what]
    table = {"host": "uni", "root": "/w", "container": "pyxis", "registry_image": "docker://a#b"}
    again = drafted(UNIVERSITY, container="pyxis", before=table)
    assert "image" not in {entry.key for entry in again.cluster[0].entries}


def test_an_account_that_a_partition_refuses_is_replaced_there() -> None:
    rows = "mine||normal|normal|||||\ntheirs||normal|normal|||||\n"
    partitions = text_of(TESTBED, "partitions").replace("AllowAccounts=ALL", "AllowAccounts=theirs", 1)
    parts = TESTBED | {"associations": rows, "user": "alice|mine\n", "partitions": partitions}
    cluster = loaded(merged("", drafted(parts))).cluster()
    assert cluster.account == "mine"
    assert (cluster.gpus["a40"].account, cluster.gpus["a100"].account) == ("theirs", None)


def test_what_is_missing_is_said_with_a_cure() -> None:
    said = {one.what: one.do for one in drafted(EMPTY).missing}
    assert len(said) == 3
    assert any("module load slurm/24.11" in cure for cure in said.values())
    no_gpu = drafted(TESTBED | {"nodes": "gpu-a40|1|idle|8|64000|(null)|(null)\n"})
    assert ["no partition shows a GPU" in one.what for one in no_gpu.missing] == [True]
    closed = drafted(
        TESTBED | {"partitions": text_of(TESTBED, "partitions").replace("State=UP", "State=DOWN")}
    )
    assert "gpu-a40, gpu-a100" in closed.missing[0].what
    assert drafted(TESTBED | {"userns": ("", 1)}).missing[0].what.startswith("apptainer is not setuid")
    assert drafted(TESTBED).missing == ()


def test_other_files_of_the_person_stay_as_they_are() -> None:
    text = '# mine\n[project]\nname = "x"\n\n[profiles.a]\ntime = "1h"  # keep\n\n'
    text += (
        '[clusters.uni]\nroot = "~/old"\nbinds = ["/data"]\n\n# of theirs\n[clusters.other]\nroot = "~/c"\n'
    )
    before = tomllib.loads(text)["clusters"]["uni"]
    new = merged(text, drafted(TESTBED, before=before, root="~/old"))
    assert new.startswith(
        '# mine\n[project]\nname = "x"\ndefault_cluster = "uni"\ndefault_profile = "a40-test"\n'
    )
    assert '[profiles.a]\ntime = "1h"  # keep\n' in new
    assert '# of theirs\n[clusters.other]\nroot = "~/c"\n' in new
    assert tomllib.loads(new)["clusters"]["uni"]["binds"] == ["/data"]
    assert loaded(new).cluster().root == "~/old"


WRITTEN_BY_HAND = """# dear\u2028[clusters.no]

[clusters.uni]
root = "~/old"

[clusters.uni.gpus.shard]
partition = "gpu-a40"
request = "--gres=shard:1"

[clusters.uni.gpus.gone]
partition = "gpu-gone"

# ==== what to run ====

[profiles.a]
time = "1h"
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_a_person_wrote_between_the_tables_of_a_cluster_stays(end: str) -> None:
    before = tomllib.loads(WRITTEN_BY_HAND)["clusters"]["uni"]
    new = merged(WRITTEN_BY_HAND.replace("\n", end), drafted(TESTBED, before=before, root="~/old"))
    assert new.count("\n") == new.count(end)
    assert "# dear\u2028[clusters.no]" + end in new
    assert f'{end}{end}# ==== what to run ===={end}{end}[profiles.a]{end}time = "1h"{end}' in new
    found = tomllib.loads(new)["clusters"]
    assert found.keys() == {"uni"}
    assert found["uni"]["gpus"]["shard"] == {"partition": "gpu-a40", "request": "--gres=shard:1"}
    assert found["uni"]["gpus"].keys() == {"a40", "a100", "shard"}
    assert merged(new, drafted(TESTBED, before=found["uni"], root="~/old")) == new


@pytest.mark.parametrize(
    "parts", [TESTBED, UNIVERSITY, LABELLED, MANY_RULES], ids=["testbed", "uni", "lab", "many"]
)
def test_written_again_it_is_the_same(parts: Parts) -> None:
    first = merged("", drafted(parts))
    again = drafted(parts, before=tomllib.loads(first)["clusters"]["uni"])
    assert merged(first, again) == first


def test_what_the_person_changed_for_a_gpu_stays() -> None:
    first = merged("", drafted(UNIVERSITY))
    edited = first.replace('partition = "gpu" ', 'partition = "gputest" ').replace('"32G"', '"31G"')
    edited += "\n[clusters.uni.gpus.v100.sbatch]\nexclusive = true\n"
    again = drafted(UNIVERSITY, before=tomllib.loads(edited)["clusters"]["uni"])
    gpu = loaded(merged(edited, again)).cluster().gpus["v100"]
    assert (gpu.partition, gpu.memory, dict(gpu.sbatch)) == ("gputest", 31 * 2**30, {"exclusive": True})


def test_the_folder_with_room_comes_first_and_one_of_the_user() -> None:
    roots = root_choice(parse(answer(UNIVERSITY))).options
    assert [one.value for one in roots] == [
        "/projappl/proj_a/$USER/clusterkit",
        "/scratch/$USER/clusterkit",
        "$HOME/clusterkit",
    ]
    assert "delete old files" in roots[1].about


@pytest.mark.parametrize(
    "odd", ["\x1b]0;mine\x07", "\u2028[clusters.evil]\u2028", "\r[clusters.evil]\r", "\x00", "²"]
)
@pytest.mark.parametrize("name", ["me", "config", "nodes", "partitions", "roots", "associations"])
def test_no_word_of_a_site_goes_further_than_its_place(name: str, odd: str) -> None:
    """Words of a site stand in comments and values: they end no line, and move no cursor."""
    told = re.sub(r"\w\b", lambda last: last[0] + odd, text_of(LABELLED, name))
    text = merged("", drafted(LABELLED | {name: told}))
    assert set(tomllib.loads(text)["clusters"]) == {"uni"}
    assert all(line.isprintable() for line in text.split("\n"))


def test_a_node_that_tells_nothing_of_its_size_is_asked_for_something() -> None:
    untold = re.sub(r"\|\d+\|\d+\|gpu", "|0|1|gpu", text_of(TESTBED, "nodes"))
    profile = loaded(merged("", drafted(TESTBED | {"nodes": untold}))).profile("a40-test")
    assert (profile.cpus, profile.memory) == (1, 2**20)
