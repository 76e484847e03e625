"""Parses the survey script's output. Missing facts stay unknown. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from clusterkit import ownership
from clusterkit.backends.slurm.tables import NODES_BY_KIND, Association, Partition, SlurmTables
from clusterkit.backends.survey import FoundRuntime, Root, SiteSurvey
from clusterkit.errors import TransportError, last_words
from clusterkit.probes import MARK, TIME_UP, sections
from clusterkit.probes.space import DF, quota_left, quotas_left
from clusterkit.resources import page
from clusterkit.runtimes import all_runtimes

_VERSION = re.compile(r"\d+(?:\.\d+)+\S*")
_ODD = re.compile(rf"(?!{MARK} )[^\n\t -~]")
_UNREADABLE = "\ufffd"
"""Replaces control characters: a site's text is shown on terminals and in TOML comments."""

Parts = list[tuple[str, str, int]]
"""Name, text and exit status of each part, in order."""


@dataclass(frozen=True)
class Slurm:
    """The scheduler as a whole."""

    version: str | None = None
    tables: SlurmTables = field(default_factory=lambda: SlurmTables({}))
    """Configuration, partitions, nodes and QOS."""
    associations: tuple[Association, ...] = ()
    """Those that let the user have jobs."""
    default_account: str | None = None

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions with their nodes."""
        return tuple(self.tables.partitions.values())


@dataclass(frozen=True)
class SlurmSurvey(SiteSurvey):
    """The survey of a site with Slurm."""

    slurm: Slurm | None = None
    """None where no Slurm was found."""
    slurm_path: str | None = None
    """The folder of Slurm's commands if even a login shell does not have them on PATH."""
    modules: tuple[str, ...] = ()
    """Names of modules that offer Slurm or a container runtime."""

    @property
    def scheduler(self) -> str:
        """`Slurm 24.11.5`, or a text that there is none."""
        return f"Slurm {self.slurm.version or ''}".strip() if self.slurm else "no Slurm"

    @property
    def ready(self) -> bool:
        """Whether Slurm is on PATH."""
        return self.slurm is not None and self.slurm_path is None


def parse(answer: str) -> SlurmSurvey:
    """Parses the script's answer.

    Raises:
        TransportError: it is not the script's answer, or was cut off.
    """
    clean = _ODD.sub(lambda odd: odd[0] if odd[0].isprintable() else _UNREADABLE, answer)
    parts: Parts = [(section.name, section.text.rstrip("\n"), section.status) for section in sections(clean)]
    texts = {name: text for name, text, status in parts if status == 0 or name == "roots"}
    me = texts.get("me", "").splitlines()
    if len(me) < 3 or "done" not in texts:
        raise TransportError(
            f"the survey of the site was cut short: {last_words(answer)}",
            hint=f"try again, or write clusterkit.toml by hand as `{page('first-cluster.md')}` shows",
        )
    host, user, how = me[:3]
    return SlurmSurvey(
        host_name=host,
        user=user,
        groups=tuple(" ".join(me[3:]).split()),
        slurm=None if how == "none" else _slurm(texts, user),
        slurm_path=how if how.startswith("/") else None,
        login_shell=how == "login",
        runtimes=tuple(_runtimes(parts)),
        user_namespaces=_worked(parts, "userns"),
        modules=tuple(
            line.strip().removesuffix("(default)") for line in texts.get("modules", "").splitlines()
        ),
        roots=_roots(texts, user),
        chosen=ownership.parse(texts.get("chosen", "")),
        rsync=_version(texts.get("rsync", "")),
        workspaces="workspaces" in texts,
        internet=_worked(parts, "internet"),
        silent=tuple(name for name, _, status in parts if status == TIME_UP),
    )


def _slurm(texts: dict[str, str], user: str) -> Slurm:
    tables = SlurmTables(texts, NODES_BY_KIND)
    accounts = dict.fromkeys(row[0] for row in _rows(texts.get("shares", ""), 2) if row[1] == user)
    # Some sites keep users without a project in an account without jobs.
    associations = tuple(row for row in tables.associations if row.max_jobs != 0)
    return Slurm(
        version=_version(texts.get("version", "") or tables.config.text("SLURM_VERSION")),
        tables=tables,
        associations=associations or tuple(Association({"Account": name}) for name in accounts),
        default_account=next((row[1] for row in _rows(texts.get("user", ""), 2) if row[1]), None),
    )


def _runtimes(parts: Parts) -> Iterator[FoundRuntime]:
    modes = {"setuid": True, "namespaces": False}
    names = {runtime.name for runtime in all_runtimes() if runtime.survey}
    for part, text, _ in parts:
        lines = text.splitlines() if part in ("runtime", "loaded") else []
        start = next((at for at, line in enumerate(lines) if line in names), None)
        if start is None or len(lines) < start + 2:
            continue  # none there, or only what a login shell says to everybody
        name, module, *rest = lines[start:]
        yield FoundRuntime(
            name=name,
            version=_version(rest[0]) if rest else None,
            setuid=next((modes[line] for line in rest if line in modes), None),
            module=module or None,
        )


def _roots(texts: dict[str, str], user: str) -> tuple[Root, ...]:
    text = texts.get("roots", "")
    quotas = quotas_left(texts.get("quota", ""))
    told_home = re.search(r"^root \$HOME \w+ \w+ (.*)$", text, re.MULTILINE)
    home = told_home[1].rstrip("/") if told_home else ""
    roots: dict[str, Root] = {}
    for section in re.split(r"^root ", text, flags=re.MULTILINE)[1:]:
        head, _, rest = section.partition("\n")
        if len(words := head.split(" ", 3)) < 4:
            continue  # a line of somebody else's
        (why, exists, writable, path), lines = words, rest.splitlines()
        facts = dict(line.partition(" ")[::2] for line in lines)
        df = DF.fullmatch(facts.get("df", "").strip())
        lustre = quota_left(facts.get("lfs", "").split()[1:])
        template = _with_user(path, home, user)
        if template is None or template in roots:
            continue
        roots[template] = Root(
            path=template,
            why=why,
            exists=exists == "yes",
            writable=writable == "yes",
            free=max(0, int(df[4])) * 1024 if df else None,
            total=int(df[2]) * 1024 if df else None,
            quota_left=lustre if lustre is not None else quotas.get(df[1] if df else ""),
            file_system=facts.get("type", "").strip() or None,
            faults=ownership.parse("\n".join(line[4:] for line in lines if line.startswith("own "))),
        )
    return tuple(roots.values())


def _with_user(path: str, home: str, user: str) -> str | None:
    """Returns a path as written in settings, or None if it cannot be."""
    path = path.rstrip("/")
    if not path or "$" in path or _UNREADABLE in path:
        return None
    if home and (path == home or path.startswith(f"{home}/")):
        return "$HOME" + path[len(home) :]
    return "/".join("$USER" if piece == user else piece for piece in path.split("/"))


def _worked(parts: Parts, wanted: str) -> bool | None:
    """Returns whether a part succeeded; None if it was not tried."""
    return next((status == 0 for name, _, status in parts if name == wanted), None)


def _rows(text: str, columns: int) -> Iterator[list[str]]:
    """Yields lines of `|`-separated columns; the last may contain any text."""
    for line in text.splitlines():
        row = [cell.strip() for cell in line.split("|", columns - 1)]
        if len(row) == columns:
            yield row


def _version(text: str) -> str | None:
    match = _VERSION.search(text)
    return match[0] if match else None
