"""What the next submission of a run asks for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.commands.resubmission import ResumeRequest, job_of, options_of
from clusterkit.config.models import Cluster, Profile
from clusterkit.runs.ledger import LedgerRun
from clusterkit.site import Site, open_site

OPTIONS = ["--cpus-per-task=32", "--mem=65536M", "--qos=long", "--array=0-3", "--time=01:00:00"]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with open_site(Cluster(name="here", kind="local", root=str(tmp_path / "root"), container="none")) as site:
        yield site


@pytest.mark.parametrize(("pack", "cpus", "memory"), [(4, "8", "16G"), (1, "32", "65536M")])
def test_a_run_of_a_pack_asks_for_the_share_of_one(site: Site, pack: int, cpus: str, memory: str) -> None:
    profile = Profile(name="mine", cpus=8, memory="16G", time="1h")  # type: ignore[arg-type]
    before = {"options": OPTIONS, "pack": pack}
    options = options_of(site, ResumeRequest(), profile, before, goes_on=False, training=False)
    assert {f"--cpus-per-task={cpus}", "--qos=long", "--time=01:00:00"} <= set(options)
    assert [each for each in options if each.startswith("--mem")] == [f"--mem={memory}"]
    assert not any(each.startswith("--array") for each in options)


def test_what_it_waited_for_at_first_it_does_not_wait_for_again(site: Site) -> None:
    profile = Profile(name="mine", time="1h")  # type: ignore[arg-type]
    waiting = [
        "--dependency=afterok:7",
        "--kill-on-invalid-dep=yes",
        "--after=ok:1-2:/a b",
        "--after-task=1:ok:1-2:/a",
    ]
    options = options_of(
        site, ResumeRequest(), profile, {"options": ["--qos=long", *waiting]}, goes_on=False, training=False
    )
    assert "--qos=long" in options
    assert not any("dep" in each or each.startswith("--after") for each in options)


def test_what_the_program_sees_is_as_its_own_environment_says(site: Site) -> None:
    root, profile = site.layout.root, Profile(name="mine", time="1h")  # type: ignore[arg-type]
    run = LedgerRun("r-1", "here", "r", "mine", "", 0, "", "", site.layout.run("r-1"), 0, "PENDING")
    document = {"workdir": f"{root}/snapshots/{'0' * 16}/project", "python_path": [f"/x/{'1' * 16}/bundle"]}

    def job(**env: str) -> tuple[tuple[str, ...], bool]:
        made = job_of(site, run, document, env, profile, (), None, 1, check=False)
        return made.binds[1:], made.wandb_login

    before = site.layout.run("r-0")
    assert job(CLUSTERKIT_PREVIOUS_RUN_DIR=before) == ((), False)
    Path(before).mkdir(parents=True)
    assert job(CLUSTERKIT_PREVIOUS_RUN_DIR=before) == ((f"{before}:{before}:ro",), False)
    assert job(CLUSTERKIT_PREVIOUS_RUN_DIR=root) == ((), False)
    assert job(WANDB_MODE="online") == ((), True)
