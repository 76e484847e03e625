"""A real Kerberos realm on loopback: its key distribution centre, its principals, their keys and tickets.

Database, keys, configuration, log and tickets lie in one folder; nothing of this machine's Kerberos is read
or changed. People have their keys in a file, so that nobody types a password.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.needs import find
from tests.ports import free_port

REALM = "CLUSTER.TEST"
PERSON = f"person@{REALM}"
HOSTS = ("127.0.0.1", "localhost")
"""What clients may call a server (`HostName`): tickets are for one of these names."""
_START_SECONDS = 10.0
_KRB5_CONF = """\
[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
qualify_shortname = ""
udp_preference_limit = 1
default_client_keytab_name = FILE:{folder}/none
default_rcache_name = file2:{folder}/replays
k5login_directory = {folder}/k5login
[realms]
{realm} = {{
    kdc = 127.0.0.1:{port}
}}
"""
_KDC_CONF = """\
[kdcdefaults]
kdc_listen = ""
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{realm} = {{
    database_name = {folder}/principals
    key_stash_file = {folder}/stash
}}
[logging]
default = FILE:{folder}/log
"""


class Realm:
    """Knows `PERSON` and `HOSTS`. Gives tickets from `start` to `close`."""

    def __init__(self, folder: Path) -> None:
        """Make one in a folder that is not there yet."""
        folder.mkdir(parents=True)
        self.folder, self.port = folder, free_port()
        self.keytab = folder / "hosts.keytab"
        """The keys of a server on any of `HOSTS`."""
        self._people = folder / "people.keytab"
        self._process: subprocess.Popen[bytes] | None = None
        where = {"realm": REALM, "folder": folder, "port": self.port}
        (folder / "krb5.conf").write_text(_KRB5_CONF.format(**where))
        (folder / "kdc.conf").write_text(_KDC_CONF.format(**where))
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        hosts = [f"host/{host}@{REALM}" for host in HOSTS]
        new = [f"addprinc -randkey {name}" for name in (PERSON, *hosts)]
        new += [f"ktadd -k {self._people} {PERSON}", f"ktadd -k {self.keytab} {' '.join(hosts)}"]
        self._run("kadmin.local", "-r", REALM, text="".join(f"{line}\n" for line in new))

    @property
    def environment(self) -> Mapping[str, str]:
        """What to add to the environment of clients and servers, that they use this realm and no other."""
        return {"KRB5_CONFIG": f"{self.folder}/krb5.conf", "KRB5CCNAME": f"FILE:{self.folder}/tickets"}

    def trust(self, person: str, user: str) -> None:
        """Let a principal, and nobody else, log in as a user of this machine."""
        folder = self.folder / "k5login"
        folder.mkdir(exist_ok=True)
        (folder / user).write_text(f"{person}\n")

    def ticket(self) -> None:
        """Get a ticket in place of all before; those for servers follow from it without a question."""
        self._run("kinit", "-k", "-t", str(self._people), "-l", "600s", PERSON)

    def destroy(self) -> None:
        """Throw all tickets away."""
        self._run("kdestroy")

    def start(self) -> None:
        """Start the key distribution centre, unless it runs."""
        if self._process is not None:
            return
        self._process = subprocess.Popen(
            [str(find("krb5kdc")), "-n", "-r", REALM],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + _START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.02)
        self.close()
        raise RuntimeError(f"krb5kdc did not start: {(self.folder / 'log').read_text()}")

    def close(self) -> None:
        """End the key distribution centre; tickets that it gave stay good."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def _run(self, name: str, *arguments: str, text: str = "") -> None:
        argv = [str(find(name)), *arguments]
        done = subprocess.run(argv, env=self._environment(), input=text, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{name}: {done.stderr.strip()}")

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.environment, "KRB5_KDC_PROFILE": f"{self.folder}/kdc.conf"}
