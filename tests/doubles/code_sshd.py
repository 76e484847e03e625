"""A real sshd that wants a key and then a one-time code, each of which works once (HOTP, RFC 4226).

Counter-based codes need no clock: nothing here can fail because a test was slow. PAM's configuration is
the server's own, in a mount namespace; the machine's is untouched.
"""

from __future__ import annotations

import hmac
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.doubles.loopback_sshd import LoopbackSshd
from tests.needs import need

SECRET = b"12345678901234567890"
"""The one of RFC 4226, appendix D."""
WINDOW = 20
"""How many codes ahead the server looks."""
METHODS = (
    "UsePAM yes",
    "KbdInteractiveAuthentication yes",
    "AuthenticationMethods publickey,keyboard-interactive:pam",
)
_IN_PRIVATE = 'mount -t tmpfs pam /etc/pam.d && cp "$0" /etc/pam.d/sshd && exec "$@"'


def hotp(counter: int) -> str:
    """The code number `counter` (RFC 4226, 5.3)."""
    digest = hmac.digest(SECRET, struct.pack(">Q", counter), "sha1")
    start = digest[-1] & 15
    (number,) = struct.unpack(">I", digest[start : start + 4])
    return f"{(number & 0x7FFFFFFF) % 1_000_000:06}"


def users_file(user: str, kind: str = "HOTP") -> str:
    """Content of pam_oath's file; `HOTP/T30/6` are codes that change every 30 s."""
    return f"{kind} {user} - {SECRET.hex()}\n"


def pam_service(users: str, *, module: str = "pam_oath.so") -> str:
    """A PAM service that asks for a code and nothing else."""
    return (
        f"auth required {module} usersfile={users} window={WINDOW} digits=6\n"
        "account required pam_permit.so\nsession required pam_permit.so\n"
    )


class Codes:
    """The token in a person's hand."""

    def __init__(self) -> None:
        self.used = 0

    def next(self) -> str:
        """A code that has not been shown before."""
        code = hotp(self.used)
        self.used += 1
        return code


class CodeSshd(LoopbackSshd):
    """See the module; `codes` is the user's token."""

    def __init__(
        self, folder: Path, *, alias: str = "node", kind: str = "HOTP", lines: Sequence[str] = ()
    ) -> None:
        need("one-time codes")
        folder.mkdir(parents=True, exist_ok=True)
        self.codes = Codes()
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        users, service = folder / "users.oath", folder / "pam"
        users.write_text(users_file(user, kind))
        users.chmod(0o600)
        service.write_text(pam_service(str(users)))
        launcher = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _IN_PRIVATE, str(service)]
        super().__init__(folder, alias=alias, lines=[*METHODS, *lines], launcher=launcher)
