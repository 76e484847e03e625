"""Writes the page out of the findings; the same findings give the same page to the letter."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tests.benchmarks.peers.cases import ABSENT, CASES, TITLES, Case
from tests.benchmarks.peers.equal import equal
from tests.benchmarks.peers.results import Finding, interval, median
from tests.benchmarks.peers.words import EQUAL, HEAD, LOADED, LOST, MEASURES, NOTES, READING, SAME


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
    trained = {each["case"]: each["steps"] for each in findings}
    command = "make peers" + (" QUICK=1" if quick else "")
    parts = [
        HEAD.format(command=command),
        _machine(findings, quick),
        "## Where other trainers are better\n",
        _losses(by, shown),
    ]
    parts += ["## Speed\n", _ratios(by, shown)]
    if any(each["device"] == "cuda" for each in _good(findings)):
        parts += ["## GPU use (memory, MB)\n", _gpu(by, shown)]
    parts += ["## Returns\n", _all_returns(by, shown)]
    parts += [READING.format(episodes=20, overlap=_overlap(by, shown))]
    parts += [EQUAL, equal(shown, trained), "## What differs\n", _notes(), _not_run(by, shown)]
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
    gpu = "" if "cuda" in devices else " Not measured on a GPU."
    busy = statistics.median(loads) if loads else 0.0
    processors = int(findings[0]["machine"].split(" x ")[0])
    lines = [
        f"Measured {span} on {findings[0]['machine']}, learning on {' and '.join(devices)}.{gpu}",
        "Versions: " + ", ".join(f"{name} {version}" for name, version in sorted(versions.items())) + ".",
        f"Commits: {', '.join(commits)}." if commits else "",
        f"Load before each measurement: median {busy:.1f}, at most {max(loads, default=0):.1f}.",
        f"\n{LOADED}" if busy > processors + 0.5 else "",
        "\nThis is the quick comparison: one seed, and too few steps for a meaningful return."
        if quick
        else "",
    ]
    return "\n".join(line for line in lines if line) + "\n"


def _table(shown: Sequence[Case], titles: Sequence[str], cells: Callable[[Case], list[str]]) -> str:
    """A row for each case."""
    rows = ["| | " + " | ".join(titles) + " |", "|---" + "|---:" * len(titles) + "|"]
    rows += [f"| {case.title} | " + " | ".join(cells(case)) + " |" for case in shown]
    return "\n".join(rows) + "\n"


def _ratios(by: dict[tuple[str, str], list[Finding]], shown: Sequence[Case]) -> str:
    """Our steps a second, and over each side's, in wall time and in processor time."""

    def cells(case: Case) -> list[str]:
        row = [_number(median(_good(by[case.name, "ours"]), "steps_per_second"))]
        for side in list(TITLES)[1:]:
            both = _good(by[case.name, "ours"]), _good(by[case.name, side])
            pairs = [[median(found, key) for found in both] for key in list(MEASURES)[:2]]
            said = [f"{ours / theirs:.2f}" if ours and theirs else "-" for ours, theirs in pairs]
            row.append("-" if said[0] == "-" else f"{said[0]} ({said[1]})")
        return row

    head = "Our steps per second; then our speed divided by theirs and, in brackets, per CPU second.\n\n"
    return head + _table(shown, ["ours", *list(TITLES.values())[1:]], cells)


def _gpu(by: dict[tuple[str, str], list[Finding]], shown: Sequence[Case]) -> str:
    def cells(case: Case) -> list[str]:
        measured = [_good(by[case.name, side]) for side in TITLES]
        use = [_share(median(good, "gpu_utilization")) for good in measured]
        held = [_number(median(good, "gpu_memory_bytes"), 1e6) for good in measured]
        return ["-" if share == "-" else f"{share} ({size})" for share, size in zip(use, held, strict=True)]

    return _table(shown, ["ours", *list(TITLES.values())[1:]], cells)


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
    middle = f"{statistics.median(values):,.0f}"
    if len(values) < 2:
        return middle
    low, high = interval(values)
    return f"{middle} [{low:,.0f}, {high:,.0f}]"


