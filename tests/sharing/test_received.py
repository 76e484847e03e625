"""run.json of an archive is checked before anything is made of it."""

import json
from typing import Any

import pytest

from clusterkit.backends.submission import Submission
from clusterkit.config.models import Profile
from clusterkit.config.settings import load_settings
from clusterkit.errors import RunError
from clusterkit.runs.record import read_record
from clusterkit.runs.spec import RunSpec
from clusterkit.sharing.received import check_received

DOCUMENT: dict[str, Any] = {
    "run_id": "a-20260102-030405-k3f9",
    "name": "a",
    "argv": ["python", "train.py"],
    "env": {"N": "1"},
    "workdir": "/root/snapshots/0123456789abcdef/project",
    "python_path": ["/root/snapshots/fedcba9876543210/bundle"],
    "snapshot": {"id": "0123456789abcdef"},
    "image": {"digest": "0" * 64, "path": "/x.sif", "bytes": 1},
    "created": "2026-01-02T03:04:05Z",
    "cluster": "far",
    "recipe": None,
    "seed": 1,
    "total_steps": None,
    "time_limit_seconds": 60,
    "wandb": {},
    "versions": {},
}


def check(document: dict[str, Any], request: dict[str, Any] | None = None) -> Profile:
    found, wrong = read_record("request.json", json.dumps(request or {}))
    newest = Submission.recorded(0, found, damage=wrong or "")
    return check_received(RunSpec.recorded(document, "the archive's run.json"), newest)


def shipped() -> dict[str, Any]:
    return dict(load_settings().profiles)


@pytest.fixture
def document() -> dict[str, Any]:
    return {**DOCUMENT, "profile": shipped()["a40-2m"].model_dump(mode="json")}


def test_every_shipped_profile_is_taken_as_it_is() -> None:
    for profile in shipped().values():
        assert check({**DOCUMENT, "profile": profile.model_dump(mode="json")}) == profile


@pytest.mark.parametrize("key", [*DOCUMENT, "profile"])
def test_what_is_missing(document: dict[str, Any], key: str) -> None:
    del document[key]
    with pytest.raises(RunError, match="not written by clusterkit"):
        check(document)


@pytest.mark.parametrize(
    "wrong",
    [
        {"run_id": "../x"},
        {"run_id": "a b"},
        {"name": 3},
        {"argv": []},
        {"argv": "rm"},
        {"env": {"A": 1}},
        {"env": []},
        {"workdir": "/root/snapshots/../project"},
        {"workdir": "/root/snapshots/$(id)/project"},
        {"python_path": ["/root/snapshots/../bundle"]},
        {"python_path": ["/root/snapshots/fedcba9876543210/bundle"] * 2},
        {"snapshot": {"diff": 5}},
        {"image": {"digest": "../../etc", "bytes": 1}},
        {"image": {"digest": "0" * 64, "bytes": "1"}},
        {"image": {"digest": "0" * 64, "bytes": -1}},
        {"profile": {"name": "p", "time": "1h"}},
        {"profile": {"name": "p", "time": 60, "sbatch": {"comment": "x\n#SBATCH --wrap=y"}}},
        {"profile": {"name": "p", "time": -1}},
        {"profile": []},
        {"recipe": []},
        {"seed": "1"},
        {"total_steps": "x"},
        {"seed": 1 << 80},
        {"seed": True},
        {"seed": 1.5},
        {"total_steps": -1},
        {"sweep": ["seed"]},
        {"sweep": "seed"},
        {"sweep": {"seed": 5}},
        {"name": "\ud800"},
        {"argv": ["python", "-m", "trainer", "train", "--total-steps", "many"]},
        {"env": {"CLUSTERKIT_TOTAL_STEPS": "many"}},
        {"image": {"digest": "0" * 64, "bytes": 1 << 80}},
        {"profile": {"name": "p", "time": float("inf")}},
    ],
    ids=str,
)
def test_what_is_wrong(document: dict[str, Any], wrong: dict[str, Any]) -> None:
    with pytest.raises(RunError, match="not written by clusterkit"):
        check({**document, **wrong})


def test_what_is_wrong_in_the_newest_submission(document: dict[str, Any]) -> None:
    check(document, {"argv": ["x"], "env": {"A": "1"}})
    for wrong in ({"argv": "rm"}, {"argv": [1]}, {"env": {"A": 1}}):
        with pytest.raises(RunError, match=r"argv|env"):
            check(document, wrong)
