"""Fetches the packages of an environment where there is a network, for nodes that have none.

They lie beside what the environment is built from, in `wheels/`. The Python that they must fit is asked on
the login node, which starts it as a run does.
"""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from clusterkit.environments.environment import Environment
from clusterkit.environments.requirements import has_address
from clusterkit.errors import ConfigError, last_words
from clusterkit.site import Site
from clusterkit.transport import faults
from clusterkit.transport.base import Bar, SyncOptions

_OLD_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
"""Older names of platforms, by the minor version of glibc: PEP 600."""
_OTHERS = 'cd "$1" 2>/dev/null && ls -dt */wheels 2>/dev/null | head -n 8'
"""Wheels of other environments in the store, $1, the newest first."""
# $1 the environment's folder, $2 a new folder in it, $3 the mode of a shared one, $4 its group, $5 bytes.
_PLACE = """
cd "$1" || exit 1
test -z "$4" || { chgrp -R "$4" "$2" && chmod "$3" "$2" "$2/wheels"; } || exit 1
echo "$5" >wheels.bytes && { mv "$2/wheels" wheels || test -d wheels; } && rm -rf "$2" wheels/wheels
"""


def fetch(site: Site, environment: Environment, script: str, *, bar: Bar) -> None:
    """Fetches what a cluster lacks, on its login node or here, as its settings say.

    Args:
        site: the cluster, which has what the environment is built from.
        environment: what to fetch for.
        script: starts the Python that will use the packages (`job.build_script`).
        bar: opens progress bars.

    Raises:
        ConfigError: they cannot be fetched; the message has the installer's words.
        TransportError: the cluster cannot be reached or written to.
    """
    if "environment.yml" in environment.inputs:
        raise ConfigError(
            f"{environment.file}: conda fetches packages where it installs them",
            hint='set packages = "node" of the cluster; or use uv.lock or requirements.txt',
        )
    if site.cluster.runtime.in_step:
        raise ConfigError(
            f"{site.cluster.runtime.title} starts containers in jobs alone, not where packages are fetched",
            hint='set packages = "node" of the cluster',
        )
    lines = "".join(environment.inputs.values()).splitlines()
    if address := next(filter(has_address, lines), None):
        raise ConfigError(
            f"{environment.file}: {address.split()[0]} comes from its own address, at its installation",
            hint='set packages = "node" of the cluster; or name a release of it in an index',
        )
    if not {"requirements.txt", "unhashed.txt"}.intersection(environment.inputs):
        return  # no package is named
    on_login = site.cluster.packages == "login"
    argv = ["bash", "-p", "-c", script, "bash", "--download" if on_login else "--python"]
    with bar(f"packages of {environment.file}", None):
        done = site.transport.run(argv, check=False, timeout=None)
    if done.returncode != 0:
        raise _refusal(environment, site.transport.where, done.text + done.error_text)
    if not on_login:
        with tempfile.TemporaryDirectory(prefix="clusterkit-wheels-") as folder:
            with bar(f"packages of {environment.file}", None):
                _download(environment, done.text.split()[-5:], Path(folder))
            _send(site, environment, Path(folder, "wheels"), bar)


def platforms(machine: str, libc: str, version: str) -> list[str]:
    """Returns pip's names of the platforms whose wheels fit a machine.

    >>> platforms("x86_64", "glibc", "2.6")
    ['manylinux_2_6_x86_64', 'manylinux_2_5_x86_64', 'manylinux1_x86_64', 'linux_x86_64']
    """
    minor = re.match(r"2\.(\d+)", version) if libc == "glibc" else None
    names = []
    for number in range(int(minor[1]) if minor else 0, 4, -1):
        names += [f"manylinux_2_{number}", *([_OLD_NAMES[number]] if number in _OLD_NAMES else [])]
    return [f"{name}_{machine}" for name in (*names, "linux")]


def _download(environment: Environment, python: Sequence[str], folder: Path) -> None:
    """Downloads wheels for another Python; nothing of a package is run here.

    pip itself would choose packages for this machine. uv chooses them for the other one, and pins them.
    """
    version, machine, _, libc, libc_version = python
    uv = shutil.which("uv")
    if uv is None:
        raise ConfigError(
            "packages are fetched here for another machine with uv, which is not on PATH",
            hint='install uv; or set packages = "login" or "node" of the cluster',
        )
    for name, text in environment.inputs.items():
        (folder / name).write_text(text)
    wanted = [name for name in ("requirements.txt", "unhashed.txt") if name in environment.inputs]
    chosen = folder / "chosen.txt"
    pins = ["-c", str(folder / "constraints.txt")] if "constraints.txt" in environment.inputs else []
    pins += ["--no-deps", "--index-strategy", "unsafe-best-match"] if environment.locked else []
    target = ["--python-platform", f"{machine}-manylinux_2_28", "--python-version", version, "--no-build"]
    compiled = [uv, "pip", "compile", *wanted, *pins, *target, "--generate-hashes", "-o", "pins.txt"]
    options = ["--only-binary=:all:", "--no-deps", "--python-version", version, "--implementation", "cp"]
    options += [word for name in platforms(machine, libc, libc_version) for word in ("--platform", name)]
    pip = [sys.executable, "-m", "pip"] if find_spec("pip") else [uv, "tool", "run", "--quiet", "pip"]
    pip += ["download", "-r", str(chosen), "-d", str(folder / "wheels"), *options]
    indexes = [f"{line}\n" for line in environment.inputs[wanted[0]].splitlines() if line.startswith("-")]
    chosen.write_text("".join([*indexes, "-r pins.txt\n"]))
    for argv in ([*compiled, "--quiet"], pip):
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode != 0:
            raise _refusal(environment, "this machine", done.stdout + done.stderr)


def _send(site: Site, environment: Environment, wheels: Path, bar: Bar) -> None:
    """Sends the wheels; what another environment has there already is linked."""
    store, part = site.layout.environments, f".{secrets.token_hex(6)}.part"
    place, sharing = f"{store}/{environment.digest}", site.sharing
    others = site.transport.run(["sh", "-c", _OTHERS, "sh", store], check=False).text.split()
    links = tuple(f"{store}/{name}" for name in others)
    options = SyncOptions(link_dest=links, checksum=True, mode=sharing.tree)
    size = sum(file.stat().st_size for file in wheels.iterdir())
    with bar(f"packages of {environment.file}", size) as progress:
        site.transport.push(wheels, f"{place}/{part}/wheels", options=options, progress=progress)
    arguments = [place, part, sharing.folder, sharing.group or "", str(size)]
    done = site.transport.run(["sh", "-c", _PLACE, "sh", *arguments], check=False)
    if done.returncode != 0:
        raise faults.unwritable(place, done.error_text, where=site.transport.where)


def _refusal(environment: Environment, where: str, said: str) -> ConfigError:
    return ConfigError(
        f"the packages of {environment.file} cannot be fetched on {where}: {last_words(said, 400)}",
        hint="`packages` of the cluster says where they are fetched: node, login or laptop",
    )
