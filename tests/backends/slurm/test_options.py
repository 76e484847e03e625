"""A profile and a cluster become sbatch options: mapping, precedence, additions and removals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.backends.jobs import EarlySignal
from clusterkit.backends.slurm.backend import SlurmBackend
from clusterkit.backends.slurm.options import SlurmOptions, sbatch_options, site_options
from clusterkit.config.models import Cluster, Profile
from clusterkit.errors import ConfigError


def cluster(**keys: object) -> Cluster:
    return Cluster.model_validate({"name": "site", "root": "/work", **keys})


def profile(**keys: object) -> Profile:
    return Profile.model_validate({"name": "p", "cpus": 16, "memory": "32G", "time": "4h", **keys})


def asked(site: Cluster, wanted: Profile) -> tuple[str, ...]:
    """What the GPU and the site add to a request."""
    return tuple(f"--{name}={value}" for name, value in site_options(site, wanted).items())


def test_a_plain_job_asks_for_its_resources_in_a_stable_order() -> None:
    assert sbatch_options(cluster(), profile()) == (
        "--nodes=1",
        "--ntasks=1",
        "--cpus-per-task=16",
        "--mem=32G",
        "--time=04:00:00",
    )


def test_several_nodes_have_a_task_each_except_with_pyxis() -> None:
    assert sbatch_options(cluster(), profile(nodes=2))[:3] == (
        "--nodes=2",
        "--ntasks=2",
        "--ntasks-per-node=1",
    )
    with pytest.raises(ConfigError, match="Pyxis, which works on one node only"):
        sbatch_options(cluster(container="pyxis"), profile(nodes=2))


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (None, "--gres=gpu:a40:2"),
        ("--gpus={type}:{count}", "--gpus=a40:2"),
        ("--gres=gpu:{count}", "--gres=gpu:2"),
        ("--gres=gpu:nvidia_a40:{count}", "--gres=gpu:nvidia_a40:2"),
    ],
)
def test_each_site_spells_the_gpu_its_own_way(request_: str | None, expected: str) -> None:
    gpu = {"partition": "GPU-a40"} | ({"request": request_} if request_ else {})
    options = asked(cluster(gpus={"a40": gpu}), profile(gpu="a40", gpus=2))
    assert options == (expected, "--partition=GPU-a40")


def test_the_gpu_types_own_values_win_over_the_clusters() -> None:
    site = cluster(
        partition="cpu",
        account="all",
        qos="normal",
        constraint="ib",
        gpus={"a40": {"partition": "gpu", "account": "gpus"}},
    )
    assert asked(site, profile(gpu="a40")) == (
        "--gres=gpu:a40:1",
        "--partition=gpu",
        "--account=gpus",
        "--qos=normal",
        "--constraint=ib",
    )
    assert asked(site, profile()) == (
        "--partition=cpu",
        "--account=all",
        "--qos=normal",
        "--constraint=ib",
    )


def test_a_gpu_the_cluster_lacks_is_refused_with_those_it_has() -> None:
    with pytest.raises(ConfigError) as caught:
        asked(cluster(gpus={"a100": {}, "a40": {}}), profile(gpu="h100"))
    assert caught.value.cause == "profile p needs GPU 'h100', which cluster site lacks"
    assert caught.value.hint is not None
    assert "available: a100, a40; or add " in caught.value.hint


def test_a_slurm_cluster_without_a_table_of_gpus_has_none() -> None:
    with pytest.raises(ConfigError, match="which cluster site lacks"):
        asked(cluster(), profile(gpu="a40"))


def test_the_weakest_to_the_strongest() -> None:
    levels = [
        {"cluster": {"comment": "cluster"}},
        {"gpu": {"comment": "gpu"}},
        {"profile": {"comment": "profile"}},
        {"extra": ["--comment=command"]},
    ]
    expected = ["cluster", "gpu", "profile", "command"]
    for count in range(1, len(levels) + 1):
        given_: dict[str, object] = {}
        for level in levels[:count]:
            given_ |= level
        options = sbatch_options(
            cluster(sbatch=given_.get("cluster", {}), gpus={"a40": {"sbatch": given_.get("gpu", {})}}),
            profile(gpu="a40", sbatch=given_.get("profile", {})),
            extra=given_.get("extra", ()),  # type: ignore[arg-type]
        )
        assert [o for o in options if o.startswith("--comment")] == [f"--comment={expected[count - 1]}"]


def test_options_are_added_changed_and_removed() -> None:
    site = cluster(sbatch={"mem": False, "exclusive": True, "mail_user": "me@x.org", "nice": 100})
    assert sbatch_options(site, profile(sbatch={"exclusive": False, "N": 2})) == (
        "--nodes=2",
        "--ntasks=2",
        "--cpus-per-task=16",
        "--time=04:00:00",
        "--mail-user=me@x.org",
        "--nice=100",
    )


@pytest.mark.parametrize(
    ("given", "only_failures", "added"),
    [
        ((), False, ("--mail-user=me@x.org", "--mail-type=END,FAIL")),
        ((), True, ("--mail-user=me@x.org", "--mail-type=FAIL")),
        (("--mail-user=you@x.org",), False, ()),
        (("--mail-type=ALL",), False, ()),
    ],
)
def test_mail_is_asked_for_unless_the_options_do(
    given: tuple[str, ...], only_failures: bool, added: tuple[str, ...]
) -> None:
    mailed = SlurmBackend().mailed(given, "me@x.org", only_failures=only_failures)
    assert mailed == (*given, *added)


@pytest.mark.parametrize(("option", "gone"), [("mem-per-cpu", "--mem="), ("mem-per-gpu", "--mem=")])
def test_of_options_sbatch_takes_only_one_of_the_stronger_stays(option: str, gone: str) -> None:
    options = sbatch_options(cluster(), profile(sbatch={option: "2G"}))
    assert f"--{option}=2G" in options
    assert not any(o.startswith(gone) for o in options)


@pytest.mark.parametrize("option", ["gpus=2", "gpus-per-node=a40:2", "gpus-per-task=1"])
def test_gpus_are_asked_for_in_one_way(option: str) -> None:
    site = cluster(gpus={"a40": {}})
    options = sbatch_options(site, profile(gpu="a40"), extra=[f"--{option}"])
    assert [each for each in options if "gpu" in each] == [f"--{option}"]
    back = sbatch_options(site, profile(gpu="a40", sbatch={"gpus": 1}), extra=["--gres=gpu:a40:2"])
    assert [each for each in back if "gpu" in each] == ["--gres=gpu:a40:2"]
    both = sbatch_options(site, profile(sbatch={"gres": "lustre:1"}), extra=[f"--{option}"])
    assert "--gres=lustre:1" in both


def test_requeue_and_its_opposite_do_not_meet() -> None:
    options = sbatch_options(cluster(sbatch={"requeue": True}), profile(), extra=["--no-requeue"])
    assert options[-1] == "--no-requeue"
    assert "--requeue" not in options


def test_more_time_than_the_site_allows_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        sbatch_options(cluster(max_time="8h"), profile(time="1d"))
    assert caught.value.cause == ("profile p requests 1d and cluster site allows 8h (clusters.site.max_time)")
    assert sbatch_options(cluster(max_time="8h"), profile(time="8h"))


@pytest.mark.parametrize("option", ["--job-name=x", "--output=x", "--parsable", "--array=1-3", "--wrap=ls"])
def test_what_clusterkit_sets_itself_cannot_be_set(option: str) -> None:
    with pytest.raises(ConfigError, match=r"^command line: --[a-z-]+ cannot be set: \w+"):
        sbatch_options(cluster(), profile(), extra=[option])


@pytest.mark.parametrize("option", ["qos=high", "-qhigh", "--qos=", "--qos=a\nb", "--", "--=x", "--q os=x"])
def test_what_is_no_option_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match="is not an sbatch option"):
        sbatch_options(cluster(), profile(), extra=[option])


_VALUES = st.one_of(st.booleans(), st.integers(0, 99), st.sampled_from(["a", "b:c", "d e"]))
_NAMES = st.sampled_from(["mem", "qos", "exclusive", "mail-user", "mail_user", "comment", "gres", "time"])


@pytest.mark.slow
@given(st.lists(st.dictionaries(_NAMES, _VALUES, max_size=4), min_size=3, max_size=3))
def test_every_option_appears_once_and_as_the_strongest_table_says(tables: list[dict[str, object]]) -> None:
    site = cluster(sbatch=tables[0], gpus={"a40": {"sbatch": tables[1]}})
    options = sbatch_options(site, profile(gpu="a40", sbatch=tables[2]))
    names = [option.removeprefix("--").partition("=")[0] for option in options]
    assert len(names) == len(set(names))
    last: dict[str, object] = {}
    for table in tables:
        for name, value in table.items():
            last[name.replace("_", "-")] = value
    for name, value in last.items():
        if value is False:
            assert name not in names
        else:
            assert (f"--{name}" if value is True else f"--{name}={value}") in options


def test_the_signal_is_sent_to_the_script_and_the_settings_win() -> None:
    signal = EarlySignal("USR1", 120)
    assert sbatch_options(cluster(), profile(), signal=signal)[-1] == "--signal=B:USR1@120"
    own = profile(sbatch={"signal": "B:USR2@60"})
    assert sbatch_options(cluster(), own, signal=signal)[-1] == "--signal=B:USR2@60"
    assert SlurmBackend().signalled(sbatch_options(cluster(), own, signal=None))
    assert not SlurmBackend().signalled(
        sbatch_options(cluster(), profile(sbatch={"signal": False}), signal=signal)
    )


def test_the_next_submission_keeps_what_is_not_of_the_one_before() -> None:
    before = ("--cpus-per-task=32", "--mem=64G", "--qos=long", "--array=0-3", "--time=01:00:00", "--requeue")
    waiting = ("--dependency=afterok:7", "--kill-on-invalid-dep=yes", "--signal=B:USR1@120")
    options = (*before, *waiting)
    alone = SlurmOptions().carried_over(options, time=True, packed=False)
    assert alone == [*before[:3], "--time=01:00:00", "--signal=B:USR1@120"]
    assert SlurmOptions().carried_over(options, time=False, packed=True) == ["--qos=long"]
