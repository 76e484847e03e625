"""A real sshd that lets in whoever has a Kerberos ticket, in a realm of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.doubles.kerberos_realm import PERSON, Realm
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.needs import need

METHODS = (
    "GSSAPIAuthentication yes",
    "GSSAPIStrictAcceptorCheck no",  # else only tickets for this machine's own name would count
    "PubkeyAuthentication no",
    "AuthenticationMethods gssapi-with-mic",
)


class KerberosSshd(LoopbackSshd):
    """Lets `PERSON` in as the current user. `start` and `close` mean the realm, too."""

    def __init__(self, folder: Path, *, alias: str = "node", lines: Sequence[str] = ()) -> None:
        need("Kerberos")
        self.realm = Realm(folder / "realm")
        environment = {**self.realm.environment, "KRB5_KTNAME": f"FILE:{self.realm.keytab}"}
        launcher = ["env", *(f"{name}={value}" for name, value in environment.items())]
        super().__init__(folder, alias=alias, lines=[*METHODS, *lines], launcher=launcher)
        self.realm.trust(PERSON, self.user)

    @property
    def environment(self) -> Mapping[str, str]:
        """What to add to the environment of a client."""
        return self.realm.environment

    def host_block(self, *, alias: str | None = None, lines: Sequence[str] = ()) -> str:
        return super().host_block(alias=alias, lines=[*lines, "GSSAPIAuthentication yes"])

    def start(self) -> None:
        self.realm.start()
        try:
            super().start()
        except RuntimeError:
            self.realm.close()
            raise

    def close(self) -> None:
        super().close()
        self.realm.close()
