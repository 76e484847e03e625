"""tune on a real cluster: the bench runs on the compute node, in the image, and its figures come home."""

from __future__ import annotations

import tomllib

import pytest

from tests.cluster.laptop import User
from tests.waiting import until

pytestmark = pytest.mark.slow


def test_a_profile_is_tuned_by_what_its_node_can_do(learner: User) -> None:
    user = learner
    settings = user.folder / "clusterkit.toml"
    settings.write_text(settings.read_text().replace('recipe = "local-demo"', 'recipe = "sac"'))
    user.types("deploy")
    run_id = user.types("tune", "--minutes", "2", "--num-envs", "8", "--workers", "0", "--no-wait").strip()
    bench = user.root / "runs" / run_id / "bench.json"
    until(bench.exists, 600)
    user.cluster.run("login", ["scancel", "-n", run_id], user=user.cluster.user)
    before = settings.read_text()
    done = user.tries("tune", run_id, "--yes")
    assert done.returncode == 0, done.stderr
    assert "measured" in done.stderr
    assert "a40n" in done.stderr
    assert "chosen" in done.stdout
    # the profile asks for two processors, and a learner with its evaluation has use for both
    assert "profile tiny needs no change" in done.stdout
    assert tomllib.loads(settings.read_text()) == tomllib.loads(before)
