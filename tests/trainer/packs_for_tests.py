"""A process of a pack that but seems to train: `python -m tests.trainer.packs_for_tests SECONDS WORD...`.

A run makes a step every few milliseconds, notes whose process has made it, and has ended when its seconds
are over, by a signal, or as the file `do` in its run directory says: with a code, or taking all along.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial

from trainer.errors import TrainerError
from trainer.seeds import pack as training
from trainer.seeds.pack import keep_fresh, pack_from, train_in_pack
from trainer.settings import read_settings


def alone(settings) -> int:
    (settings.run_dir / "alone").touch()
    return 0


def together(runs) -> list[int]:
    codes: dict[int, int] = {}
    begun = time.monotonic()
    while len(codes) < len(runs):
        time.sleep(0.01)
        for number, run in enumerate(runs):
            if number in codes:
                continue
            folder = run.settings.run_dir
            with (folder / "steps").open("a") as file:
                file.write(f"{os.getpid()} {run.settings.seed} {run.settings.resume}\n")
            do = (folder / "do").read_text() if (folder / "do").exists() else ""
            if do == "crash":
                raise RuntimeError("out of memory\nand more")
            if run.stop:
                codes[number] = run.stop.exit_code
                (folder / "checkpoint").touch()
            elif do or time.monotonic() > begun + float(sys.argv[1]):
                codes[number] = int(do or 0)
            if number in codes:
                run.output.write(f"seed {run.settings.seed} ends with {codes[number]}\n")
                run.ended(codes[number], "it diverged" if codes[number] == 1 else "")
    return [codes[number] for number in range(len(runs))]


def main() -> int:
    argv = sys.argv[2:]
    training.keep_fresh = partial(keep_fresh, seconds=0.05)  # nobody waits a quarter of a minute here
    settings = read_settings(argv, os.environ)
    try:
        return train_in_pack(pack_from(os.environ), settings, argv, os.environ, alone, together)
    except TrainerError as error:
        sys.stderr.write(f"{error.cause}\n  {error.hint}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
