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
    "submission": "Submission",
    f"{_SLURM}.limits": "Limits and accounts",
    "waiting": "Waiting",
    "memory": "Memory",
    "time": "Time",
    "node": "Nodes and cancellations",
    "container": "Image and container",
    "environment": "Python environment",
    "storage": "Disks and quotas",
    "gpu": "GPU",
    "launcher": "Before the program starts",
    "surroundings": "Libraries, network and limits",
    "program": "The program",
    "wandb": "W&B",
    "health": "Unknown",
}
"""Modules of clusterkit.diagnosis.rules, and of a backend, and what they are about."""
_OF_SCHEDULERS = {"waiting": f"{_SLURM}.waiting"}
"""Modules of a backend about the same as one of clusterkit.diagnosis.rules; their causes come first."""

_HEAD = """# Troubleshooting

<!-- Made by `python -m docs.tools.troubleshooting` from the rules of `why`. -->

    clusterkit why RUN

[names the cause and the next command](why.md). This page lists all causes, with words from the log or from
Slurm, and the first remedy. If a command fails, see [exit codes](exit-codes.md).

"""
_FINE = """
## Nothing wrong

Wait, and do not submit the run a second time: {}.
"""
_LONGEST = 40
"""Characters of a line that is shown."""
_WORDS = 11
"""Words of a cure from which its later clauses are left to `why`; one of two words says too little alone."""
_OWN = re.compile(r"/\S*(?:-testbed-|/runs/|/snapshots/|/cache/|/images/)\S*|[0-9a-f]{16,}|[\dT:-]{16,}")
_NOISE = re.compile(
    r"^(?:PENDING, reason |slurmstepd-\S+: error: |sbatch: error: |FATAL: |\[clusterkit\] |trainer: )"
    r"|^[\w.]+Error: (?=\S+ \S)|\*\*\* JOB \d+ ON \S+ | NodeList=.*"
)
"""Who wrote a line, and what differs from run to run: no help to find it."""


def page() -> str:
    """The whole page."""
    shown = _shown()
    sections = []
    for name, title in THEMES.items():
        found = [_entry(cause, shown.get(cause.slug, "")) for cause in causes(name) if cause.trouble]
        sections.append(f"## {title}\n\n{''.join(found)}")
    fine = ", ".join(f"`{cause.slug}`" for name in THEMES for cause in causes(name) if not cause.trouble)
    return _HEAD + "\n".join(sections) + _FINE.format(fine)


def causes(theme: str) -> list[Cause]:
    """The causes of one theme."""
    names = [_OF_SCHEDULERS.get(theme, ""), theme if "." in theme else f"clusterkit.diagnosis.rules.{theme}"]
    modules = [import_module(name) for name in names if name]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Cause)]
    return [*found, UNKNOWN] if theme == "health" else found


def _shown() -> dict[str, str]:
    """Cause -> a line that leads to it; a heartbeat has no words to search for."""
    shown = {}
    for file in sorted(RECORDED.glob("*.txt")):
        slug = file.stem.partition("--")[0]
        lines = diagnose(parse_evidence(file.read_text())).finding.evidence
        if lines and not lines[0].source.endswith("heartbeat.json"):
            shown.setdefault(slug, lines[0].text)
    return {slug: texts[0] for slug, texts in SAID.items()} | shown


def _entry(cause: Cause, shown: str) -> str:
    line = " ".join(shown.partition("\n")[0].split())
    seen = _NOISE.sub("", _OWN.sub("...", line)).replace("`", "'")
    if len(seen) > _LONGEST:
        seen = seen[:_LONGEST].rsplit(" ", 1)[0]
    return f"- **{cause.slug}**: {f'`{seen}`' if seen else cause.means}. {_sentence(_first(cause.cure))}\n"


def _first(cure: str) -> str:
    """A cure without the clauses that make it long."""
    first, *others = cure.split("; ")
    for clause in others:
        if len(first.split()) > 2 and len(f"{first} {clause}".split()) > _WORDS:
            break
        first = f"{first}; {clause}"
    return first


def _sentence(text: str) -> str:
    """A clause as a sentence, unless it begins with the name of a file."""
    first = text.split()[0]
    return f"{text if '.' in first else text[0].upper() + text[1:]}."


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
