"""What goes into an export."""

import json
from pathlib import Path
from typing import Any

import pytest

from clusterkit.sharing.archive import ArchiveMember
from clusterkit.sharing.contents import Code, contents
from clusterkit.snapshots.snapshot import ManifestEntry
from tests.results.run_dirs import make_run_dir

IMAGE = {"digest": "ab" * 32, "path": "/x.sif", "bytes": 7}


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = make_run_dir(tmp_path / "results", "demo-1")
    for name in (
        "checkpoints/step-000000000010/manifest.json",
        "checkpoints/step-000000000010/model.pt",
        "checkpoints/step-000000000010/state.pt",
        "checkpoints/step-000000000005/model.pt",
        "checkpoints/replay/000000000010-0123456789abcdef.rows",
        "checkpoints/.unfinished/model.pt",
        "wandb/offline-run-1/run.wandb",
        "report/report.html",
        "videos/reach-v3.mp4",
        "my own/table.csv",
        "submissions/0/request.json",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    (folder / "outwards").symlink_to("/etc/passwd")
    return folder


def pack(
    run_dir: Path,
    *,
    image: Path | None = None,
    model: str | None = None,
    document: dict[str, Any] | None = None,
    trees: int = 2,
) -> dict[str, ArchiveMember]:
    document = json.loads((run_dir / "run.json").read_text()) | {"image": IMAGE} | (document or {})
    code = run_dir.parent / "code"
    (code / "project").mkdir(parents=True, exist_ok=True)
    (code / "project" / "run me").write_text("x")
    (code / "manifest.gz").write_bytes(b"")
    snapshot = Code("0" * 16, code, {"project/run me": ManifestEntry("exec", "", 1)})
    return contents(
        run_dir,
        document,
        trees=[snapshot] * trees,
        packages={"torch": "2.13.0", "numpy": "2.4.6"},
        image=image,
        model=run_dir / model if model else None,
    )


def test_what_stays_out(run_dir: Path) -> None:
    run = {name.removeprefix("run/") for name in pack(run_dir) if name.startswith("run/")}
    assert run == {
        *("run.json", "metrics.jsonl", "my own/table.csv", "submissions/0/request.json"),
        *("attempts/0/start.json", "attempts/0/exit.json"),
    }


def test_a_checkpoint_in_the_place_of_a_final_model_is_whole(run_dir: Path) -> None:
    found = pack(run_dir, model="checkpoints/step-000000000010")
    kept = {name for name in found if name.startswith("run/checkpoints/")}
    assert kept == {
        f"run/checkpoints/step-000000000010/{name}" for name in ("manifest.json", "model.pt", "state.pt")
    }
    about = json.loads(found["export.json"].content or b"")
    assert about["model"] == "run/checkpoints/step-000000000010"


def test_the_image_or_its_digest(run_dir: Path, tmp_path: Path) -> None:
    bare = pack(run_dir)
    assert not any(name.startswith("image/") for name in bare)
    assert f"Its image is not in here: sha256 {IMAGE['digest']}" in _readme(bare)
    sif = tmp_path / "x.sif"
    sif.write_bytes(b"1234567")
    found = pack(run_dir, image=sif)
    assert found[f"image/sha256-{IMAGE['digest']}.sif"].file == sif
    line = f'apptainer exec --nv --bind "$here" "$here"/image/sha256-{IMAGE["digest"]}.sif'
    assert line in _readme(found)
    assert "It ran without a container" in _readme(pack(run_dir, image=None, document={"image": None}))


def test_packages_and_what_can_be_executed(run_dir: Path) -> None:
    found = pack(run_dir)
    assert found["packages.txt"].content == b"numpy==2.4.6\ntorch==2.13.0\n"
    assert found["code/project/run me"].executable


def test_the_trainer_is_there_only_if_the_run_used_it(run_dir: Path) -> None:
    assert 'PYTHONPATH="$here/trainer/bundle:$here/run/lib"' in _readme(pack(run_dir))
    plain = pack(run_dir, trees=1)
    assert not [name for name in plain if name.startswith("trainer/")]
    assert json.loads(plain["export.json"].content or b"")["trainer"] is None
    assert 'PYTHONPATH="$here/run/lib"' in _readme(plain)  # where clusterkit.log is
    assert "trainer/" not in _readme(plain)


def test_the_arguments_that_made_the_results(run_dir: Path) -> None:
    request = {"argv": ["python", "x.py", "it's"], "env": {"N": "a b", "WANDB_DIR": "/gone"}}
    (run_dir / "submissions" / "0" / "request.json").write_text(json.dumps(request))
    text = _readme(pack(run_dir))
    assert "python x.py 'it'\"'\"'s'" in text
    assert "export N='a b'" in text
    assert "/gone" not in text


def _readme(members: dict[str, ArchiveMember]) -> str:
    return (members["README.txt"].content or b"").decode()
