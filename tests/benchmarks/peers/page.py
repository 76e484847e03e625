"""Writes the page out of the findings; the same findings give the same page to the letter."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.benchmarks.peers.cases import ABSENT, CASES, TITLES, Case
from tests.benchmarks.peers.equal import equal
from tests.benchmarks.peers.results import Finding, interval, median
from tests.benchmarks.peers.words import GUIDE, GUIDES, HEAD, LOADED, MEASURES, NOTES, READING, SAME


def write(findings: Sequence[Finding], folder: Path) -> Path:
    """Writes `comparison.md` and `comparison.jsonl`; returns the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    ordered = sorted(
        findings,
        key=lambda each: (list(CASES).index(each["case"]), each["seed"], list(TITLES).index(each["side"])),
    )
    page = folder / "comparison.md"
    page.with_suffix(".jsonl").write_text("".join(json.dumps(each) + "\n" for each in ordered))
    page.write_text(render(ordered))
    return page


def render(findings: Sequence[Finding]) -> str:
    """Returns the page."""
    by = {
        (case, side): [each for each in findings if (each["case"], each["side"]) == (case, side)]
        for case in CASES
        for side in TITLES
    }
    shown = [case for case in CASES.values() if any(by[case.name, side] for side in TITLES)]
    quick = any(each["mode"] == "quick" for each in findings)
    command = "make peers" + (" QUICK=1" if quick else "")
    parts = [
        HEAD.format(command=command),
        _machine(findings, quick),
        "## Where we lose\n",
        _losses(by, shown),
    ]
    parts += ["## Our speed over theirs\n", _ratios(by, shown), "## Figures\n"]
    for case in shown:
        parts += [_case(case, {side: by[case.name, side] for side in TITLES})]
    parts += [READING.format(episodes=20), "## The guides' table of frameworks\n", _guides(by)]
    parts += ["## What is equal\n", equal(shown), "## What is not\n", _notes(), _not_run(by, shown)]
    return "\n".join(parts).rstrip() + "\n"


def _good(findings: Iterable[Finding]) -> list[Finding]:
    return [each for each in findings if "error" not in each]


def _machine(findings: Sequence[Finding], quick: bool) -> str:
    versions = {name: version for each in _good(findings) for name, version in each["versions"].items()}
    dates = sorted(each["time"][:10] for each in findings)
    span = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    loads = [each["load_before"] for each in _good(findings)]
    commits = sorted({each["commit"] for each in findings if each.get("commit")})
    devices = sorted({each["device"] for each in _good(findings)})
    gpu = "" if "cuda" in devices else " No GPU was at hand: what the figures say is said of processors only."
    busy = statistics.median(loads) if loads else 0.0
    processors = int(findings[0]["machine"].split(" x ")[0])
    lines = [
        f"Measured {span} on {findings[0]['machine']}, learning on {' and '.join(devices)}.{gpu}",
        "Versions: " + ", ".join(f"{name} {version}" for name, version in sorted(versions.items())) + ".",
        f"Our own commit: {', '.join(commits)}." if commits else "",
        f"Load of the machine before cells: {busy:.1f} in the median, at most {max(loads, default=0):.1f}.",
        f"\n{LOADED}" if busy > processors + 0.5 else "",
        "\nThis is the quick comparison: one seed and too few steps for a return to mean anything."
        if quick
        else "",
    ]
    return "\n".join(line for line in lines if line) + "\n"


