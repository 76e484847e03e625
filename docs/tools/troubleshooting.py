"""Makes docs/troubleshooting.md from the rules of `clusterkit why`.

    python -m docs.tools.troubleshooting

What a cause looks like are lines that the tests prove to lead to it: of a real cluster, or words of a log.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from clusterkit.diagnosis import UNKNOWN, Cause, diagnose, parse_evidence
from tests.diagnosis.run_dirs import RECORDED
from tests.diagnosis.test_rules import SAID

PAGE = Path(__file__).resolve().parent.parent / "troubleshooting.md"
_SLURM = "clusterkit.backends.slurm.why"
THEMES = {
    "submission": "Handing it over",
    f"{_SLURM}.limits": "Limits and accounts",
    "waiting": "Waiting",
    "memory": "Memory",
    "time": "Time",
    "node": "Nodes, priorities, people",
    "container": "Image and container",
    "storage": "Disks and quotas",
    "gpu": "GPU",
    "launcher": "Before the program starts",
    "surroundings": "Around the program",
    "program": "The program",
    "wandb": "W&B",
    "health": "Nothing wrong, or nothing known",
}
"""Modules of clusterkit.diagnosis.rules, and of a backend, and what they are about."""
_OF_SCHEDULERS = {"waiting": f"{_SLURM}.waiting"}
"""Modules of a backend about the same as one of clusterkit.diagnosis.rules; their causes come first."""

_HEAD = """# Troubleshooting

<!-- Made by `python -m docs.tools.troubleshooting` from the rules of `why`. -->

Ask first: `clusterkit why RUN` names the cause, shows the lines, and ends in the one command to run next.
This page lists all that it knows, to be searched for the words you see. How it decides:
[why a run waits or failed](why.md). A fault of clusterkit itself is one line with a next step, and an
[exit code](exit-codes.md).

"""
_LONGEST = 120
_OWN = re.compile(r"/\S*(?:-testbed-|/runs/|/snapshots/|/cache/|/images/)\S*|[0-9a-f]{16,}|[\dT:-]{16,}")


def page() -> str:
    """The whole page."""
    shown = _shown()
    sections = []
    for name, title in THEMES.items():
        rows = [_row(cause, shown.get(cause.slug, "")) for cause in causes(name)]
        head = f"## {title}\n\n| what is wrong | what it looks like | what to do |\n|---|---|---|\n"
        sections.append(head + "".join(rows))
    return _HEAD + "\n".join(sections)


def causes(theme: str) -> list[Cause]:
    """The causes of one theme."""
    names = [_OF_SCHEDULERS.get(theme, ""), theme if "." in theme else f"clusterkit.diagnosis.rules.{theme}"]
    modules = [import_module(name) for name in names if name]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Cause)]
    return [*found, UNKNOWN] if theme == "health" else found


def _shown() -> dict[str, str]:
    """Cause -> a line that leads to it."""
    shown = {}
    for file in sorted(RECORDED.glob("*.txt")):
        slug = file.stem.partition("--")[0]
        lines = [line.text for line in diagnose(parse_evidence(file.read_text())).finding.evidence]
        if lines:
            shown.setdefault(slug, lines[0])
    return {slug: texts[0] for slug, texts in SAID.items()} | shown


def _row(cause: Cause, shown: str) -> str:
    seen = _OWN.sub("...", " ".join(shown.split())).replace("|", "/").replace("`", "'")
    if len(seen) > _LONGEST:
        seen = seen[:_LONGEST].rsplit(" ", 1)[0] + " ..."
    return f"| {cause.means} (`{cause.slug}`) | {f'`{seen}`' if seen else ''} | {cause.cure} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
