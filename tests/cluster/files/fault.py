"""A program that fails in the way its first argument names; runs on the nodes' own Python."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

RUN = os.environ["CLUSTERKIT_RUN_DIR"]


def beat(step):
    """One heartbeat, as a program writes it."""
    text = json.dumps(
        {
            "schema": 1,
            "time": time.time(),
            "attempt": 0,
            "step": step,
            "total_steps": 1000,
            "steps_per_second": 2.0,
            "phase": "train",
        }
    )
    with open(RUN + "/.heartbeat.tmp", "w") as file:
        file.write(text)
    os.rename(RUN + "/.heartbeat.tmp", RUN + "/heartbeat.json")


def sleeps():
    time.sleep(600)


def trains():
    for step in range(600):
        beat(step)
        time.sleep(0.5)


def hangs():
    print("step 40, sampling a batch", flush=True)
    beat(40)
    time.sleep(600)


def eats():
    held = bytearray()
    while True:
        held += bytes(1 << 24)


def crashes():
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(60)


def imports():
    import metaworld  # noqa: F401


def fills_scratch():
    with open(os.environ["TMPDIR"] + "/replay.bin", "wb") as file:
        for _ in range(64):
            file.write(bytes(1 << 16))


def fills_home():
    target = os.path.expanduser("~") + "/cache/weights.bin"
    subprocess.run(["dd", "if=/dev/zero", "of=" + target, "bs=1M", "count=4"], check=True)


def writes_here():
    with open("notes.txt", "a") as file:
        file.write("step 1\n")


def fetches():
    socket.create_connection(("download.pytorch.org", 443), timeout=5)


def opens_files():
    held = [os.open(__file__, os.O_RDONLY) for _ in range(1 << 21)]
    print(len(held))


def old_driver():
    # PyTorch's own words (c10/cuda/CUDAFunctions.cpp); there is no old driver here to make it say them.
    raise RuntimeError(
        "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by"
        " downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx"
        " Alternatively, go to: https://pytorch.org to install a PyTorch version that has been compiled with"
        " your version of the CUDA driver."
    )


def works():
    beat(1000)


globals()[sys.argv[1]]()
