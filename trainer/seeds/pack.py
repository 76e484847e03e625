"""A run that one process trains together with others: it leads them, or follows the one that does."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

from trainer.errors import TrainerError
from trainer.files import atomic_write_json
from trainer.preemption import EXIT_INTERRUPTED, EXIT_REQUEUE, StopSignals
from trainer.seeds.leader import Guest, Leader
from trainer.seeds.line import Card, Ending
from trainer.seeds.meeting import AloneError, Follower, meet
from trainer.settings import TrainSettings, read_settings

_OWN = ("seed", "run_dir", "run_id", "attempt", "resume", "wandb_id")
"""Settings in which the runs of a pack may differ."""


@dataclass(frozen=True)
class Pack:
    """Where the runs meet, and how many they are."""

    folder: Path
    size: int


@dataclass(frozen=True)
class PackedRun:
    """A run as the process sees it that trains all of them.

    Attributes:
        settings: what to do.
        stop: its signals.
        output: its standard output.
        ended: to be told its exit code and why it failed, as soon as it has ended.
    """

    settings: TrainSettings
    stop: StopSignals
    output: TextIO
    ended: Callable[[int, str], None]


def pack_from(environ: Mapping[str, str]) -> Pack | None:
    """Returns where this run meets the others of its pack; None for a run that has a process of its own."""
    folder, size = environ.get("CLUSTERKIT_TOGETHER"), environ.get("CLUSTERKIT_TOGETHER_SIZE", "")
    if not folder or not size.isdigit() or int(size) < 2:
        return None
    return Pack(Path(folder), int(size))


def train_in_pack(
    pack: Pack,
    settings: TrainSettings,
    argv: Sequence[str],
    environ: Mapping[str, str],
    alone: Callable[[TrainSettings], int],
    together: Callable[[Sequence[PackedRun]], Sequence[int]],
) -> int:
    """Trains this run with the others, in this process or in that of another; returns its exit code.

    Args:
        pack: where they meet.
        settings: of this run.
        argv: what it was started with.
        environ: likewise.
        alone: trains this run by itself.
        together: trains several; returns their exit codes.

    Raises:
        TrainerError: the process that trained it is gone.
    """
    given = (*argv, "--run-dir", str(settings.run_dir.resolve()))
    card = Card(settings.run_id, given, environ)
    size = pack.size
    with StopSignals() as stop:
        try:
            while (place := meet(pack.folder, card, stop)) is not None:
                with place:
                    if isinstance(place, Leader):
                        return _lead(place, card, size, stop, alone, together)
                    ending = _follow(place)
                if ending is None:
                    continue  # it left before it had begun
                if not ending.again or stop:
                    if ending.why:
                        sys.stderr.write(f"trainer: {ending.why}\n")
                    return ending.code
                size = ending.again
                card = Card(card.name, (*given, "--resume"), environ)
        except AloneError as reason:
            _say(f"{reason.cause}: this run trains in its own process")
            if not stop:
                return alone(read_settings(card.argv, environ))
    return stop.exit_code


def _follow(place: Follower) -> Ending | None:
    """Waits for the end of a run that another's process trains; None when that left before it had begun."""
    if not place.begun():
        return None
    _say(f"the process of {place.leader} trains {place.runs} runs, this one among them")
    ending = place.ending()
    if ending is None:
        raise TrainerError(
            f"the process that trained this run, that of {place.leader}, is gone",
            hint=f"the log of {place.leader} may say why; `clusterkit resume` continues from a checkpoint",
        )
    if ending.again:
        _say(f"{place.leader} leaves: the others continue from their checkpoints in another run's process")
    return ending


def _lead(
    leader: Leader,
    card: Card,
    size: int,
    stop: StopSignals,
    alone: Callable[[TrainSettings], int],
    together: Callable[[Sequence[PackedRun]], Sequence[int]],
) -> int:
    if size > 1:
        _say(f"waiting for {size - 1} more run{'s' if size > 2 else ''} of the pack")
    guests = [guest for guest in leader.gather(size) if _takes(leader, card, guest)]
    if stop:
        return stop.exit_code  # and the others meet without this one
    leader.begin()
    runs = len(guests) + 1
    if runs < size:
        _say(f"{size - runs} of the {size} runs of the pack did not come")
    if not guests:
        return alone(read_settings(card.argv, card.environ))
    names = sorted([card.name, *(guest.card.name for guest in guests)])
    _say(f"this process trains {runs} runs: {', '.join(names)}")
    living = list(guests)

    def own_end(code: int, why: str) -> None:
        if why:
            sys.stderr.write(f"trainer: {why}\n")
        if living and code not in (EXIT_REQUEUE, EXIT_INTERRUPTED):
            _say(f"this run has ended; its process trains the other {len(living)} to their ends")
            beat()

    def end(guest: Guest, code: int, why: str) -> None:
        living.remove(guest)
        leader.end(guest, code, why)

    packed = []
    for guest in guests:
        theirs = read_settings(guest.card.argv, guest.card.environ, runs)
        packed.append(PackedRun(theirs, guest.stop, guest.output, partial(end, guest)))
    # last, for whoever ended this process may not wait until all have their checkpoints
    ours = read_settings(card.argv, card.environ, runs)
    packed.append(PackedRun(ours, leader.own, sys.stdout, own_end))
    with keep_fresh(ours.run_dir / "heartbeat.json") as beat:
        try:
            return together(packed)[-1]
        except BaseException as error:
            why = str(error).partition("\n")[0] or type(error).__name__
            for guest in tuple(living):
                end(guest, 1, f"the process that trained this run, that of {card.name}, has failed: {why}")
            raise


def _takes(leader: Leader, card: Card, guest: Guest) -> bool:
    """Tells whether a run may share the process; one that may not is sent away."""
    ours = read_settings(card.argv, card.environ)
    theirs = read_settings(guest.card.argv, guest.card.environ)
    if different := _different(ours, theirs):
        leader.refuse(guest, f"{card.name} was started with another {different}")
    return not different


def _different(settings: TrainSettings, theirs: TrainSettings) -> str | None:
    """The name of a setting that two runs in one process must have in common, and have not."""
    names = (field.name for field in dataclasses.fields(TrainSettings) if field.name not in _OWN)
    return next((name for name in names if getattr(settings, name) != getattr(theirs, name)), None)


def _say(text: str) -> None:
    sys.stdout.write(f"[pack] {text}\n")
    sys.stdout.flush()


SECONDS = 15.0
"""Between two beats; a run that is silent for three minutes looks as if it hung."""


@contextlib.contextmanager
def keep_fresh(path: Path, seconds: float = SECONDS) -> Iterator[Callable[[], object]]:
    """Gives what has the time in a heartbeat kept new from then on, until the context is left.

    Args:
        path: of `heartbeat.json`, which nobody else writes by then.
        seconds: between two beats.
    """
    over = threading.Event()

    def beat() -> None:
        while not over.wait(seconds):
            with contextlib.suppress(OSError, ValueError):  # not there, or a full disk: then it looks silent
                facts = json.loads(path.read_text(encoding="utf-8"))
                atomic_write_json(path, {**facts, "time": time.time()})

    thread = threading.Thread(target=beat, name="heartbeat of the leader", daemon=True)
    try:
        yield thread.start
    finally:
        over.set()
        if thread.ident is not None:
            thread.join()
