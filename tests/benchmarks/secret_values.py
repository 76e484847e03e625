"""What it costs to keep secrets hidden: masked output of a program, and the files of a snapshot.

`masked`: MB/s of 512 MB of log lines (`--quick`: 64 MB) through `with_secrets.py`, and through `cat`, which
changes nothing. `*_mb_s`: the masker alone, for several kinds of values, in chunks of 64 KiB; its peer is one
regular expression of the values and their lines, which knows no other form of them and no split value.
`files`: seconds to take a snapshot of 10,000 files of 2 kB (`--quick`: 2,000), with two secrets and with
none, with no digest known; `files_again` with all digests known. Each `ratio_` is above 1 where ours is
faster.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from clusterkit import snapshots
from clusterkit.node.with_secrets import MASK, Masker
from clusterkit.resources import NODE_PROGRAMS
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.secret_values import SecretValues, seal
from tests.benchmarks._report import Row, arguments, report

CHUNK = 1 << 16
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
TOKEN = "hf_abcdefghijklmnopQRSTUVwxyz0123456"


def log(size: int) -> bytes:
    """So many bytes of a training run's output."""
    chance = random.Random(1)
    lines = [
        f"2026-11-28 18:24:27 [rank{step % 8}] step {step} success {chance.random():.4f} loss "
        f"{chance.random():.6f} http://host/path_{step} eval/return {chance.gauss(0, 1):.3f}\n"
        for step in range(20_000)
    ]
    text = "".join(lines).encode()
    return (text * (size // len(text) + 1))[:size]


def kinds() -> dict[str, list[str]]:
    """Values that programs get."""
    chance = random.Random(2)
    lines = ["".join(chance.choices(LETTERS, k=64)) for _ in range(26)]
    key = "\n".join(["-----BEGIN PRIVATE KEY-----", *lines, "-----END PRIVATE KEY-----", ""])
    return {
        "token": [TOKEN],
        "password": ["p\"ä$s's /w&rd"],
        "three": [TOKEN, "0123456789abcdef0123456789abcdef01234567", "postgres://u:p4ssw0rd@host/db"],
        "key": [key],
    }


def ours(values: list[bytes], text: bytes) -> None:
    """Mask as the node does."""
    masker = Masker(values)
    for at in range(0, len(text), CHUNK):
        masker.add(text[at : at + CHUNK])
    masker.end()


def peer(values: list[bytes], text: bytes) -> None:
    """Replace the values and their lines, each chunk by itself."""
    lines = [line for value in values for line in value.splitlines() if len(line) >= 8]
    known = re.compile(b"|".join(map(re.escape, sorted({*values, *lines}, key=len, reverse=True))))
    for at in range(0, len(text), CHUNK):
        known.sub(MASK, text[at : at + CHUNK])


def quickest(*works: Callable[[], object], times: int = 7) -> list[float]:
    """The least seconds that each of some pieces of work takes, in turn."""
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(times):
        for work, known in zip(works, seconds, strict=True):
            began = time.perf_counter()
            work()
            known.append(time.perf_counter() - began)
    return [min(known) for known in seconds]


def through(folder: Path, size: int) -> tuple[float, float]:
    """MB/s of a program's output through `with_secrets.py`, and through `cat`."""
    text = folder / "text"
    text.write_bytes(log(size))
    sealed = seal(SecretValues({"HF_TOKEN": TOKEN}), "r-1", alone=True)
    assert sealed is not None
    for path, content in sealed.files.items():
        assert isinstance(content, bytes)
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    run = folder / "run"
    (run / "submissions" / "0").mkdir(parents=True)
    (run / "work").mkdir()
    (run / "submissions" / "0" / "request.json").write_text(json.dumps({"seal": sealed.key}))
    (run / "launch.py").write_bytes((NODE_PROGRAMS / "launch.py").read_bytes())
    (run / "run.json").write_text(json.dumps({"argv": ["cat", str(text)], "env": {}}))
    (starter,) = folder.glob("secrets/*/with_secrets.py")
    launch = [sys.executable, str(run / "launch.py"), str(run)]
    masked = [sys.executable, str(starter), str(run), *launch]
    plain = ["sh", "-c", '"$@" | cat', "sh", *launch]
    with Path("/dev/null").open("wb") as nowhere:
        seconds = quickest(
            *(partial(subprocess.run, argv, stdout=nowhere, check=True) for argv in (masked, plain))
        )
    return size / seconds[0] / 1e6, size / seconds[1] / 1e6


def taking(folder: Path, count: int, secrets: SecretValues) -> tuple[list[float], list[float]]:
    """Seconds to take a snapshot of so many files with secrets and without: the first time, and again."""
    for number in range(count):
        path = folder / f"package{number // 100}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"value = {number:08}\n" * 111)
    plain = partial(snapshots.take, folder, exclude=(), max_file_size=1 << 20)
    looked = partial(plain, look=secrets.refuse_in_files)
    first = quickest(looked, plain, times=3)
    with tempfile.TemporaryDirectory() as home, Ledger(Path(home) / "ledger.sqlite3") as ledger:
        time.sleep(3.5)  # until the files are known to be at rest
        again = quickest(*(partial(take, memory=ledger.connection) for take in (looked, plain)))
    return first, again


def main() -> None:
    """Measure and print."""
    quick = arguments(__doc__).quick
    rows: list[Row] = []
    metrics: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        mine, cat = through(Path(folder), (64 if quick else 512) << 20)
    rows.append(("masked", "with_secrets.py", mine, "cat", cat, "MB/s"))
    metrics |= {"masked_mb_s": mine, "ratio_masked": mine / cat}
    text = log(4 << 20)
    for name, values in kinds().items():
        raw = [value.encode() for value in values]
        mine, other = quickest(partial(ours, raw, text), partial(peer, raw, text))
        rows.append(
            (name, "masker", len(text) / mine / 1e6, "one expression", len(text) / other / 1e6, "MB/s")
        )
        metrics |= {f"{name}_mb_s": len(text) / mine / 1e6, f"ratio_{name}": other / mine}
    with tempfile.TemporaryDirectory() as folder:
        count, values = 2_000 if quick else 10_000, {"HF_TOKEN": TOKEN, "PASSWORD": kinds()["password"][0]}
        first, again = taking(Path(folder), count, SecretValues(values))
    for name, (mine, other) in (("files", first), ("files_again", again)):
        rows.append((name, "two secrets", mine, "no secret", other, "s"))
        metrics |= {name: mine, f"ratio_{name}": other / mine}
    report("secret_values", rows, metrics)


if __name__ == "__main__":
    main()
