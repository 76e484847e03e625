"""An authority whose certificates say who logs in and which host this is, and a real sshd that uses both."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.doubles.loopback_sshd import LoopbackSshd, make_key

VALID = "always:forever"
EXPIRED = "20200101:20200102"


class Authority:
    """A key that signs other keys; who trusts it needs to know none of those."""

    def __init__(self, folder: Path, *, kind: str = "ed25519") -> None:
        """Make its key in `folder`, of a kind that `make_key` knows."""
        folder.mkdir(parents=True, exist_ok=True)
        self.key = make_key(folder / "authority", kind=kind)

    def sign_user(self, key: Path, user: str, *, valid: str = VALID) -> Path:
        """Certify that a key is this user's. Returns the certificate.

        It lies beside the key, where ssh finds it. `valid` is an interval as `ssh-keygen -V` takes it.
        """
        return self._sign(key, "-n", user, "-V", valid)

    def sign_host(self, key: Path, *names: str, valid: str = VALID) -> Path:
        """Certify that a key is that of a host with these names. Returns the certificate, beside the key."""
        return self._sign(key, "-h", "-n", ",".join(names), "-V", valid)

    def server_lines(self, host_key: Path) -> list[str]:
        """Lines of sshd_config: trust the users' certificates, and show that of the host key."""
        return [f"TrustedUserCAKeys {self.key}.pub", f"HostCertificate {host_key}-cert.pub"]

    def known_hosts_line(self, hosts: str) -> str:
        """A line of known_hosts: believe the certificates of hosts whose names match."""
        kind, blob, *_ = Path(f"{self.key}.pub").read_text().split()
        return f"@cert-authority {hosts} {kind} {blob}\n"

    def _sign(self, key: Path, *options: str) -> Path:
        argv = [
            "ssh-keygen",
            "-q",
            "-s",
            str(self.key),
            "-I",
            f"{key.name} of a test",
            *options,
            f"{key}.pub",
        ]
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, capture_output=True)
        return Path(f"{key}-cert.pub")


class CertifiedSshd(LoopbackSshd):
    """Knows no user's key and is known by none: only certificates of its authority count on both sides.

    `known_hosts` names the authority. `certify` gives the user's key a certificate; at first it has none.
    """

    def __init__(
        self, folder: Path, authority: Authority, *, alias: str = "node", lines: Sequence[str] = ()
    ) -> None:
        self.authority = authority
        own = [*authority.server_lines(folder / "host_key"), "AuthorizedKeysFile none"]
        super().__init__(folder, alias=alias, lines=[*own, *lines])
        self.known_hosts.write_text(authority.known_hosts_line(f"[127.0.0.1]:{self.port}"))

    def certify(self, *, valid: str = VALID) -> Path:
        """Give the user's key a certificate, in place of one before. Returns its path."""
        return self.authority.sign_user(self.key, self.user, valid=valid)

    def certify_host(self, *names: str, valid: str = VALID) -> None:
        """Give the host key another certificate; sshd shows it from its next `start` on."""
        self.authority.sign_host(self.host_key, *names, valid=valid)

    def start(self) -> None:
        if not Path(f"{self.host_key}-cert.pub").exists():
            self.certify_host("127.0.0.1")
        super().start()