def _all_returns(by: dict[tuple[str, str], list[Finding]], shown: Sequence[Case]) -> str:
    """Median and interval of the returns, of the cases whose policies are played."""

    def cells(case: Case) -> list[str]:
        good = [_good(by[case.name, side]) for side in TITLES]
        return [*(_return(each) for each in good), str(max(len(_returns(each)) for each in good))]

    head = "Median over the seeds and, in brackets, Student's 95% interval of the mean.\n\n"
    played = [case for case in shown if case.played]
    return head + _table(played, ["ours", *list(TITLES.values())[1:], "seeds"], cells)


def _losses(by: dict[tuple[str, str], list[Finding]], shown: Sequence[Case]) -> str:
    """Says in which figures other sides are better than ours: each figure of each case, the worst first."""
    found: list[tuple[float, str]] = []
    compared = lost = 0
    for case in shown:
        ours = _good(by[case.name, "ours"])
        others = {title: _good(by[case.name, side]) for side, title in list(TITLES.items())[1:]}
        for key, words in MEASURES.items():
            unit = 1e6 if key == "peak_bytes" else 1.0
            here = median(ours, key)
            theirs = {title: median(good, key) for title, good in others.items()}
            known = {title: value for title, value in theirs.items() if value and here}
            ratios = {
                title: value / here if key == "peak_bytes" else here / value for title, value in known.items()
            }
            better = sorted((ratio, title) for title, ratio in ratios.items() if ratio < 1 - SAME)
            compared, lost = compared + len(known), lost + len(better)
            if better:
                told = [f"{title} {_number(known[title], unit)}" for _, title in better]
                found.append(
                    (better[0][0], f"- {case.title}, {words}: ours {_number(here, unit)}; {', '.join(told)}")
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
    of_all = f"of {compared} comparisons of speed, CPU time, memory and return"
    if not found:
        return f"In none {of_all}. {LOST}\n"
    head = f"In {lost} {of_all}, the worst first. {LOST}"
    return head + "\n\n" + "\n".join(told for _, told in sorted(found)) + "\n"


def _overlap(by: dict[tuple[str, str], list[Finding]], shown: Sequence[Case]) -> str:
    """Says of how many sides the return is no other than ours."""
    compared = [
        (interval(mine), interval(theirs))
        for case in shown
        for side in list(TITLES)[1:]
        if len(mine := _returns(_good(by[case.name, "ours"]))) > 1
        and len(theirs := _returns(_good(by[case.name, side]))) > 1
    ]
    same = sum(mine[0] <= theirs[1] and theirs[0] <= mine[1] for mine, theirs in compared)
    return f"Student's 95% interval overlaps ours in {same} of {len(compared)} comparisons."


def _notes() -> str:
    lines = [f"- **{TITLES[side]}**: {note}." for side, note in NOTES.items()]
    return "\n".join(lines) + "\n"


def _not_run(by: dict[tuple[str, str], list[Finding]], shown: Sequence[Case]) -> str:
    """What is missing and why: what a side lacks in one line, what failed by case."""
    lines = []
    for side, title in TITLES.items():
        lacks = [ABSENT[side, case.name] for case in shown if (side, case.name) in ABSENT]
        lines += [f"- {title}: {'; '.join(dict.fromkeys(lacks))}."] if lacks else []
    for case in CASES.values():
        if case not in shown:
            lines.append(f"- {case.title}: not part of this run.")
            continue
        for side, title in TITLES.items():
            if (side, case.name) not in ABSENT and not _good(found := by[case.name, side]):
                why = next((each["error"] for each in found if "error" in each), "no time was left")
                lines.append(f"- {case.title}, {title}: {why}.")
    return "## Not run\n\n" + ("\n".join(lines) or "- Nothing is missing.") + "\n"
