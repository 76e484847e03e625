"""What goes wrong on the way to a real cluster: a cause, a next step, an exit code, nothing half done."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.allowing import allow
from tests.cluster.laptop import User


def add_cluster(user: User, name: str, *, ssh_config: Path, root: str, image: Path) -> None:
    """Add one more view of the test cluster to the settings."""
    with (user.folder / "clusterkit.toml").open("a") as file:
        file.write(f'\n[clusters.{name}]\nhost = "login"\nroot = "{root}"\n')
        file.write(f'ssh_config = "{ssh_config}"\nimage = "{image}"\n')
    allow(user.folder)


def knowing(user: User, name: str, host_key: str) -> Path:
    """An ssh_config that knows the login node by this key only; an empty key is none."""
    ours = user.cluster.ssh_config
    known, config = user.folder.parent / f"{name}_known_hosts", user.folder.parent / f"{name}_config"
    address = (ours.parent / "known_hosts").read_text().splitlines()[1].split()[0]
    known.write_text(f"{address} {host_key}\n" if host_key else "")
    config.write_text(ours.read_text().replace(str(ours.parent / "known_hosts"), str(known)))
    return config


def test_a_changed_host_key_stops_before_the_login(user: User, small_sif: Path, tmp_path: Path) -> None:
    key = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)], check=True)
    config = knowing(user, "changed", key.with_suffix(".pub").read_text().strip())
    add_cluster(user, "changed", ssh_config=config, root="/share/changed", image=small_sif)
    with user.logging_in(times=0):
        refused = user.tries("deploy", "--cluster", "changed")
    assert refused.returncode == 4
    assert "host key" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) >= 2


def test_no_space_is_said_before_the_image_travels(user: User, small_sif: Path) -> None:
    small = "mkdir /run/small && mount -t tmpfs -o size=8m,mode=1777 small /run/small"
    user.cluster.run("login", ["sh", "-c", small])
    ssh_config = user.cluster.ssh_config
    add_cluster(user, "small", ssh_config=ssh_config, root="/run/small/clusterkit", image=small_sif)
    with user.logging_in(times=1):
        refused = user.tries("deploy", "--cluster", "small")
    assert refused.returncode == 6
    assert "no space" in refused.stderr
    found = user.cluster.run("login", ["find", "/run/small", "-type", "f", "-size", "+1k"])
    assert found.stdout == ""
