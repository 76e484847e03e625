"""Settings of notices of ended runs. A webhook's address is a secret: who knows it can write there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from clusterkit.config.layers import Merged, display_path
from clusterkit.config.values import ProgramHere, SettingsModel, as_tuple
from clusterkit.errors import ConfigError

Event = Literal["ended", "failed", "group"]
WebhookKind = Literal["ntfy", "slack", "teams", "json"]

_ADDRESS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._%+-]*(@[A-Za-z0-9.-]+)?")
_KINDS: dict[str, WebhookKind] = {
    "ntfy.sh": "ntfy",
    "hooks.slack.com": "slack",
    ".webhook.office.com": "teams",
    ".logic.azure.com": "teams",
    ".powerplatform.com": "teams",
}
"""Host, or the end of its name -> what it expects."""


def _address(value: str) -> str:
    if not _ADDRESS.fullmatch(value):
        raise ValueError(f'{value!r} is not one mail address; write e.g. "a@uni.edu"')
    return value


def _webhook(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("must be text in quotes")
    if fault := url_fault(value):
        raise ValueError(fault)
    return value


def url_fault(url: str) -> str | None:
    """What is wrong with a webhook's address, without repeating it; None if nothing is."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        valid = False
    if not valid or not url.isascii() or not url.isprintable() or " " in url:
        return "is not an http(s) address"
    if "@" in parts.netloc:
        return "has a user name or password; ntfy takes a token as ?auth=, see its documentation"
    return None


def kind_of(url: str) -> WebhookKind | None:
    """What a webhook expects, where its host tells.

    >>> kind_of("https://ntfy.sh/topic"), kind_of("https://example.org/ntfy.sh")
    ('ntfy', None)
    """
    host = urlsplit(url).hostname or ""
    return next(
        (kind for end, kind in _KINDS.items() if (host if end[0] != "." else host[-len(end) :]) == end), None
    )


def without_secret(url: str) -> str:
    """A webhook's address as it may be shown.

    >>> without_secret("https://hooks.slack.com/services/T0/B0/x")
    'https://hooks.slack.com/...'
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/..."


MailAddress = Annotated[str, AfterValidator(_address)]
WebhookUrl = Annotated[str, BeforeValidator(_webhook)]


class Notify(SettingsModel):
    """Notices of runs that have ended. Without mail, webhook or command there are none."""

    on: Annotated[tuple[Event, ...], BeforeValidator(as_tuple)] = ("ended", "failed", "group")
    """Runs of no group that ended well; runs that failed, of a group only the first; groups that are done."""
    mail: MailAddress | None = None
    """The scheduler mails there; not of runs on this machine."""
    webhook: WebhookUrl | None = Field(default=None, repr=False)
    """The address that notices are sent to; only in the user's own file."""
    webhook_command: ProgramHere | None = None
    """Argv of a program that prints the webhook's address."""
    webhook_kind: WebhookKind | None = None
    """What the webhook expects; None is as its host tells."""
    from_job: bool = False
    """Whether a job tells the webhook of its own end, if its node reaches it; not of a group's runs."""
    command: ProgramHere | None = None
    """Argv of a program that tells; the notice is in its environment and on its standard input."""

    @model_validator(mode="after")
    def _job_has_webhook(self) -> Notify:
        if self.from_job and not (self.webhook or self.webhook_command):
            raise ValueError("from_job needs a webhook or webhook_command")
        return self

    @model_validator(mode="after")
    def _one_webhook_of_known_kind(self) -> Notify:
        if self.webhook and self.webhook_command:
            raise ValueError("webhook and webhook_command exclude each other")
        if self.webhook and self.webhook_kind is None and kind_of(self.webhook) is None:
            raise ValueError(
                'webhook_kind is missing: the host does not tell; write "ntfy", "slack", "teams" or "json"'
            )
        return self

    @property
    def from_here(self) -> bool:
        """Whether this machine sends any notices."""
        return bool(self.on and (self.webhook or self.webhook_command or self.command))


def refuse_shared_webhook(merged: Merged, user_file: Path | None) -> None:
    """Raises ConfigError if a file other than the user's own holds a webhook's address."""
    source = merged.sources.get(("notify", "webhook"))
    if source is None or source.layer.file == user_file:
        return
    where = display_path(user_file) if user_file else "your own settings file"
    raise ConfigError(
        f"{source.origin}: notify.webhook: who knows the address can write there, and this file travels with "
        "the code",
        hint=f"move it to {where}, or name a program that prints it: webhook_command",
    )
