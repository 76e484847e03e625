"""`clusterkit why`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from clusterkit.cli import options
from clusterkit.cli.ui.console import note, out, print_document, printable
from clusterkit.project import load, open_ledger
from clusterkit.runs.names import group_label, label
from clusterkit.units import listed, plural

if TYPE_CHECKING:
    from clusterkit.commands.why import Causes
    from clusterkit.diagnosis import Diagnosis
    from clusterkit.runs.ledger import LedgerRun


def why(
    name: options.RunOrGroup = "last",
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Explain why a run waits, failed or is silent.

    Shows one cause, the log lines that prove it, and the command to run next. For a group, counts the runs
    per cause and explains one run of each.

    Examples:
      clusterkit why last
      # a run by the start of its id, for scripts
      clusterkit why mt10-20260102 --json

    See also: clusterkit status, clusterkit logs, troubleshooting.md
    """
    from clusterkit.commands.why import why as command

    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        runs = ledger.find([name])
        if len(runs) > 1:
            from clusterkit.cli.ui.console import transfer_bar
            from clusterkit.commands.why import why_group

            causes = why_group(settings, ledger, runs, bar=transfer_bar)
            if as_json:
                print_group_json(causes)
            else:
                show_causes(causes, runs)
        else:
            found = command(settings, ledger, runs[0])
            if as_json:
                print_json(found)
            else:
                show_diagnosis(found, runs[0])


_NAMED = 3


def show_causes(causes: Causes, runs: Sequence[LedgerRun]) -> None:
    """Prints the number of runs per cause, then one example run for each cause."""
    names = {run.run_id: label(run) for run in runs}
    group = group_label(runs[0])
    counts = ", ".join(f"{len(one.run_ids)} {one.exemplar.finding.cause.slug}" for one in causes.shared)
    head = Text.assemble(
        (group, "bold"), f"  {plural(causes.runs, 'run')}: {counts}", _beside(causes.group, group)
    )
    out.print(head, soft_wrap=True)
    for one in causes.shared:
        out.print()
        count = len(one.run_ids)
        out.print(
            Text.assemble(
                (plural(count, "run"), "bold"),
                f"  {listed([names[run_id] for run_id in one.run_ids], _NAMED)}",
            ),
            soft_wrap=True,
        )
        if count > 1:
            shown = one.exemplar.evidence
            name = names[shown.subject.run_id]
            out.print(Text(f"of these {name}, {shown.state.state}:", "dim"), soft_wrap=True)
        show_finding(one.exemplar)
    if causes.not_asked:
        out.print()
        left = [names[run_id] for run_id in causes.not_asked]
        note(f"not looked at: {listed(left, _NAMED)}; `clusterkit why RUN` explains one")


def print_group_json(causes: Causes) -> None:
    """Prints one JSON object on standard output; see docs/why.md."""
    document = {
        "schema": 1,
        "group": causes.group,
        "runs": causes.runs,
        "causes": [
            {
                "cause": one.exemplar.finding.cause.slug,
                "run_ids": one.run_ids,
                "exemplar": one.exemplar.as_object(),
            }
            for one in causes.shared
        ],
        "not_asked": causes.not_asked,
    }
    print_document(document)


def _beside(identity: str, name: str) -> tuple[str, str]:
    """Returns an id, to stand beside a short name."""
    return ("" if identity == name else f"  {identity}", "dim")


def show_diagnosis(diagnosis: Diagnosis, run: LedgerRun) -> None:
    """Prints the run, then the cause, the log lines that show it, the advice and the next command."""
    evidence = diagnosis.evidence
    state = evidence.state
    where = [f"job {state.job_id}" if state.job_id else "", f"on {state.node}" if state.node else ""]
    if state.attempt:
        where.append(f"attempt {state.attempt}")
    out.print(
        Text.assemble(
            (label(run), "bold"),
            f"  {state.state}  ",
            (", ".join(filter(None, where)), "dim"),
            _beside(run.run_id, label(run)),
        ),
        soft_wrap=True,
    )
    show_finding(diagnosis)


def show_finding(diagnosis: Diagnosis) -> None:
    """Prints the cause, the log lines that show it, the advice and the next command."""
    finding = diagnosis.finding
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    colour = "red" if finding.cause.trouble else "green"
    sentence = (_shown(finding.sentence), colour)
    table.add_row("why", Text.assemble(sentence, (f"  ({finding.cause.slug})", "dim")))
    for number, line in enumerate(finding.evidence):
        table.add_row(
            "seen" if number == 0 else "",
            Text.assemble((f"{line.source}: ", "dim"), _shown(line.text)),
        )
    if finding.cause.trouble:
        table.add_row("cure", Text(finding.cure))
    for number, other in enumerate(diagnosis.also):
        words = f"{_shown(other.sentence)}  ({other.cause.slug})"
        table.add_row("also" if number == 0 else "", Text(words, "dim"))
    out.print(table)
    if finding.next:
        # The command has its own line and is never wrapped, so that it can be copied.
        out.print(Text.assemble(("next  ", "bold"), (finding.next, "cyan")), soft_wrap=True)


def print_json(diagnosis: Diagnosis) -> None:
    """Prints one JSON object on standard output; see docs/why.md."""
    print_document({"schema": 1, **diagnosis.as_object()})


def _shown(text: str) -> str:
    """Shortens text that may come from a log, and escapes terminal control sequences."""
    from clusterkit.diagnosis.diagnose import shortened

    return printable(shortened(text))
