"""The trials of a search: an Optuna study on an SQLite file of the project. Only here is Optuna loaded."""

from __future__ import annotations

import importlib
import math
import sqlite3
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterkit.errors import ClusterkitError, RunError, last_words
from clusterkit.search.definition import Definition
from clusterkit.search.space import Between, parse

if TYPE_CHECKING:
    import optuna

RUNNING, COMPLETE, PRUNED, FAILED = "running", "complete", "pruned", "failed"
_STATES = {"RUNNING": RUNNING, "COMPLETE": COMPLETE, "PRUNED": PRUNED, "FAIL": FAILED}
FILE = "trials.sqlite3"
_NEW = f"new-{FILE}"
_BUSY_SECONDS = 60.0
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
_LOST = "begin a search of another name; the runs of this one are not lost: `clusterkit report` shows them"
_MOST_STEPS = 200
"""Values of a trial that are recorded at one look; of more, after a pause, evenly chosen ones."""


@dataclass(frozen=True)
class SearchTrial:
    """One trial of a search."""

    number: int
    state: str
    """`running`, `complete`, `pruned` or `failed`."""
    values: Mapping[str, str]
    """Parameter -> its value, as it is given to the run."""
    run_id: str
    value: float | None
    """The metric: the final one, or the last one so far; None if it is not finite or the trial failed."""
    step: int | None
    """The step of the last one."""
    stopping: bool
    """Whether it was decided to end it early."""
    why: str | None
    """Why it failed."""


class Study:
    """The study of a search. One process at a time may change it.

    Raises:
        RunError: its file is gone although trials have begun, or it is damaged.
    """

    def __init__(self, folder: Path, definition: Definition) -> None:
        self._optuna = load_optuna()
        self._definition = definition
        file = folder / FILE
        if not file.exists():
            if definition.materials is not None:
                raise _unreadable(file, "it is gone")  # new trials would take the runs of the old ones
            self._make(folder)
        try:
            self._storage = self._open(file)
            self._study: optuna.Study = self._optuna.load_study(
                study_name=definition.name,
                storage=self._storage,
                sampler=self._sampler(),
                pruner=self._pruner(),
            )
            self.trials()
        except Exception as error:  # of Optuna, SQLAlchemy or SQLite, for each kind of damage another
            raise storage_fault(error) or _unreadable(file, last_words(str(error))) from error

    def _make(self, folder: Path) -> None:
        """Makes the file as a whole: of a part of its tables, Optuna would not notice what is missing."""
        for name in (_NEW, f"{_NEW}-journal"):
            (folder / name).unlink(missing_ok=True)
        storage = self._open(folder / _NEW)
        self._optuna.create_study(
            study_name=self._definition.name, storage=storage, direction=self._definition.direction
        )
        storage.engine.dispose()
        (folder / _NEW).replace(folder / FILE)

    def _open(self, file: Path) -> optuna.storages.RDBStorage:
        found: optuna.storages.RDBStorage = self._optuna.storages.RDBStorage(
            f"sqlite:///{_url_path(file)}", engine_kwargs={"connect_args": {"timeout": _BUSY_SECONDS}}
        )
        return found

    def trials(self, *states: str) -> list[SearchTrial]:
        """Returns the trials by number: all of them, or those in some states."""
        found = [self._trial(one) for one in self._study.get_trials(deepcopy=False)]
        return [one for one in found if not states or one.state in states]

    def best(self) -> SearchTrial | None:
        """Returns the completed trial with the best value; None before the first."""
        return best_of(self.trials(COMPLETE), self._definition.direction)

    def ask(self) -> SearchTrial:
        """Begins a trial with new values."""
        return self.with_values(self._study.ask().number)

    def with_values(self, number: int) -> SearchTrial:
        """Chooses those values of a running trial that an interrupted command has not chosen."""
        trial_id = self._id(number)
        trial = self._optuna.trial.Trial(self._study, trial_id)
        for name, text in self._definition.space.items():
            kind = parse(name, text)
            if not isinstance(kind, Between):
                trial.suggest_categorical(name, kind)
            elif kind.whole:
                trial.suggest_int(name, int(kind.low), int(kind.high), log=kind.log)
            else:
                trial.suggest_float(name, kind.low, kind.high, log=kind.log)
        if "run" not in trial.user_attrs:  # last, so that it tells whether all of this was done
            trial.set_user_attr("judged", any(one.state == COMPLETE for one in self.trials()))
            trial.set_user_attr("run", self._definition.run_id(number))
        return self._trial(self._storage.get_trial(trial_id))

    def report(self, number: int, values: Mapping[int, float]) -> bool:
        """Records a running trial's values by step, each step once; returns whether to end it now.

        Trials that began before one had completed are never ended: until then the pruner does not know how
        many steps there are, and would compare their late values with the early ones of others.
        """
        trial_id = self._id(number)
        before = self._storage.get_trial(trial_id)
        last = max(before.intermediate_values, default=-1)
        for step in _some([step for step in sorted(values) if step > last]):
            self._storage.set_trial_intermediate_value(trial_id, step, values[step])
            if before.user_attrs.get("judged") and self._prunes(trial_id):
                self._storage.set_trial_user_attr(trial_id, "stopping", True)
                return True
        return False

    def complete(self, number: int, step: int, value: float) -> None:
        """Records a trial's final value."""
        self._storage.set_trial_intermediate_value(self._id(number), step, value)
        self._study.tell(number, value, skip_if_finished=True)

    def prune(self, number: int) -> None:
        """Records that a trial was ended early, with its last value."""
        self._study.tell(number, state=self._optuna.trial.TrialState.PRUNED, skip_if_finished=True)

    def fail(self, number: int, why: str) -> None:
        """Records that a trial has no value."""
        self._storage.set_trial_user_attr(self._id(number), "why", why)
        self._study.tell(number, state=self._optuna.trial.TrialState.FAIL, skip_if_finished=True)

    def _prunes(self, trial_id: int) -> bool:
        return bool(self._study.pruner.prune(self._study, self._storage.get_trial(trial_id)))

    def _id(self, number: int) -> int:
        study_id = self._storage.get_study_id_from_name(self._definition.name)
        return self._storage.get_trial_id_from_study_id_trial_number(study_id, number)

    def _trial(self, found: optuna.trial.FrozenTrial) -> SearchTrial:
        ended = found.state.name == "COMPLETE"
        step = found.last_step
        last = None if step is None else found.intermediate_values[step]
        if last is not None and (found.state.name == "FAIL" or not math.isfinite(last)):
            last = None
        return SearchTrial(
            found.number,
            _STATES[found.state.name],
            {name: str(found.params[name]) for name in self._definition.space if name in found.params},
            self._definition.run_id(found.number),
            found.value if ended else last,
            step,
            bool(found.user_attrs.get("stopping")),
            found.user_attrs.get("why"),
        )

    def _sampler(self) -> optuna.samplers.BaseSampler:
        found: optuna.samplers.BaseSampler
        if self._definition.sampler == "random":
            found = self._optuna.samplers.RandomSampler()
            return found
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna calls `constant_liar` experimental
            # It keeps trials that run at the same time apart.
            found = self._optuna.samplers.TPESampler(constant_liar=True)
        return found

    def _pruner(self) -> optuna.pruners.BasePruner:
        kinds = self._optuna.pruners
        asha = self._definition.prune == "asha"
        found: optuna.pruners.BasePruner = kinds.SuccessiveHalvingPruner() if asha else kinds.NopPruner()
        return found


