"""Host keys: our reader must agree with OpenSSH's, and name file, fingerprint and next step."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.transport.known_hosts import HostKeyVerdict, fingerprint, parse, read
from clusterkit.transport.resolve import HostConfig, resolve
from tests.doubles.loopback_sshd import LoopbackSshd, make_key
from tests.needs import needing


def host(**other: object) -> HostConfig:
    fixed = {"alias": "hpc", "hostname": "login.example", "port": 22, "user": "me"}
    return HostConfig(**{**fixed, **other})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """Type and base64 blob of some host keys."""
    folder = tmp_path_factory.mktemp("keys")
    made = {"ed": "ed25519", "other": "ed25519", "rsa": "rsa", "ecdsa": "ecdsa"}
    paths = {name: make_key(folder / name, kind=kind) for name, kind in made.items()}
    words = {name: Path(f"{path}.pub").read_text().split() for name, path in paths.items()}
    return {name: (kind, blob) for name, (kind, blob, _) in words.items()}


def line(name: str, key: tuple[str, str], marker: str = "") -> str:
    return f"{marker} {name} {key[0]} {key[1]}\n".lstrip(" ")


def verdict(text: str, **other: object) -> HostKeyVerdict:
    return HostKeyVerdict(host(**other), parse(text.encode(), Path("/kh")))


def check(judge: HostKeyVerdict, key: tuple[str, str]) -> None:
    judge.check(key[0], base64.b64decode(key[1]))


NAMES = [
    ("login.example", 22, True),
    ("LOGIN.example", 22, True),
    ("other.example", 22, False),
    ("a,login.example,b", 22, True),
    ("*.example", 22, True),
    ("login.exampl?", 22, True),
    ("*.example,!login.example", 22, False),
    ("!other.example,*.example", 22, True),
    ("[login.example]:2222", 2222, True),
    ("[login.example]:2222", 22, False),
    ("[login.example]:22", 2222, False),
    ("login.example", 2222, True),  # OpenSSH falls back to the name without the port
    ("login.example.evil", 22, False),
    ("login.e\u212axample,login.\u0435xample", 22, False),
    ("login.example," + "x" * 1022, 22, True),
    ("login.example," + "x" * 1023, 22, False),  # OpenSSH gives up the line
    ("# a comment\flogin.example", 22, False),
    ("# a comment\vlogin.example", 22, False),
    ("# a comment\u2028login.example", 22, False),
    ("# a comment\x85login.example", 22, False),
    ("*.example,!login.example,\flogin.example", 22, False),
    ("\vlogin.example", 22, False),
    ("a\u2028login.example", 22, False),
]


def decide(path: Path, port: int, key: tuple[str, str]) -> bool:
    """Whether a file lets the key pass; the type it names must then be asked for first."""
    judge = HostKeyVerdict(host(port=port), read([path.with_name("absent"), path]))
    try:
        check(judge, key)
    except TransportError:
        return False
    assert judge.algorithms == ["ssh-ed25519"]
    return True


@pytest.mark.slow
@pytest.mark.parametrize(("patterns", "port", "known"), NAMES)
def test_names_match_as_openssh_matches_them(
    patterns: str, port: int, known: bool, keys: dict[str, tuple[str, str]], tmp_path: Path
) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(line(patterns, keys["ed"]))
    assert decide(path, port, keys["ed"]) == known
    if port == 22:
        found = subprocess.run(
            ["ssh-keygen", "-F", "login.example", "-f", path], capture_output=True, check=False
        )
        assert (found.returncode == 0) == known


@pytest.mark.needs("ssh-keygen")
@pytest.mark.parametrize(
    ("patterns", "port", "known"), [one for one in NAMES if not set(one[0]) & set("*?!,\f\v\u2028\x85")]
)
def test_hashed_names_match_too(
    patterns: str, port: int, known: bool, keys: dict[str, tuple[str, str]], tmp_path: Path
) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(line(patterns, keys["ed"]))
    subprocess.run(["ssh-keygen", "-H", "-f", path], check=True, capture_output=True)
    assert path.read_text().startswith("|1|")
    assert decide(path, port, keys["ed"]) == known


def test_a_host_key_alias_replaces_name_and_port(keys: dict[str, tuple[str, str]]) -> None:
    check(verdict(line("gate", keys["ed"]), host_key_alias="gate", port=2222), keys["ed"])


def test_an_unknown_key_names_fingerprint_file_and_next_step(keys: dict[str, tuple[str, str]]) -> None:
    judge = verdict("", known_hosts=(Path("/home/me/.ssh/known_hosts"),), config=Path("/my/config"))
    with pytest.raises(TransportError) as caught:
        check(judge, keys["ed"])
    key = fingerprint(base64.b64decode(keys["ed"][1]))
    assert caught.value.cause == (
        f"the host key of hpc (login.example:22) is not known: ssh-ed25519 {key} "
        "is not in /home/me/.ssh/known_hosts"
    )
    assert caught.value.hint
    assert caught.value.hint.endswith("ssh -F /my/config hpc")


def test_a_changed_key_names_both_and_the_line(keys: dict[str, tuple[str, str]]) -> None:
    judge = verdict("# comment\n\n" + line("[login.example]:2222", keys["ed"]), port=2222)
    with pytest.raises(TransportError, match=r"has changed: .*, and /kh line 3 says SHA256:") as caught:
        check(judge, keys["other"])
    assert caught.value.hint
    assert "ssh-keygen -R '[login.example]:2222' -f /kh" in caught.value.hint


def test_a_key_of_another_type_is_not_known(keys: dict[str, tuple[str, str]]) -> None:
    with pytest.raises(TransportError, match=r"is not known: .* \(known there: ssh-ed25519\)"):
        check(verdict(line("login.example", keys["ed"])), keys["ecdsa"])


def test_a_revoked_key_is_refused_even_when_listed(keys: dict[str, tuple[str, str]]) -> None:
    text = line("login.example", keys["ed"]) + line("*", keys["ed"], "@revoked")
    with pytest.raises(TransportError, match="marked as revoked"):
        check(verdict(text), keys["ed"])


def test_other_markers_and_junk_do_not_spoil_the_file(keys: dict[str, tuple[str, str]]) -> None:
    text = line("*.example", keys["rsa"], "@cert-authority") + "junk\n|1|broken ssh-ed25519 AAAA\nx y z\n"
    check(verdict(text + line("login.example", keys["ed"])), keys["ed"])
    with pytest.raises(TransportError, match="is not known"):
        check(verdict(text), keys["ed"])


def test_the_known_types_are_asked_for_first(keys: dict[str, tuple[str, str]]) -> None:
    text = line("login.example", keys["rsa"]) + line("login.example", keys["ecdsa"])
    expected = ["rsa-sha2-512", "rsa-sha2-256", "ecdsa-sha2-nistp256"]
    assert verdict(text).algorithms == expected


@pytest.fixture(scope="module")
@needing("sshd")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackSshd]:
    with closing(LoopbackSshd(tmp_path_factory.mktemp("known") / "sshd")) as running:
        yield running


def agreed(server: LoopbackSshd, *options: str) -> bool:
    """Whether the server's key passes, here and with OpenSSH."""
    argv = ["ssh", "-F", str(server.ssh_config), "-o", "StrictHostKeyChecking=yes", *options, "node", "true"]
    theirs = subprocess.run(argv, capture_output=True, check=False).returncode == 0
    config = server.folder / "with_options"
    lines = [option for option in options if option != "-o"]
    config.write_text(server.host_block(lines=lines))
    found = resolve("node", config=config)
    shown = Path(f"{server.host_key}.pub").read_text().split()
    try:
        check(HostKeyVerdict(found, read(found.known_hosts)), (shown[0], shown[1]))
    except TransportError:
        assert not theirs, "OpenSSH accepts it"
        return False
    assert theirs, "OpenSSH refuses it"
    return True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "known"),
    [
        (["127.0.0.1 KEY"], True),
        (["[127.0.0.1]:PORT OTHER", "127.0.0.1 KEY"], False),  # what is known of the port counts
        (["[127.0.0.1]:PORT RSA", "?27.0.0.1,!*:PORT KEY"], False),
        (["[127.0.0.1]:PORT OTHER", "[*]:PORT KEY"], True),
        (["*,![127.0.0.1]:PORT KEY"], True),  # it excludes the port alone, and without it the host is known
        (["*,![127.0.0.1]:PORT,!127.0.0.1 KEY"], False),
        (["* KEY-AS-RSA"], False),
        (["* KEY", "@revoked * KEY"], False),
        (["* KEY", "@revoked * KEY\f"], False),
        (["* KEY", "@revoked *,!127.0.0.1,![127.0.0.1]:PORT KEY"], True),
    ],
)
def test_the_verdict_is_that_of_openssh(
    lines: list[str], known: bool, server: LoopbackSshd, keys: dict[str, tuple[str, str]]
) -> None:
    own = Path(f"{server.host_key}.pub").read_text().split()
    stands_for = {
        "KEY-AS-RSA": f"ssh-rsa {own[1]}",
        "KEY": f"{own[0]} {own[1]}",
        "OTHER": " ".join(keys["other"]),
        "RSA": " ".join(keys["rsa"]),
        "PORT": str(server.port),
    }
    text = "\n".join(lines)
    for word, meaning in stands_for.items():
        text = text.replace(word, meaning)
    server.known_hosts.write_text(f"{text}\n")
    assert agreed(server) == known


@pytest.mark.needs("ssh-keygen")
def test_fingerprints_are_those_of_ssh_keygen(keys: dict[str, tuple[str, str]], tmp_path: Path) -> None:
    for kind, blob in keys.values():
        (tmp_path / "key.pub").write_text(f"{kind} {blob}\n")
        shown = subprocess.run(
            ["ssh-keygen", "-l", "-f", tmp_path / "key.pub"], capture_output=True, text=True
        )
        assert fingerprint(base64.b64decode(blob)) in shown.stdout.split()


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match=f"cannot read the known host keys in {tmp_path}"):
        read([tmp_path])