def _case(case: Case, sides: dict[str, list[Finding]]) -> str:
    steps = next(each["steps"] for found in sides.values() for each in found)
    plural = "environment" if case.envs == 1 else "environments"
    head = f"### {case.title}\n\n{steps:,} steps, {case.envs} {plural}."
    if not case.played:
        head += " Speed only: so few steps teach nothing here."
    with_gpu = any(each["device"] == "cuda" for found in sides.values() for each in _good(found))
    heads = ["steps/s", "ours / it", "steps / processor s", "updates/s", "memory, MB"]
    heads += ["GPU", "GPU memory, MB"] if with_gpu else []
    heads += ["return", "seeds"]
    rows = ["| | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
    missing = []
    ours = median(_good(sides["ours"]), "steps_per_second")
    for side, title in TITLES.items():
        good = _good(sides[side])
        if not good:
            missing.append(f"{title} ({_why(case, side, sides[side])})")
            continue
        rate, cpu, updates = (
            median(good, key) for key in ("steps_per_second", "steps_per_cpu_second", "updates_per_second")
        )
        cells = [
            _number(rate),
            "" if side == "ours" else f"{ours / rate:.2f}" if ours and rate else "-",
            _number(cpu),
            _number(updates),
            _number(median(good, "peak_bytes"), 1e6),
        ]
        if with_gpu:
            cells += [
                _share(median(good, "gpu_utilization")),
                _number(median(good, "gpu_memory_bytes"), 1e6),
            ]
        rows.append(f"| {title} | " + " | ".join([*cells, _return(good), str(len(good))]) + " |")
    told = f"\n\nNot run: {'; '.join(missing)}." if missing else ""
    return head + "\n\n" + "\n".join(rows) + told + "\n"


def _why(case: Case, side: str, found: Sequence[Finding]) -> str:
    """Why there is nothing of a side."""
    failed = next((each["error"] for each in found if "error" in each), "no time was left")
    return ABSENT.get((side, case.name)) or failed


def _ratios(by: dict[tuple[str, str], list[Finding]], shown: Sequence[Case]) -> str:
    """Our steps a second over each side's, in wall time and in processor time."""
    rows = [
        "Steps a second, and in brackets steps a processor second; below 1 we are slower.\n",
        "| | " + " | ".join(list(TITLES.values())[1:]) + " |",
        "|---" + "|---:" * (len(TITLES) - 1) + "|",
    ]
    for case in shown:
        cells = []
        for side in list(TITLES)[1:]:
            both = _good(by[case.name, "ours"]), _good(by[case.name, side])
            pairs = [[median(found, key) for found in both] for key in list(MEASURES)[:2]]
            said = [f"{ours / theirs:.2f}" if ours and theirs else "-" for ours, theirs in pairs]
            cells.append("-" if said[0] == "-" else f"{said[0]} ({said[1]})")
        rows.append(f"| {case.title} | " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def _number(value: float | None, unit: float = 1.0) -> str:
    if value is None:
        return "-"
    return f"{value / unit:,.0f}" if value / unit >= 10 else f"{value / unit:.2g}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _returns(findings: Iterable[Finding]) -> list[float]:
    return [each["return"] for each in findings if each.get("return") is not None]


def _return(findings: Sequence[Finding]) -> str:
    values = _returns(findings)
    if not values:
        return "-"
    mean = f"{statistics.mean(values):,.0f}"
    if len(values) < 2:
        return mean
    low, high = interval(values)
    return f"{mean} [{low:,.0f}, {high:,.0f}]"


def _losses(by: dict[tuple[str, str], list[Finding]], shown: Sequence[Case]) -> str:
    """Says in which figures other sides are better than ours: each figure of each case, the worst first."""
    found: list[tuple[float, str]] = []
    compared = lost = 0
    for case in shown:
        ours = _good(by[case.name, "ours"])
        others = {title: _good(by[case.name, side]) for side, title in list(TITLES.items())[1:]}
        for key, words in MEASURES.items():
            here = median(ours, key)
            theirs = {title: median(good, key) for title, good in others.items()}
            known = {title: value for title, value in theirs.items() if value and here}
            ratios = {
                title: value / here if key == "peak_bytes" else here / value for title, value in known.items()
            }
            better = sorted((ratio, title) for title, ratio in ratios.items() if ratio < 1 - SAME)
            compared, lost = compared + len(known), lost + len(better)
            if better:
                told = [f"{title} {_of(known[title], key)} ({ratio:.2f})" for ratio, title in better]
                found.append(
                    (better[0][0], f"- {case.title}, {words}: ours {_of(here, key)}; {', '.join(told)}")
                )
        mine = _returns(ours)
        several = {title: good for title, good in others.items() if min(len(mine), len(_returns(good))) > 1}
        ahead = [title for title in several if interval(mine)[1] < interval(_returns(several[title]))[0]]
        compared, lost = compared + len(several), lost + len(ahead)
        if ahead:
            told = [f"{title} {_return(several[title])}" for title in ahead]
            found.append((0.0, f"- {case.title}, return: ours {_return(ours)}; {', '.join(told)}"))
    if not compared:
        return "Nothing could be compared yet.\n"
    of_all = f"of {compared} comparisons of speed, processor time, memory and return"
    if not found:
        return f"In none {of_all}.\n"
    head = (
        f"In {lost} {of_all}; in brackets ours over theirs, turned so that below 1 is worse. The worst first:"
    )
    return head + "\n\n" + "\n".join(told for _, told in sorted(found)) + "\n"


def _of(value: float, key: str) -> str:
    return f"{_number(value, 1e6)} MB" if key == "peak_bytes" else _number(value)


def _guides(by: dict[tuple[str, str], list[Finding]]) -> str:
    """The guides' words and our figures, side by side."""
    rows = [
        GUIDES,
        "| framework | GPU, guides | GPU, measured | discrete actions, guides "
        "| measured return | speed, guides | measured steps/s |",
        "|---|---|---|---|---|---|---|",
    ]
    for side, title in TITLES.items():
        use, discrete, speed = GUIDE.get(side, ("-", "-", "-"))
        cheetah, pole = _good(by["ppo-halfcheetah", side]), _good(by["ppo-cartpole", side])
        gpu = median(cheetah, "gpu_utilization")
        why = ABSENT.get((side, "ppo-cartpole"), "not run")
        cells = [
            *(title, use, "no GPU here" if gpu is None else _share(gpu), discrete),
            *(_return(pole) if pole else why, speed, _number(median(cheetah, "steps_per_second"))),
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def _notes() -> str:
    lines = [f"- **{TITLES[side]}**: {note}." for side, note in NOTES.items()]
    return "\n".join(lines) + "\n"


def _not_run(by: dict[tuple[str, str], list[Finding]], shown: Sequence[Case]) -> str:
    """Everything that is missing, each with its reason."""
    lines = []
    for case in CASES.values():
        if case not in shown:
            lines.append(f"- {case.title}: not part of this run.")
            continue
        for side, title in TITLES.items():
            if not _good(found := by[case.name, side]):
                lines.append(f"- {case.title}, {title}: {_why(case, side, found)}.")
    return "## Not run\n\n" + ("\n".join(lines) or "- Nothing is missing.") + "\n"
