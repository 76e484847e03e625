"""What the user's ssh_config says about a host. OpenSSH itself is asked (`ssh -G`); we only read its answer.

Where ssh is missing, paramiko's own reader stands in; it knows no `Include` and runs no `Match exec`, so a
configuration that has one is refused instead of being half read. Sources: ssh(1) -G, ssh_config(5).
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clusterkit import folders
from clusterkit.errors import TransportError

SSH_PORT = 22
CONNECT_SECONDS = 15.0
_SSH_G_SECONDS = 60.0
_MAX_HOPS = 8
_DESTINATION = re.compile(
    r"(?:ssh://)?(?:(?P<user>.+)@)?(?P<host>\[[^]]+\]|[^:/@\s]+)(?::(?P<port>\d+))?/?",
)

_SHELL = re.compile(r"""['"`;&<>|(){}\s\x00-\x1f\x7f]|[$\\](?!.*@)""")
"""What OpenSSH 9.6 and later refuse in a user or host, because a ProxyCommand hands both to a shell."""

_STRICTNESS: dict[str, Literal["ask", "accept", "refuse"]] = {
    "true": "refuse",  # as ssh -G prints "yes"
    "yes": "refuse",
    "accept-new": "accept",
    "false": "accept",  # "no" and "off"; OpenSSH would take a changed key too
    "no": "accept",
    "off": "accept",
}

_DEFAULT_KEYS = frozenset(
    f"id_{kind}" for kind in ("rsa", "dsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk", "xmss")
)
_OPENSSH_ONLY = (
    "ProxyJump",
    "ProxyCommand",
    "CertificateFile",
    "PKCS11Provider",
    "KnownHostsCommand",
    "RevokedHostKeys",
)
"""What paramiko cannot do, or what we would have to write anew for it."""


@dataclass(frozen=True)
class HostConfig:
    """One host, resolved: everything a login needs to know."""

    alias: str
    """As the user named it; used in messages."""
    hostname: str
    port: int
    user: str
    identity_files: tuple[Path, ...] = ()
    """Private keys to try, in order; absent files are normal."""
    identities_only: bool = False
    """Whether the agent may offer only the keys in `identity_files`."""
    identity_agent: str | None = None
    """Socket of the agent; None is SSH_AUTH_SOCK, `none` is no agent."""
    known_hosts: tuple[Path, ...] = ()
    """Files of known host keys; new ones are written to the first."""
    hash_known_hosts: bool = False
    new_host_keys: Literal["ask", "accept", "refuse"] = "ask"
    """What StrictHostKeyChecking says of a host that is not known. A changed key is always refused."""
    host_key_alias: str | None = None
    proxy_jump: tuple[str, ...] = ()
    proxy_command: str | None = None
    connect_timeout: float = CONNECT_SECONDS
    control_path: Path | None = None
    """The control socket of the user's own master, if the configuration names one."""
    kerberos: bool = False
    """Whether ssh may log in with a Kerberos ticket (GSSAPIAuthentication)."""
    openssh_only: tuple[str, ...] = ()
    """Keywords in effect that only OpenSSH itself carries out."""
    config: Path | None = None
    """The ssh_config it came from when it is not the user's own."""

    @property
    def address(self) -> str:
        """`host:port` for messages."""
        return f"[{self.hostname}]:{self.port}" if ":" in self.hostname else f"{self.hostname}:{self.port}"

    @property
    def missing_keys(self) -> list[Path]:
        """Files that IdentityFile names and that do not exist; `ssh -G` names the usual ones in any case."""
        return [
            path
            for path in self.identity_files
            if not path.is_file() and not (path.parent.name == ".ssh" and path.name in _DEFAULT_KEYS)
        ]

    @property
    def ssh_command(self) -> str:
        """What the user would type to log in by hand."""
        return f"ssh -F {self.config} {self.alias}" if self.config else f"ssh {self.alias}"


@dataclass(frozen=True)
class Destination:
    """One hop of a ProxyJump, taken apart."""

    host: str
    user: str | None
    port: int | None


def parse_destination(text: str) -> Destination:
    """Takes `[ssh://][user@]host[:port]` apart.

    Raises:
        TransportError: it is not of that form.
    """
    match = _DESTINATION.fullmatch(text.strip())
    if match is None:
        raise TransportError(
            f"not a host name: {text!r}", hint="write host, user@host or ssh://user@host:port"
        )
    port = match["port"]
    return Destination(match["host"].strip("[]"), match["user"], int(port) if port else None)


def resolve(
    destination: str, *, config: Path | None = None, user: str | None = None, port: int | None = None
) -> HostConfig:
    """Asks ssh what it would do for `destination`.

    Args:
        destination: what one would type after `ssh`.
        config: instead of the user's and the system's ssh_config.
        user: overrides the configuration, as `ssh -l` does.
        port: overrides the configuration, as `ssh -p` does.

    Raises:
        TransportError: the configuration has an error, or the name is not valid.
    """
    if config is not None and not config.is_file():
        raise TransportError(
            f"ssh configuration {config} does not exist",
            hint="correct the cluster's `ssh_config` in your settings, or --ssh-config",
        )
    if not destination or destination.startswith("-") or _SHELL.search(destination):
        raise TransportError(f"not a host name: {destination!r}")
    argv = ["ssh", "-G", "-T"]
    argv += ["-F", str(config)] if config is not None else []
    argv += ["-l", user] if user is not None else []
    argv += ["-p", str(port)] if port is not None else []
    try:
        answer = subprocess.run(
            [*argv, "--", destination],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_SSH_G_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        return _resolve_without_ssh(destination, config, user, port)
    except subprocess.TimeoutExpired:
        raise TransportError(
            f"ssh -G {destination} did not answer within {_SSH_G_SECONDS:g} s",
            hint="a `Match exec` command in the ssh configuration may hang",
        ) from None
    if answer.returncode != 0:
        lines = answer.stderr.decode("utf-8", "replace").strip().splitlines()
        faults = [line for line in lines if re.search(r"\bline \d+:", line)] or lines[-1:]
        unknown = re.search(r"Bad configuration option: (\S+)", " ".join(faults))
        raise TransportError(
            f"ssh cannot resolve {destination}: {'; '.join(faults) or 'ssh -G failed'}",
            hint="correct the ssh configuration"
            + (f"; `IgnoreUnknown {unknown[1]}` above the line lets ssh skip the option" if unknown else ""),
        )
    text = answer.stdout.decode("utf-8", "surrogateescape")
    return parse_ssh_g(text, alias=destination, config=config)


def refuse_circles(host: HostConfig) -> None:
    """Refuses a ProxyJump that leads back to itself: ssh would start one process after another, without end.

    Of several hops only the first uses a ProxyJump of its own.

    Raises:
        TransportError: it is circular, or a hop cannot be resolved.
    """
    hop, passed = host, {host.alias}
    while hop.proxy_jump:
        step = parse_destination(hop.proxy_jump[0])
        if step.host in passed or len(passed) > _MAX_HOPS:
            raise TransportError(
                f"the ProxyJump of {host.alias} is circular",
                hint="give the jump host a Host block of its own with `ProxyJump none`",
            )
        passed.add(step.host)
        hop = resolve(step.host, config=host.config, user=step.user, port=step.port)


def parse_ssh_g(
    text: str, *, alias: str, config: Path | None = None, environment: Mapping[str, str] | None = None
) -> HostConfig:
    """Reads the output of `ssh -G`. Pure, but for the home folder and the environment it expands.

    ssh -G leaves `~`, `%h` and `${VAR}` in IdentityFile and `%h` in the Proxy options as they are.
    """
    values: dict[str, list[str]] = {}
    for line in text.split("\n"):
        key, _, value = line.partition(" ")
        values.setdefault(key, []).append(value)
    first = {key: listed[0] for key, listed in values.items()}
    hostname, user = first["hostname"].strip("[]"), first["user"]
    expand = _Expander(
        alias=alias,
        hostname=hostname,
        port=first["port"],
        user=user,
        environment=os.environ if environment is None else environment,
    )
    known_files = f"{first.get('userknownhostsfile', '')} {first.get('globalknownhostsfile', '')}".split(" ")
    timeout = first.get("connecttimeout", "none")
    agent = _set(first.get("identityagent"), unset="SSH_AUTH_SOCK")
    command = _set(first.get("proxycommand"))
    control = _set(first.get("controlpath"))
    return HostConfig(
        alias=alias,
        hostname=hostname,
        port=int(first["port"]),
        user=user,
        identity_files=tuple(Path(expand.path(key)) for key in values.get("identityfile", []) if _set(key)),
        identities_only=first.get("identitiesonly") == "yes",
        identity_agent="none" if first.get("identityagent") == "none" else agent and expand.path(agent),
        known_hosts=tuple(Path(expand.path(name)) for name in known_files if name and _set(name)),
        hash_known_hosts=first.get("hashknownhosts") == "yes",
        new_host_keys=_STRICTNESS.get(first.get("stricthostkeychecking", "ask"), "ask"),
        host_key_alias=first.get("hostkeyalias"),
        proxy_jump=tuple(
            hop.strip() for hop in (_set(first.get("proxyjump")) or "").split(",") if hop.strip()
        ),
        proxy_command=expand.tokens(command) if command else None,
        connect_timeout=float(timeout) if timeout.isdigit() and int(timeout) else CONNECT_SECONDS,
        control_path=Path(expand.path(control)) if control else None,
        kerberos=first.get("gssapiauthentication") == "yes",
        openssh_only=tuple(word for word in _OPENSSH_ONLY if _set(first.get(word.lower()))),
        config=config,
    )


def _set(value: str | None, *, unset: str = "none") -> str | None:
    return None if value is None or value.lower() in ("none", unset.lower()) else value


class _Expander:
    """Expands what ssh_config(5), TOKENS and ENVIRONMENT VARIABLES, describe."""

    def __init__(
        self, *, alias: str, hostname: str, port: str, user: str, environment: Mapping[str, str]
    ) -> None:
        self._environment = environment
        self._home = environment.get("HOME") or str(folders.home_or_root())
        name = alias.rpartition("@")[2]
        local_user = environment.get("USER") or folders.user_name()
        self._tokens = {
            "%": "%",
            "h": hostname,
            "n": name,
            "p": port,
            "r": user,
            "d": self._home,
            "u": local_user,
        }
        self._tokens["i"] = str(os.getuid())
        self._tokens["k"] = name

    def tokens(self, text: str) -> str:
        return re.sub(r"%(.)", lambda match: self._tokens.get(match[1], match[0]), text)

    def path(self, text: str) -> str:
        def variable(match: re.Match[str]) -> str:
            if match[1] not in self._environment:
                raise TransportError(f"ssh configuration: the variable {match[1]} in {text} is not set")
            return self._environment[match[1]]

        expanded = re.sub(r"\$\{(\w+)\}", variable, self.tokens(text))
        return re.sub(r"^~(?=/|$)", lambda _: self._home, expanded)


def _resolve_without_ssh(
    destination: str, config: Path | None, user: str | None, port: int | None
) -> HostConfig:
    import paramiko

    wanted = parse_destination(destination)
    path = config or folders.home_or_root() / ".ssh" / "config"
    text = path.read_text("utf-8-sig", "replace") if path.exists() else ""
    beyond = re.search(r"^\s*(?:(include)\s|(match)\s.*\bexec\b)", text, re.IGNORECASE | re.MULTILINE)
    if beyond:
        what = "Include" if beyond[1] else "Match exec"
        raise TransportError(
            f"{path} has {what} lines, but the ssh program, which reads them, is not installed",
            hint="install OpenSSH's client: apt install openssh-client, dnf install openssh-clients",
        )
    settings = paramiko.SSHConfig.from_text(text).lookup(wanted.host)
    defaults = {
        "hostname": wanted.host,
        "port": str(SSH_PORT),
        "user": folders.user_name(),
        "userknownhostsfile": "~/.ssh/known_hosts",
        "globalknownhostsfile": "/etc/ssh/ssh_known_hosts",
    }
    single = {key: value for key, value in settings.items() if isinstance(value, str)}
    merged = {**defaults, **single}
    merged["user"] = user or wanted.user or merged["user"]
    merged["port"] = str(port or wanted.port or merged["port"])
    if not re.fullmatch(r"[0-9]{1,5}", merged["port"]) or not 0 < int(merged["port"]) < 1 << 16:
        raise TransportError(f"{path}: Bad port {merged['port']!r}", hint="correct the ssh configuration")
    files = settings.get("identityfile", ["~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa"])
    lines = [f"{key} {value}" for key, value in merged.items()] + [f"identityfile {file}" for file in files]
    return parse_ssh_g("\n".join(lines), alias=destination, config=config)
