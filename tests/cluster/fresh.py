"""README's two commands on a machine with Python, git and make alone: Debian's smallest system.

    python -m tests.cluster.fresh                        `make test` and a short `make demo`
    python -m tests.cluster.fresh [--root] COMMAND...    another command

They run as an ordinary user, or as root, who cannot write outside the home folder, either. Each machine
begins with a new clone of what is committed here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cluster import rootfs
from tests.cluster.cache import cached, remove
from tests.cluster.host import TestbedError

ROOT = Path(__file__).parents[2]
PACKAGES = ("ca-certificates", "git", "make", "python3", "python3-venv")
USER = 1000
LEFT_OUT = (
    "needs root: run the tests as root",
    "needs sshd: apt-get install openssh-server",
    "needs rsync: apt-get install rsync",
    "needs busybox: apt-get install busybox",
)
"""Of the lines that `make test` ends with."""
DEMO_STEPS = 20_000
_ADD_USER = f'chroot "$1" useradd -u {USER} -M -d /home/user -s /bin/bash user'


class FreshMachine:
    """Its home folder, with a clone in `clusterkit`, lasts as long as the folder it was given.

    Args:
        folder: empty, for the home folder.
        root: whether commands run as root.
    """

    def __init__(self, folder: Path, *, root: bool = False) -> None:
        self._root = root
        self.home = folder / "home"
        self.home.mkdir()
        bundle = self.home / "bundle"
        subprocess.run(["git", "bundle", "create", "-q", str(bundle), "HEAD"], cwd=ROOT, check=True)
        self._index = _mounts(_use_index(self.home))
        clone = ("git", "-c", "advice.detachedHead=false", "clone", "-q", "bundle", "clusterkit")
        if self.run(*clone, cwd="/home/user")[0]:
            raise TestbedError("git cannot clone on the fresh machine")

    def run(self, *argv: str, cwd: str = "/home/user/clusterkit") -> tuple[int, str]:
        """Runs a command, with the network of this machine and none of its files; prints what it prints.

        Args:
            argv: the command.
            cwd: the folder to run it in.

        Returns:
            Its exit code and what it printed.
        """
        argv = (*self._enter(cwd), *argv)
        with subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            assert process.stdout is not None
            printed = []
            while part := os.read(process.stdout.fileno(), 65536):
                sys.stdout.buffer.write(part)
                sys.stdout.flush()
                printed.append(part)
        return process.returncode, b"".join(printed).decode(errors="replace")

    def _enter(self, cwd: str) -> list[str]:
        user = "--cap-add ALL" if self._root else f"--unshare-user --uid {USER} --gid {USER} --cap-drop ALL"
        alone = "--unshare-pid --unshare-ipc --unshare-uts --hostname fresh --die-with-parent"
        folders = "--proc /proc --dev /dev --perms 1777 --tmpfs /tmp --perms 1777 --tmpfs /var/tmp"
        variables = {"HOME": "/home/user", "USER": "user", "PATH": "/usr/local/bin:/usr/bin:/bin"}
        variables |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        return [
            *("bwrap", *alone.split(), *_system(), *self._index, *folders.split(), *user.split()),
            "--clearenv",
            *("--bind", str(self.home), "/home/user", "--chdir", cwd),
            *(word for pair in variables.items() for word in ("--setenv", *pair)),
        ]


def _system() -> list[str]:
    """Returns the options that mount Debian, with this machine's name servers and certificates, read-only."""
    said = [*rootfs.MINIMAL, rootfs.BASE, *PACKAGES, _ADD_USER]
    system = cached("fresh", said, _build)
    links = [path for path in system.iterdir() if path.is_symlink()]
    folders = [
        path for path in system.iterdir() if path.is_dir() and path not in links and any(path.iterdir())
    ]
    mounts = [word for path in folders for word in ("--ro-bind", str(path), f"/{path.name}")]
    symlinks = [word for path in links for word in ("--symlink", str(path.readlink()), f"/{path.name}")]
    return [*mounts, *symlinks, *_mounts(map(Path, ("/etc/resolv.conf", "/etc/ssl/certs")))]


def _build(folder: Path) -> None:
    options = [f"--include={','.join(PACKAGES)}", f"--customize-hook={_ADD_USER}"]
    rootfs.debian(folder, [rootfs.BASE], options)
    for name in ("dev", "home", "proc", "tmp"):
        remove(folder / name)


def _use_index(home: Path) -> list[Path]:
    """Makes pip find packages where it finds them here; returns the folders that it needs for that."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    settings = dict(re.findall(r"^global\.(\S+)='(.*)'$", listed, re.MULTILINE))
    folder = home / ".config" / "pip"
    folder.mkdir(parents=True)
    if constraint := settings.get("constraint"):
        settings["constraint"] = (
            f"/home/user/.config/pip/{shutil.copy(constraint, folder / 'constraint').name}"
        )
    (folder / "pip.conf").write_text(
        "\n".join(["[global]", *(f"{name} = {value}" for name, value in settings.items()), ""])
    )
    words = [word for value in settings.values() for word in value.split()]
    indexes = [Path(word.removeprefix("file://")).parent for word in words if word.startswith("file://")]
    return [
        path for path in dict.fromkeys([*indexes, *map(Path, words)]) if path.is_absolute() and path.is_dir()
    ]


def _mounts(folders: Iterable[Path]) -> list[str]:
    return [word for path in folders for word in ("--ro-bind", str(path), str(path))]


@contextmanager
def fresh_machine(*, root: bool = False) -> Iterator[FreshMachine]:
    """A machine that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="fresh-"))
    try:
        yield FreshMachine(folder, root=root)
    finally:
        shutil.rmtree(folder)


def prove(machine: FreshMachine) -> list[str]:
    """Runs README's two commands, the one that needs less first; returns what is wrong."""
    code, said = machine.run("make", "demo", f"STEPS={DEMO_STEPS}")
    wrong = [f"make demo: exit code {code}"] if code else []
    wrong += ["make demo shows a warning of pip"] if "WARNING" in said else []
    for name in ("curves", "report"):
        path = re.search(rf"^{name} +/home/user/(\S+)$", said, re.MULTILINE)
        if not path or not (machine.home / path[1]).is_file():
            wrong.append(f"make demo leaves no {name}")
    if len(re.findall(r"^(?:next)? +clusterkit \w", said, re.MULTILINE)) != 3:
        wrong.append("make demo does not end with three commands")
    code, said = machine.run("make", "test")
    wrong += [f"make test: exit code {code}"] if code else []
    wrong += [f"make test does not say: {line}" for line in LEFT_OUT if line not in said]
    return wrong


def main(argv: Sequence[str]) -> int:
    """Returns the exit code of the command; 1 if README's commands do not do what they should."""
    root = argv[:1] == ["--root"]
    with fresh_machine(root=root) as machine:
        if command := argv[root:]:
            return machine.run(*command)[0]
        wrong = prove(machine)
    for line in wrong:
        print(f"on a fresh machine: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
