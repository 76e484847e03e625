"""init: survey a site over one login and propose settings for it, without changing anything on it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clusterkit import folders
from clusterkit.backends.base import backend_of_kind
from clusterkit.backends.survey import Choice, SiteDraft, SiteSurvey, Surveyor, Wishes, root_choice
from clusterkit.config.kinds import DEFAULT
from clusterkit.config.layers import built_in_layer
from clusterkit.config.merge import merged
from clusterkit.config.settings import Settings, settings_from
from clusterkit.config.settings_file import Proposal, checked, read
from clusterkit.errors import ConfigError, OwnershipError
from clusterkit.ownership import trust_line
from clusterkit.runtimes import NONE
from clusterkit.transport.questions import Ask, HostKeyQuestion, Question

Choose = Callable[[Choice], str]
"""Answers a choice; raising ends the command."""


@dataclass(frozen=True)
class InitRequest:
    """The site to describe, the file to write, and values that the user has given."""

    host: str
    file: Path
    name: str | None = None
    root: str | None = None
    account: str | None = None
    partition: str | None = None
    container: str | None = None
    image: str | None = None
    ssh_config: Path | None = None


@dataclass(frozen=True)
class Described(Proposal):
    """A proposal based on the survey of a site."""

    name: str
    surveyor: Surveyor
    survey: SiteSurvey
    draft: SiteDraft
    questions: int = 0
    """Number of questions that the login asked."""
    settings: Settings = field(repr=False, kw_only=True)
    """The settings in force once the proposal is written."""


def init(request: InitRequest, *, ask: Ask, choose: Choose) -> Described:
    """Logs in once, surveys the site, and proposes settings.

    Args:
        request: the site to describe.
        ask: answers the login's questions.
        choose: answers choices that the survey cannot decide: the work root, the account to charge.

    Raises:
        ConfigError: the existing file, a name or an option is invalid.
        TransportError: the host cannot be reached or trusted, refuses the login, or did not answer.
        OwnershipError: others could change the requested work root.
    """
    name = request.name or name_of(request.host)
    if name == "local":
        raise ConfigError(
            "the cluster `local` is this machine", hint="give the new one another name with --name"
        )
    old = read(request.file)
    settings = checked(request.file, old or "")
    before: dict[str, Any] = tomllib.loads(old or "").get("clusters", {}).get(name, {})
    request = _as_before(request, name, before, settings)
    _check_options(checked(request.file, old or ""), request, name)
    root = request.root or before.get("root")
    kind = before.get("kind") or DEFAULT
    surveyor = backend_of_kind(kind).surveyor()
    if surveyor is None:
        raise ConfigError(
            f'clusters of kind = "{kind}" cannot be set up by `init`',
            hint="write the cluster's table by hand",
        )
    survey, questions = look(
        surveyor,
        request.host,
        ssh_config=request.ssh_config,
        ask=ask,
        command=surveyor.argv(root, trust=before.get("trust", ()), group=before.get("group")),
    )
    if survey.chosen:
        cause = f"{survey.host_name}: others could run code as you in {root}: {survey.chosen[0].text}"
        hint = "choose another --root"
        if line := trust_line(survey.chosen):
            hint += f"; if you trust them, first add {line} under [clusters.{name}] of {request.file.name}"
        raise OwnershipError(cause, hint=hint)
    said = _settled(surveyor, survey, request, name, before, choose)
    if settings.project.program is not None:
        said = _for_own_program(said, before)
    shipped = settings_from((built_in_layer(request.file.parent),), request.file.parent, ()).profiles
    drafted = surveyor.draft(survey, said, before=before, shipped=shipped)
    new = merged(old or "", drafted)
    settings = checked(request.file, new)
    return Described(request.file, old, new, name, surveyor, survey, drafted, questions, settings=settings)


def look(
    surveyor: Surveyor,
    host: str,
    *,
    ssh_config: Path | None = None,
    ask: Ask,
    command: Sequence[str] | None = None,
) -> tuple[SiteSurvey, int]:
    """Surveys a site over one login; returns the survey and the number of questions that the login asked.

    Args:
        surveyor: for the kind of cluster.
        host: as ssh knows it.
        ssh_config: an ssh configuration to use instead of the user's.
        ask: answers the login's questions.
        command: of the surveyor; None for that of a site without settings.

    Raises:
        TransportError: the host cannot be reached or trusted, refuses the login, or did not answer.
    """
    from clusterkit.transport.factory import connect

    asked = 0

    def counted(question: Question) -> list[str]:
        nonlocal asked
        if not isinstance(question, HostKeyQuestion):
            asked += len(question.prompts)
        return list(ask(question))

    transport = connect(host, ask=counted, ssh_config=ssh_config)
    try:
        done = transport.run(command or surveyor.argv(), timeout=surveyor.seconds, check=False)
    finally:
        transport.close()
    return surveyor.parse(done.text), asked


def name_of(host: str) -> str:
    """Returns a cluster name derived from its host: `alice@login.uni.example:22` becomes `login`."""
    bare = host.removeprefix("ssh://").rpartition("@")[2]
    first = bare if re.match(r"[\d.]+$|\[", bare) else re.split(r"[.:/]", bare)[0]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", first).strip("-._") or "cluster"


def _settled(
    surveyor: Surveyor,
    survey: SiteSurvey,
    request: InitRequest,
    name: str,
    before: Mapping[str, Any],
    choose: Choose,
) -> Wishes:
    """Returns everything that the survey cannot decide, from options, existing settings, or the user."""
    surveyor.check(survey, account=request.account, partition=request.partition)
    roots = root_choice(survey)
    root = request.root or before.get("root") or _chosen(roots, choose) or "~/clusterkit"
    abouts = {option.value: option.about for option in roots.options}
    accounts = surveyor.accounts(survey, request.partition, before)
    account = request.account or before.get("account")
    offered = {one.value for one in accounts.options}
    if request.account is None and offered and account not in offered:
        account = _chosen(accounts, choose)
    written = before.get("ssh_config")
    if request.ssh_config is None or (written and _at(written, request.file) == request.ssh_config):
        ssh_config = written
    else:
        ssh_config = str(request.ssh_config)
    return Wishes(
        name=name,
        root=root,
        host=request.host,
        root_about=abouts.get(root, ""),
        account=account,
        partition=request.partition,
        container=request.container or before.get("container"),
        image=request.image and _image(request.image, request.file.parent),
        ssh_config=ssh_config,
    )


def _for_own_program(wishes: Wishes, before: Mapping[str, Any]) -> Wishes:
    """Returns the wishes of a project with its own program: without an image, unless one is named."""
    named = wishes.container or wishes.image or {"image", "registry_image"} & before.keys()
    return replace(wishes, own=True, container=wishes.container if named else NONE.name)


def _as_before(request: InitRequest, name: str, before: Mapping[str, Any], settings: Settings) -> InitRequest:
    """Resolves an already described cluster's name to its host, with its ssh configuration.

    Raises:
        NotAllowedError: the project names that configuration, and the user has not allowed it.
    """
    written = before.get("host")
    if before.get("ssh_config") is not None and request.ssh_config is None:
        request = replace(request, ssh_config=settings.cluster(name).login_config)
    return replace(request, host=written) if written and request.host == name else request


def _at(written: str, file: Path) -> Path:
    """Returns a local path from the settings; a relative one is relative to the settings' folder."""
    return file.parent / folders.expanded(written)


def _check_options(settings: Settings, request: InitRequest, name: str) -> None:
    """Checks the options before logging in.

    Raises:
        ConfigError: an option is not valid as a setting.
    """
    values = {
        "root": request.root or "~/clusterkit",
        "account": request.account,
        "partition": request.partition,
        "container": request.container,
    }
    given = {key: value for key, value in values.items() if value is not None}
    settings.with_values({"clusters": {name: given}})


def _image(written: str, project: Path) -> str:
    """Returns an image's path for the settings: relative to the project folder if it is inside."""
    image = folders.expanded(written).absolute()
    return str(image.relative_to(project) if image.is_relative_to(project) else image)


def _chosen(choice: Choice, choose: Choose) -> str | None:
    """Returns the only option, the user's choice of several, or None without options."""
    if len(choice.options) < 2:
        return next((option.value for option in choice.options), None)
    return choose(choice)
