import contextlib
import os
import sys
from pathlib import Path

from wandb.link import ADDRESS, ask  # type: ignore[import-untyped]

files = []
for number in sorted(int(path.name) for path in Path("/proc/self/fd").iterdir()):
    with contextlib.suppress(OSError):
        os.fstat(number)
        files.append(number)
sys.exit(ask(os.environ[ADDRESS], ["-m", "wandb", *sys.argv[1:]], str(Path.cwd()), os.environ, files))
