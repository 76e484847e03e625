"""`clusterkit notify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterkit.backends.base import backend_of
from clusterkit.cli import options
from clusterkit.cli.ui.console import note, print_document, say, warn
from clusterkit.config.layers import display_path, user_path
from clusterkit.errors import ClusterkitError, ConfigError
from clusterkit.project import load
from clusterkit.resources import page

if TYPE_CHECKING:
    from clusterkit.commands.notifier import Notifier
    from clusterkit.config.settings import Settings


def notify(as_json: options.Json = False, config: options.Config = None) -> None:
    """Send a test notice to where notices of ended runs go.

    Examples:
      clusterkit notify         # to the webhook and the command of [notify]
      clusterkit notify --json  # for scripts

    See also: clusterkit status, notify.md
    """
    settings = load(config)
    sent, mail = _send_trial(settings), settings.notify.mail
    mailing = [name for name, cluster in settings.clusters.items() if mail and backend_of(cluster).can.mails]
    if as_json:
        print_document(
            {
                "schema": 1,
                "sent": [{"to": place, "error": fault} for place, fault in sent],
                "mail": mail,
                "mailing_clusters": mailing,
            }
        )
    else:
        for place, fault in sent:
            if fault:
                warn(place, f": {fault}")
            else:
                say(f"{place}: sent")
        if mail:
            note(
                f"mail to {mail}: not tried; the scheduler of {', '.join(mailing)} sends it"
                if mailing
                else f"mail to {mail}: no cluster of these settings has a scheduler that sends it"
            )
    if faults := [place for place, fault in sent if fault]:
        raise ClusterkitError(
            f"no notice arrived by {' and '.join(faults)}",
            hint="correct [notify] in your settings, then try again",
        )


def _send_trial(settings: Settings) -> list[tuple[str, str | None]]:
    """Sends a test notice to each place of the settings; returns the places, each with its fault or None.

    Raises:
        ConfigError: there is none, or the project names a program for it that is not allowed.
    """
    from clusterkit.notices import send, trial

    for program in filter(None, (settings.notify.webhook_command, settings.notify.command)):
        program.allowed()
    sent = send(settings.notify, trial())
    if not sent and settings.notify.mail is None:
        own = user_path()
        raise ConfigError(
            "notices go nowhere: [notify] has no mail, webhook or command",
            hint=f"add one to {display_path(own) if own else 'your settings'}; see `{page('notify.md')}`",
        )
    return sent


def show_faults(notifier: Notifier) -> None:
    """Prints a line for each notice that did not arrive."""
    for fault in notifier.faults:
        warn(fault)
