"""The whole path with `transport = "openssh"`: one login a command, and one for all of them with `login`."""

from __future__ import annotations

import pytest

from tests.cluster.laptop import User
from tests.waiting import until

PROFILE = """
[profiles.talk]
extends = "tiny"
program = ["sh", "-c", "until test -e $CLUSTERKIT_RUN_DIR/enough; do echo still here; sleep 0.2; done"]
"""


@pytest.fixture(scope="module")
def over_openssh(user: User) -> User:
    settings = user.folder / "clusterkit.toml"
    text = settings.read_text().replace('host = "login"\n', 'host = "login"\ntransport = "openssh"\n')
    settings.write_text(text + PROFILE)
    return user


def the_whole_path(user: User) -> int:
    """Everything a person does with a run. Returns the number of commands."""
    user.types("deploy")
    run_id = user.submits("--profile", "talk")
    there = user.root / "runs" / run_id
    until(lambda: (there / "attempts/0/log").exists())
    assert user.status(run_id)[run_id]["state"] == "RUNNING"
    assert user.types("shell", run_id, "--", "sh", "-c", "echo $CLUSTERKIT_RUN_ID") == f"{run_id}\n"
    assert run_id in user.types("top", "--once")
    follower = user.starts("logs", "-f", run_id)
    assert follower.stdout is not None
    assert any(line == "still here\n" for line in follower.stdout)
    (there / "enough").touch()
    follower.communicate(timeout=240)
    assert follower.returncode == 0
    user.types("sync-results", run_id)
    assert (user.folder / "results" / run_id / "attempts/0/exit.json").exists()
    return 7


def test_one_login_a_command(over_openssh: User) -> None:
    before = over_openssh.cluster.logins()
    commands = the_whole_path(over_openssh)
    assert over_openssh.cluster.logins() - before == commands


def test_one_login_for_all(over_openssh: User) -> None:
    with over_openssh.logging_in(times=1), over_openssh.keeping_login():
        the_whole_path(over_openssh)
