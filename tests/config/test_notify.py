"""[notify]: what is taken, what is refused, and that a webhook's address is never shown."""

from __future__ import annotations

import pytest

from clusterkit.config.notify import kind_of
from clusterkit.errors import ConfigError
from tests.config.conftest import Place

SECRET = "T0/B0/xyzzy"


def test_without_a_table_nothing_is_sent(place: Place) -> None:
    notify = place.load("").notify
    assert not notify.from_here
    assert notify.on == ("ended", "failed", "group")


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("https://ntfy.sh/topic", "ntfy"),
        (f"https://hooks.slack.com/services/{SECRET}", "slack"),
        ("https://prod-1.westeurope.logic.azure.com:443/workflows/x", "teams"),
        ("https://uni.webhook.office.com/x", "teams"),
        ("https://ntfy.sh.example.org/topic", None),
    ],
)
def test_the_host_tells_what_a_webhook_expects(url: str, kind: str | None) -> None:
    assert kind_of(url) == kind


def test_the_address_is_taken_from_the_users_own_file_and_shown_without_its_secret(place: Place) -> None:
    place.user(f'[notify]\nwebhook = "https://hooks.slack.com/services/{SECRET}"')
    settings = place.load("")
    assert settings.notify.webhook == f"https://hooks.slack.com/services/{SECRET}"
    shown = {setting.key[-1]: setting.value for setting in settings.values("notify")}
    assert shown["webhook"] == "https://hooks.slack.com/..."
    assert SECRET not in f"{shown}{settings.notify!r}"


def test_an_address_in_a_file_that_travels_is_refused(place: Place) -> None:
    with pytest.raises(ConfigError, match=r"clusterkit.toml:2: notify.webhook: who knows") as error:
        place.load(f'[notify]\nwebhook = "https://hooks.slack.com/services/{SECRET}"')
    assert SECRET not in f"{error.value}{error.value.hint}"
    assert "~/.config/clusterkit/config.toml" in str(error.value.hint)


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (f'webhook = "ftp://x/{SECRET}"', "notify.webhook: is not an http(s) address"),
        (f'webhook = "https://me:{SECRET}@x.org/y"', "notify.webhook: is not an http(s) address"),
        (f'webhook = "https://me:pw@x.org/{SECRET}"', "notify.webhook: has a user name or password"),
        (f'webhook = ["{SECRET}"]', "notify.webhook: must be text in quotes"),
        (f'webhook = "https://example.org/{SECRET}"', "notify: webhook_kind is missing"),
        (
            f'webhook = "https://ntfy.sh/{SECRET}"\nwebhook_command = ["x"]',
            "notify: webhook and webhook_command",
        ),
        (
            'webhook_kind = "irc"',
            "notify.webhook_kind: must be 'ntfy', 'slack', 'teams' or 'json', not 'irc'",
        ),
        ('on = ["began"]', "notify.on: must be 'ended', 'failed' or 'group', not 'began'"),
        ('mail = "a@b.c, d@e.f"', "notify.mail: 'a@b.c, d@e.f' is not one mail address"),
        ('mail = "-x"', "notify.mail: '-x' is not one mail address"),
        ('command = "say"', "notify.command: must be a list, not 'say'"),
    ],
)
def test_a_wrong_value_is_named_and_a_secret_is_not(place: Place, lines: str, fault: str) -> None:
    place.user(f"[notify]\n{lines}")
    with pytest.raises(ConfigError) as error:
        place.load("")
    assert fault in error.value.cause
    assert SECRET not in f"{error.value.cause}{error.value.hint}"
