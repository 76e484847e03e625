"""Choosing a transport costs nothing until ssh is really used."""

from __future__ import annotations

import subprocess
import sys


def test_importing_the_factory_imports_no_paramiko() -> None:
    script = (
        "import sys; from clusterkit.transport.factory import connect; connect(None);"
        "print([name for name in ('paramiko', 'cryptography', 'getpass') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
