"""A directory as a queue: `python queue_folder.py FOLDER submit|work|list|cancel ...`.

A job is a file of JSON, `<number>`, in one of the folders waiting, running and ended. One worker at a time
takes the oldest that may start; it ends when nothing waits.
"""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

REQUEUE = 85
SLOTS = 2


class Queue:
    def __init__(self, folder):
        self.folder = Path(folder)
        for name in ("waiting", "running", "ended"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)

    def jobs(self, state):
        return {int(path.name): json.loads(path.read_text()) for path in (self.folder / state).glob("[0-9]*")}

    def put(self, state, number, job):
        draft = self.folder / f".{number}"
        draft.write_text(json.dumps(job))
        draft.rename(self.folder / state / str(number))

    def move(self, number, job, old, new):
        self.put(new, number, job)
        (self.folder / old / str(number)).unlink()

    def add(self, script, run_dir, options):
        with (self.folder / "count").open("a+") as count:
            fcntl.flock(count, fcntl.LOCK_EX)
            count.write(".")
            count.flush()
            number = count.tell()
        after = [
            text.split(":")
            for name, _, text in (each.partition("=") for each in options)
            if name == "--after"
        ]
        flags = {name: value for name, _, value in (each.partition("=") for each in options)}
        self.put("waiting", number, {"script": script, "run_dir": run_dir, "after": after, "flags": flags})
        return number

    def submit(self, options, script, run_dir):
        ranges = [re.fullmatch(r"--array=(\d+)-(\d+)(%\d+)?", each) for each in options]
        found = next(filter(None, ranges), None)
        if found is None:
            print(self.add(script, run_dir, options))
        else:
            members = (Path(run_dir) / "members").read_text().split("\n")
            for task in range(int(found[1]), int(found[2]) + 1):
                print(task, self.add(f"{members[task]}/job.sh", members[task], options))
        argv, nothing = [sys.executable, __file__, str(self.folder), "work"], subprocess.DEVNULL
        subprocess.Popen(argv, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)

    def may_start(self, job, ended):
        """True, False, or None for never."""
        codes = {kind: ended.get(int(number), {}).get("code", -1) for kind, number, _ in job["after"]}
        if any(kind == "ok" and code > 0 for kind, code in codes.items()):
            return None
        return all(code >= 0 for code in codes.values())

    def work(self):
        running = {}
        while True:
            with (self.folder / "worker").open("w") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return
                while self.jobs("waiting") or running:
                    self.step(running)
                    time.sleep(0.05)
            if not self.jobs("waiting"):  # one that came in the last moment would wait for ever
                return

    def step(self, running):
        ended = self.jobs("ended")
        for number, job in sorted(self.jobs("waiting").items()):
            may = self.may_start(job, ended)
            if may is None:
                self.move(number, job | {"code": 1}, "waiting", "ended")
            elif may and len(running) < SLOTS:
                own = {"CLUSTERKIT_JOB_ID": number, "CLUSTERKIT_RESTARTS": job.get("restarts", 0)}
                env = os.environ | {name: str(value) for name, value in own.items()}
                with Path(job["run_dir"], "slurm.log").open("ab") as log:
                    argv = ["bash", job["script"]]
                    process = subprocess.Popen(argv, cwd=job["run_dir"], env=env, stdout=log, stderr=log)
                running[number] = process, time.time() + float(job["flags"].get("--time-limit", "inf"))
                self.move(number, job | {"pid": process.pid}, "waiting", "running")
        for number, (process, limit) in list(running.items()):
            if time.time() > limit:
                process.send_signal(signal.SIGTERM)
            if process.poll() is not None:
                del running[number]
                job = self.jobs("running")[number] | {"code": process.returncode}
                again = process.returncode == REQUEUE and "--requeue" in job["flags"]
                job["restarts"] = job.get("restarts", 0) + 1
                self.move(number, job, "running", "waiting" if again else "ended")

    def cancel(self, *numbers):
        for number in map(int, numbers):
            if job := self.jobs("waiting").get(number):
                self.move(number, job | {"code": 143}, "waiting", "ended")
            elif job := self.jobs("running").get(number):
                os.kill(job["pid"], signal.SIGTERM)

    def list(self):
        for state in ("waiting", "running"):
            for number, job in self.jobs(state).items():
                print(number, state, job["script"])


if __name__ == "__main__":
    queue, (command, *rest) = Queue(sys.argv[1]), sys.argv[2:]
    if command == "submit":
        queue.submit(rest[:-2], *rest[-2:])
    else:
        getattr(queue, command)(*rest)