def read_trials(folder: Path, definition: Definition) -> list[SearchTrial]:
    """Returns the trials of a search by number, and makes nothing."""
    return Study(folder, definition).trials() if (folder / FILE).exists() else []


def best_of(trials: Sequence[SearchTrial], direction: str) -> SearchTrial | None:
    """Returns the completed trial with the best value; None without one."""
    return next(iter(ranked([one for one in trials if one.state == COMPLETE], direction)), None)


def ranked(trials: Sequence[SearchTrial], direction: str) -> list[SearchTrial]:
    """Sorts trials: completed ones by their value, best first, then the others by number."""
    sign = -1.0 if direction == "maximize" else 1.0

    def key(one: SearchTrial) -> tuple[bool, float, int]:
        complete = one.state == COMPLETE
        return not complete, sign * (one.value or 0.0) if complete else 0.0, one.number

    return sorted(trials, key=key)


def _some(steps: Sequence[int]) -> Sequence[int]:
    stride = -(-len(steps) // _MOST_STEPS)
    return steps[::-stride][::-1] if stride > 1 else steps  # with the last one


def _url_path(path: Path) -> str:
    """Returns a path as SQLAlchemy reads it in a URL, of which `?` and `%` have a meaning."""
    return str(path).replace("%", "%25").replace("?", "%3F")


def _unreadable(file: Path, why: str) -> RunError:
    return RunError(
        f"{file}: not a readable file of trials: {why}",
        hint=_LOST,
    )


def storage_fault(error: BaseException) -> ClusterkitError | None:
    """Returns the error to show if SQLite could not read or write the trials; None for any other error."""
    found: BaseException | None = error
    while found is not None:
        cause = getattr(found, "orig", None)  # of SQLAlchemy's errors
        if isinstance(cause, sqlite3.DatabaseError):
            damaged = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF in _DAMAGED
            return ClusterkitError(
                f"the trials of the search, {FILE} in its folder, cannot be read or written: {cause}",
                hint=_LOST if damaged else "correct this, then repeat the command: it goes on",
            )
        found = found.__cause__
    return None


def load_optuna() -> Any:
    """Returns the module, which says nothing of its own accord.

    Raises:
        ClusterkitError: it is not installed.
    """
    try:
        found = importlib.import_module("optuna")
    except ImportError as error:
        from clusterkit_rl.distribution import install_command

        raise ClusterkitError(
            f"`clusterkit search` needs Optuna, which cannot be imported: {error}",
            hint=install_command(extra="search"),
        ) from error
    found.logging.set_verbosity(found.logging.ERROR)
    return found
