"""A real sshd on a free loopback port, as the current user, with keys and files of its own."""

from __future__ import annotations

import contextlib
import functools
import getpass
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tests.needs import find, need
from tests.ports import free_port
from tests.processes import processes

_START_SECONDS = 10.0


@functools.cache
def _no_penalties() -> list[str]:
    """A line for OpenSSH 9.8 and newer, whose server would shut out the address of a login that failed."""
    told = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=True).stderr
    version = re.match(r"OpenSSH_(\d+)\.(\d+)", told)
    assert version, told
    return ["PerSourcePenalties no"] if tuple(map(int, version.groups())) >= (9, 8) else []


def make_key(path: Path, *, kind: str = "ed25519", passphrase: str = "") -> Path:
    """A new key pair as ssh-keygen makes it. Returns the private key's path."""
    key = {
        "ed25519": ed25519.Ed25519PrivateKey.generate,
        "ecdsa": lambda: ec.generate_private_key(ec.SECP256R1()),
        "rsa": lambda: rsa.generate_private_key(65537, 2048),  # found in a quarter of the time
    }[kind]()
    form = serialization.PrivateFormat.OpenSSH
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:  # made, and later opened, in a sixteenth of the time
        encryption = form.encryption_builder().kdf_rounds(1).build(passphrase.encode())
    path.touch(0o600)
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, encryption))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    Path(f"{path}.pub").write_bytes(public + b" test\n")
    return path


class LoopbackSshd:
    """Starts in the constructor; `close` ends it with all its connections.

    `ssh_config` has one Host block, `alias`, that logs in with `key` and knows the host key.
    """

    def __init__(
        self, folder: Path, *, alias: str = "node", lines: Sequence[str] = (), launcher: Sequence[str] = ()
    ) -> None:
        """Start one.

        Args:
            folder: empty, for everything it writes.
            alias: the host's name in `ssh_config`.
            lines: put at the top of sshd_config; sshd keeps the first value of a keyword.
            launcher: argv that executes the sshd command line given after it.
        """
        need("sshd")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.alias, self.user = folder, alias, getpass.getuser()
        self.port = free_port()
        self.home = folder / "home"
        """HOME of its sessions, so that nobody's start-up files count; a test may put its own there."""
        self.home.mkdir()
        self.host_key = make_key(folder / "host_key")
        self.key = make_key(folder / "id")
        self.authorized_keys = folder / "authorized_keys"
        self.authorize(self.key)
        self.known_hosts = folder / "known_hosts"
        self.know(self.host_key)
        self.ssh_config = folder / "ssh_config"
        self.ssh_config.write_text(self.host_block())
        self._log = folder / "log"
        self._config = folder / "sshd_config"
        self._config.write_text("\n".join([*lines, *self._common_lines()]) + "\n")
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd's privilege separation folder
        self._argv = [*launcher, str(find("sshd")), "-D", "-e", "-f", str(self._config)]
        self.start()

    def start(self) -> None:
        """Start it again after `close`; the log goes on."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        self._wait()

    def _common_lines(self) -> list[str]:
        return [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.host_key}",
            f"AuthorizedKeysFile {self.authorized_keys}",
            "UsePAM no",
            "PermitRootLogin yes",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "StrictModes no",  # the folder lies below a world-writable /tmp
            "PidFile none",
            "UseDNS no",
            "MaxStartups 100:30:200",
            "LogLevel VERBOSE",
            f"SetEnv HOME={self.home}",
            *_no_penalties(),
        ]

    def host_block(self, *, alias: str | None = None, lines: Sequence[str] = ()) -> str:
        """A Host block for ssh_config; `lines` come first, and ssh keeps the first value."""
        options = [
            *lines,
            "HostName 127.0.0.1",
            f"Port {self.port}",
            f"User {self.user}",
            f"IdentityFile {self.key}",
            "IdentitiesOnly yes",
            "IdentityAgent none",
            f"UserKnownHostsFile {self.known_hosts}",
            "GlobalKnownHostsFile none",
        ]
        return f"Host {alias or self.alias}\n" + "".join(f"    {line}\n" for line in options)

    def authorize(self, key: Path) -> None:
        """Let a key log in."""
        with self.authorized_keys.open("a") as file:
            file.write(Path(f"{key}.pub").read_text())

    def know(self, host_key: Path) -> None:
        """Make `known_hosts` hold this host key for this server, and nothing else."""
        kind, blob, *_ = Path(f"{host_key}.pub").read_text().split()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {kind} {blob}\n")

    def log(self) -> str:
        """What sshd has logged so far."""
        return self._log.read_text(errors="replace")

    def accepted_logins(self) -> int:
        """How many logins it has accepted."""
        return len(re.findall(r"^Accepted \S+ for ", self.log(), re.MULTILINE))

    def sessions(self) -> list[int]:
        """Process ids of the sshd processes that serve connections now."""
        return list(_descendants(self._process.pid))

    def drop_connections(self) -> None:
        """Kill every connection, as a crashing login node does; the server goes on listening."""
        for pid, name in _descendants(self._process.pid).items():
            if "sshd" in name:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """End the server and its connections."""
        self.drop_connections()
        self._process.terminate()
        self._process.wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.02)
        self._process.kill()
        raise RuntimeError(f"sshd did not start: {self.log()}")


def _descendants(root: int) -> dict[int, str]:
    """Their names by process id."""
    children: dict[int, dict[int, str]] = {}
    for process in processes():
        children.setdefault(process.parent, {})[process.pid] = process.name
    found: dict[int, str] = {}
    todo = [root]
    while todo:
        below = children.get(todo.pop(), {})
        found |= below
        todo += below
    return found
