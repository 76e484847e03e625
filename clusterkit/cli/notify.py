"""`clusterkit notify`."""

from __future__ import annotations

from clusterkit.cli.common import ConfigOption, JsonOption, load
from clusterkit.cli.ui.console import note, print_document, say, warn
from clusterkit.errors import ClusterkitError


def notify(as_json: JsonOption = False, config: ConfigOption = None) -> None:
    """Send a test notice to where notices of ended runs go."""
    from clusterkit.commands.notify import test_notice

    trial = test_notice(load(config))
    faults = [place for place, fault in trial.sent if fault]
    if as_json:
        print_document(
            {
                "schema": 1,
                "sent": [{"to": place, "error": fault} for place, fault in trial.sent],
                "mail": trial.mail,
                "mailing_clusters": list(trial.mailing),
            }
        )
    else:
        for place, fault in trial.sent:
            if fault:
                warn(place, f": {fault}")
            else:
                say(f"{place}: sent")
        if trial.mail:
            note(
                f"mail to {trial.mail}: not tried; the scheduler of {', '.join(trial.mailing)} sends it"
                if trial.mailing
                else f"mail to {trial.mail}: no cluster of these settings has a scheduler that sends it"
            )
    if faults:
        raise ClusterkitError(
            f"no notice arrived by {' and '.join(faults)}",
            hint="correct [notify] in your settings, then try again",
        )
