"""What Apptainer is told, for every kind of request, here and for another machine."""

from pathlib import Path

import pytest

from clusterkit.errors import ClusterkitError, ConfigError, ImageError
from clusterkit.images.building.work import BOOTSTRAPS, TORCH, Request, daemon_image, prepare, tagged


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "old image.sif"
    path.write_bytes(b"sif")
    return path


@pytest.mark.parametrize("bootstrap", BOOTSTRAPS)
@pytest.mark.parametrize("torch", TORCH)
def test_the_trainer_image_comes_with_its_lock_files_and_nothing_else(
    bootstrap: str, torch: str, base: Path
) -> None:
    work = prepare(Request(bootstrap, str(base) if bootstrap == "localimage" else None, torch), here=True)
    assert work.texts[work.target].startswith(f"Bootstrap: {bootstrap}\n")
    assert set(work.texts) == {"image.def", "install.sh", "locked.txt", f"locked-{torch}.txt"}
    assert "--hash=sha256:" in work.texts[f"locked-{torch}.txt"]
    assert "{{" not in work.texts[work.target]
    assert work.defined
    assert work.ours


def test_a_base_travels_only_to_another_machine(base: Path) -> None:
    request = Request("localimage", str(base))
    assert f"From: {base}\n" in prepare(request, here=True).texts["image.def"]
    there = prepare(request, here=False)
    assert "From: old image.sif\n" in there.texts["image.def"]
    assert there.files == {"old image.sif": base}


@pytest.mark.parametrize("slashes", ["", "//"])
def test_conversions(tmp_path: Path, slashes: str) -> None:
    archive = tmp_path / "a.tar"
    archive.touch()
    (tmp_path / "layout").mkdir()

    def here(source: str) -> str:
        return prepare(Request(source=source), here=True).target

    assert here(f"docker:{slashes}ubuntu:24.04") == "docker://ubuntu:24.04"
    assert here(f"docker-daemon:{slashes}mine") == "docker-daemon:mine:latest"
    assert here(f"docker-archive:{slashes}{archive}") == f"docker-archive:{archive}"
    assert here(f"oci:{slashes}{tmp_path}/layout:v1") == f"oci:{tmp_path}/layout:v1"
    there = prepare(Request(source=f"docker-archive:{slashes}{archive}"), here=False)
    assert there.target == "docker-archive:a.tar"
    assert there.files == {"a.tar": archive}
    assert not there.defined


def test_what_is_in_docker_is_taken_out_for_another_machine() -> None:
    assert daemon_image(Request(source="docker-daemon:mine")) == "mine:latest"
    assert daemon_image(Request(source="docker-archive:mine")) is None
    assert tagged("host:5000/a/b") == "host:5000/a/b:latest"
    assert tagged("a@sha256:00") == "a@sha256:00"


DEFINITION = """
# a comment: not a header
Bootstrap: localimage
From: base.sif

%files
    data/*.txt /opt/
    "two words"
    # nothing
%files from builder
    /usr/local/x
%post
    echo "key: value"
"""


def test_a_definition_of_ones_own_stays_in_its_folder_or_takes_its_files_along(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("base.sif", "data/1.txt", "data/2.txt", "data/3.bin", "two words"):
        (tmp_path / name).touch()
    path = tmp_path / "my.def"
    path.write_text(DEFINITION)
    here = prepare(Request(definition=path), here=True)
    assert (here.target, here.folder, here.files) == (str(path), tmp_path, {})
    there = prepare(Request(definition=path), here=False)
    assert set(there.files) == {"base.sif", "data/1.txt", "data/2.txt", "two words"}
    assert there.texts == {"image.def": DEFINITION}
    assert not there.ours


@pytest.mark.parametrize("name", ["/etc/passwd", "../up"])
def test_files_of_this_machine_alone_are_refused_for_another(tmp_path: Path, name: str) -> None:
    path = tmp_path / "my.def"
    path.write_text(f"Bootstrap: docker\nFrom: x\n%files\n  {name} /x\n")
    prepare(Request(definition=path), here=True)
    with pytest.raises(ConfigError, match="outside"):
        prepare(Request(definition=path), here=False)


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        (Request("dokcer"), ConfigError, "dokcer"),
        (Request(torch="rocm"), ConfigError, "rocm"),
        (Request("localimage"), ConfigError, "--from"),
        (Request("localimage", "none.sif"), ImageError, "none.sif"),
        (Request("docker", "oci:x"), ConfigError, "finished"),
        (Request(source="docker-archive:none.tar"), ImageError, "none.tar"),
        (Request(definition=Path("none.def")), ImageError, "none.def"),
        (Request("docker", definition=Path("a.def")), ConfigError, "exclude"),
        (Request("docker", "evil\n%post"), ConfigError, "cannot be shown"),
    ],
)
def test_wrong_requests(request_: Request, error: type[ClusterkitError], words: str) -> None:
    with pytest.raises(error, match=words):
        prepare(request_, here=True)
