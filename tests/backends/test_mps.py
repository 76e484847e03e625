"""NVIDIA MPS of a pack, with a stand-in for its control program: no GPU is needed to see who is told what."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.backends.test_group_script import WAIT, Group
from tests.programs import write_program
from tests.waiting import until

# Notes how it was called. A daemon keeps what it was started with open, as some do; only `quit` ends it.
CONTROL = """
pipe=$CUDA_MPS_PIPE_DIRECTORY
if [ "${1:-}" = -d ]; then
  echo "start $pipe $CUDA_MPS_LOG_DIRECTORY ${CUDA_VISIBLE_DEVICES:-}" >>"%(notes)s"
  [ ! -e "%(notes)s.refuses" ] || { echo "An instance of this daemon is already running" >&2; exit 1; }
  sleep 300 &
  echo $! >"$pipe/control"
  exit 0
fi
read -r word
echo "$word $pipe" >>"%(notes)s"
[ -e "$pipe/control" ] || { echo "Cannot find MPS control daemon process"; exit 1; }
[ "$word" != quit ] || kill "$(cat "$pipe/control")"
"""
SHOW = 'printf "%s %s" "${CUDA_MPS_PIPE_DIRECTORY:-}" "${CUDA_VISIBLE_DEVICES:-}" >mps'


class Pack(Group):
    """A pack with MPS, and what its control program was told."""

    def __init__(self, root: Path, *members: str, **fields: object) -> None:
        super().__init__(root, *members, pack=len(members), mps=True, **fields)
        self.notes = root / "notes"
        write_program(self.bin, "nvidia-cuda-mps-control", CONTROL % {"notes": self.notes})

    @property
    def told(self) -> list[list[str]]:
        return [line.split() for line in self.notes.read_text().splitlines()] if self.notes.exists() else []

    @property
    def seen(self) -> list[list[str]]:
        """What each member found in its environment."""
        return [(folder / "mps").read_text().split() for folder in self.members]


def read(file: Path) -> str:
    return file.read_text() if file.exists() else ""


@pytest.fixture(autouse=True)
def no_mps_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


def test_it_is_started_once_reaches_every_run_and_quits_at_the_end(tmp_path: Path) -> None:
    pack = Pack(tmp_path, SHOW, SHOW, SHOW)
    write_program(pack.bin, "nvidia-smi", '[ "$4" = 3 ] && echo GPU-5f1e')
    assert pack.run(CUDA_VISIBLE_DEVICES="3") == 0
    assert "[clusterkit] NVIDIA MPS is started: the runs use the GPU at the same time" in pack.said
    (start, pipe, log, device), (question, asked), (end, ended) = pack.told
    assert (start, question, end) == ("start", "get_server_list", "quit")
    assert pipe == asked == ended
    assert pack.seen == [[pipe, "GPU-5f1e"]] * 3
    assert device == "GPU-5f1e"
    assert log.startswith("/tmp/clusterkit-mps.")
    assert len(f"{pipe}/nvidia-cuda-mps-control.log") < 108, "sockets have short names"
    assert not Path(pipe).parent.exists()


def test_without_names_of_gpus_the_numbers_are_those_of_the_daemon(tmp_path: Path) -> None:
    pack = Pack(tmp_path, SHOW, SHOW)
    write_program(pack.bin, "nvidia-smi", "exit 9")
    assert pack.run(CUDA_VISIBLE_DEVICES="3,5") == 0
    assert pack.told[0][-1] == "3,5"
    assert [devices for _, devices in pack.seen] == ["0,1", "0,1"]


def test_a_daemon_that_does_not_start_is_said_and_the_runs_go_on(tmp_path: Path) -> None:
    pack = Pack(tmp_path, SHOW, SHOW)
    Path(f"{pack.notes}.refuses").touch()
    assert pack.run() == 0
    assert (
        "without NVIDIA MPS, the runs take turns on the GPU: its daemon did not start: An instance"
        in pack.said
    )
    assert pack.seen == [[], []]
    assert not Path(pack.told[0][1]).parent.exists()


def test_a_node_without_it_goes_on_without_it(tmp_path: Path) -> None:
    pack = Pack(tmp_path, SHOW, SHOW)
    (pack.bin / "nvidia-cuda-mps-control").unlink()
    assert pack.run() == 0
    assert "has no nvidia-cuda-mps-control on PATH" in pack.said
    assert pack.seen == [[], []]


def test_the_lines_of_the_prelude_may_put_it_on_path(tmp_path: Path) -> None:
    there = tmp_path / "cuda"
    lines = ("echo loading; mps=/; tools=/", f'export PATH="{there}" OWN=1', "false")
    pack = Pack(tmp_path, f"{SHOW}; echo ${{OWN:-}} >own", SHOW, prelude=lines)
    there.mkdir()
    (pack.bin / "nvidia-cuda-mps-control").rename(there / "nvidia-cuda-mps-control")
    assert pack.run() == 0
    assert "NVIDIA MPS is started" in pack.said
    assert "loading" not in pack.said
    assert [words[0] for words in pack.told] == ["start", "get_server_list", "quit"]
    assert (pack.members[0] / "own").read_text() == "\n", "each run's own job has its own prelude"


@pytest.mark.parametrize("name", ["CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"])
def test_one_of_the_site_s_own_is_left_alone(tmp_path: Path, name: str) -> None:
    pack = Pack(tmp_path, SHOW, SHOW)
    assert pack.run(**{name: "50"}) == 0
    assert "NVIDIA MPS is the site's own here" in pack.said
    assert pack.told == []


def test_it_quits_after_a_signal_and_behind_a_run_that_fails(tmp_path: Path) -> None:
    pack = Pack(tmp_path, WAIT, f"{SHOW}; code=3")
    process = pack.start()
    record, running = (folder / "attempts" / "0" for folder in reversed(pack.members))
    until(lambda: "}" in read(record / "exit.json") and (running / "started").exists())
    assert [words[0] for words in pack.told] == ["start", "get_server_list"], "one of them still runs"
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 1
    assert pack.ends() == [["signalled"], ["failed"]]
    assert pack.told[-1][0] == "quit"
    assert json.loads((pack.members[1] / "attempts/0/exit.json").read_text())["code"] == 3
