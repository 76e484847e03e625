"""What ssh says, and what becomes of it: each text is what OpenSSH 9.2 has written in such a case."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clusterkit.transport.faults import UnreachableError
from clusterkit.transport.known_hosts import HostKeyError, UnknownHostError
from clusterkit.transport.openssh.errors import explain
from clusterkit.transport.resolve import HostConfig

HOST = HostConfig(alias="hpc", hostname="login.hpc.example", port=22, user="me", known_hosts=(Path("known"),))
WHERE = "hpc (login.hpc.example:22)"

CHANGED = """@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\r
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\r
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!\r
The fingerprint for the ED25519 key sent by the remote host is\n\
SHA256:Wq0oDqkSyRkbXfM4bYvvpYhl2JZ7r3BuR4hT4yPRu1U.\r
Offending ED25519 key in /home/me/.ssh/known_hosts:3\r
Host key for login.hpc.example has changed and you have requested strict checking.\r
Host key verification failed.\r
"""


@pytest.mark.parametrize(
    ("said", "kind", "cause", "hint"),
    [
        (
            CHANGED,
            HostKeyError,
            f"the host key of {WHERE} has changed: the server shows "
            "SHA256:Wq0oDqkSyRkbXfM4bYvvpYhl2JZ7r3BuR4hT4yPRu1U; ssh says: Host key verification failed.",
            "someone may be listening",
        ),
        (
            "@@@@@@@@@@@@\r\n@       WARNING: REVOKED HOST KEY DETECTED!               @\r\n"
            "The ED25519 host key for login.hpc.example is marked as revoked.\r\n"
            "Host key verification failed.\r\n",
            HostKeyError,
            f"the host key of {WHERE} is marked as revoked; ssh says: Host key verification failed.",
            "do not log in",
        ),
        (
            "No ED25519 host key is known for login.hpc.example and you have requested strict checking.\r\n"
            "Host key verification failed.\r\n",
            UnknownHostError,
            f"the host key of {WHERE} is not known; ssh says: Host key verification failed.",
            "accept it once with --accept-new (`init`, `login`) or with: ssh hpc",
        ),
        (
            "Certificate invalid: name is not a listed principal\r\nHost key verification failed.\r\n",
            UnknownHostError,
            f"the host key of {WHERE} is not known (Certificate invalid: name is not a listed principal); "
            "ssh says: Host key verification failed.",
            "compare it",
        ),
        (
            "ssh: Could not resolve hostname login.hpc.example: Name or service not known\r\n",
            UnreachableError,
            f"{WHERE} cannot be reached; ssh says: ssh: Could not resolve hostname login.hpc.example: "
            "Name or service not known",
            "check the spelling",
        ),
        (
            "ssh: connect to host login.hpc.example port 22: Connection refused\r\n",
            UnreachableError,
            f"{WHERE} cannot be reached; ssh says: ssh: connect to host login.hpc.example port 22: "
            "Connection refused",
            "check host, port and network",
        ),
        (
            "kex_exchange_identification: read: Connection reset by peer\r\n"
            "Connection reset by 10.0.0.1 port 22\r\n",
            UnreachableError,
            f"{WHERE} cannot be reached; ssh says: Connection reset by 10.0.0.1 port 22",
            "a server drops connections for a while after several failed logins",
        ),
        (
            "me@login.hpc.example: Permission denied (publickey,keyboard-interactive).\r\n",
            Exception,
            f"{WHERE} refuses the login of me; ssh says: me@login.hpc.example: "
            "Permission denied (publickey,keyboard-interactive).",
            "it asks for a password or a code: run the command, or `clusterkit login`, in a terminal",
        ),
        (
            "Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures\r\n"
            "Disconnected from 10.0.0.1 port 22\r\n",
            Exception,
            f"{WHERE} refuses the login of me; ssh says: Received disconnect from 10.0.0.1 port 22:2: "
            "Too many authentication failures",
            "check user and key",
        ),
        (
            "/home/me/.ssh/config: line 2: Bad configuration option: wrong\r\n"
            "/home/me/.ssh/config: terminating, 1 bad configuration options\r\n",
            Exception,
            f"ssh cannot log in to {WHERE}: /home/me/.ssh/config: terminating, 1 bad configuration options",
            "try it by hand: ssh hpc",
        ),
        ("", Exception, f"ssh cannot log in to {WHERE}: ssh gave no reason", "try it by hand"),
    ],
    ids=[
        "changed",
        "revoked",
        "unknown",
        "host certificate",
        "no such name",
        "nothing listens",
        "dropped",
        "codes",
        "too many",
        "bad config",
        "silent",
    ],
)
def test_an_error_of_ssh(said: str, kind: type[Exception], cause: str, hint: str) -> None:
    error = explain(HOST, said)
    assert isinstance(error, kind)
    assert error.cause == cause
    assert error.hint is not None
    assert hint in error.hint


def test_a_refused_code_after_questions() -> None:
    error = explain(HOST, "me@h: Permission denied (keyboard-interactive).\r\n", asked=True)
    assert error.hint == "a code works only once and only briefly: wait for the next one, then try again"


def test_a_key_file_that_is_missing(tmp_path: Path) -> None:
    usual = tmp_path / ".ssh" / "id_rsa"
    host = replace(HOST, identity_files=(usual, tmp_path / "gone"))
    error = explain(host, "me@h: Permission denied (publickey).\r\n")
    assert error.hint == f"correct IdentityFile in the ssh configuration: {tmp_path / 'gone'} does not exist"


def test_a_jump_host_that_says_nothing() -> None:
    host = HostConfig(alias="hpc", hostname="inner", port=22, user="me", proxy_jump=("gate", "second"))
    error = explain(host, "Connection closed by UNKNOWN port 65535\r\n")
    assert error.cause == (
        "hpc (inner:22) cannot be reached through gate, second; "
        "ssh says: Connection closed by UNKNOWN port 65535"
    )
    assert error.hint == "to see what the host in between objects to: ssh hpc"
