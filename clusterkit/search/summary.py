"""The best trial of a search, in a small file beside the study: `status` need not load Optuna to show it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.folders import replace_file
from clusterkit.untrusted import Shape, read_object, shaped, table_of_texts, text, whole

if TYPE_CHECKING:
    from clusterkit.search.definition import Definition
    from clusterkit.search.study import SearchTrial

_FILE = "best.json"


@dataclass(frozen=True)
class Best:
    """The best completed trial so far."""

    search: str
    group: str
    """Id of the group of the search's runs."""
    trial: int
    run_id: str
    metric: str
    value: float
    values: Mapping[str, str]
    """Parameter -> its value."""


_SHAPE: Shape = {
    **dict.fromkeys(("search", "group", "run_id", "metric"), text),
    "trial": whole,
    "value": lambda value: value if isinstance(value, int | float) else None,
    "values": table_of_texts,
}


def write_best(folder: Path, definition: Definition, trial: SearchTrial) -> None:
    """Writes the best trial into the search's folder."""
    assert trial.value is not None
    best = Best(
        definition.name,
        definition.group,
        trial.number,
        trial.run_id,
        definition.metric,
        trial.value,
        trial.values,
    )
    replace_file(folder / _FILE, json.dumps(asdict(best)).encode(), mode=0o600)


def read_bests(home: Path) -> dict[str, Best]:
    """Returns the best trial of each search in the project's private folder, by the id of the group."""
    found = {}
    for file in sorted(home.glob(f"searches/*/{_FILE}")):
        document, wrong = shaped(read_object(file) or {}, _SHAPE)
        if not wrong and document.keys() == _SHAPE.keys():  # else it is damaged, and only a copy
            found[document["group"]] = Best(**document)
    return found
