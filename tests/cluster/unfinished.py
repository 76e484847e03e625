"""What tests/cluster/test_until_done.py runs: small programs in place of trainings that take hours."""

SETTINGS = """
[profiles.training]
extends = "tiny"
gpu = "a100"
time = "1h"
total_steps = 10_000
eval_every = 10_000
checkpoint_every = 1000

[profiles.whole]
extends = "training"
recipe = "sac"
num_envs = 2
total_steps = 600
eval_every = 600
checkpoint_every = 100

[profiles.broken]
extends = "whole"
gpu = "a40"
until_done = true

[profiles.drilled]
extends = "walking"
gpu = "a100"

[profiles.walking]
extends = "tiny"
cpus = 1
memory = "500M"
time = "1h"
signal = "USR1"
signal_before = "12s"
until_done = true
program = ["python", "walking.py"]

[profiles.growing]
extends = "tiny"
time = "5m"
until_done = true
program = ["python", "growing.py"]

[profiles.rude]
extends = "growing"
gpu = "none"
time = "1m"
sbatch = { partition = "gpu-a100" }

[profiles.cart]
extends = "tiny"
cpus = 1
memory = "1G"
recipe = "ppo"
total_steps = 4_096
num_envs = 4
eval_every = 4_096
checkpoint_every = 4_096
"""

GROWING = """
import os, signal, sys, time
attempt = int(os.environ["CLUSTERKIT_ATTEMPT"])
os.makedirs(os.environ["CLUSTERKIT_RUN_DIR"] + f"/checkpoints/step-{attempt}")
if sys.argv[1:] and attempt == 0:
    if sys.argv[1] == "checkpoint":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(85))
    open(os.environ["CLUSTERKIT_RUN_DIR"] + "/ready", "w").close()
    time.sleep(600)
sys.exit(0 if attempt == 2 else 85)
"""
STEPS, EVERY = 500, 40
"""Of the walk, and from one of its checkpoints to the next."""
WALKING = """
import hashlib, json, os, pathlib, signal, sys, time
run, attempt = pathlib.Path(os.environ["CLUSTERKIT_RUN_DIR"]), int(os.environ["CLUSTERKIT_ATTEMPT"])
stop = []
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, lambda *_: stop.append(number))

def write(name, text):
    (run / ".new").write_text(text)
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    (run / ".new").rename(run / name)

def save():
    write(f"checkpoints/step-{step}/state", state)

saved = sorted(run.glob("checkpoints/step-*/state"), key=lambda path: int(path.parent.name[5:]))
step = int(saved[-1].parent.name[5:]) if saved else 0
state = saved[-1].read_text() if saved else ""
with (run / "metrics.jsonl").open("a") as metrics:
    while step < STEPS and not stop:
        if attempt < 4 and step == 100 * (attempt + 1):
            beat = {"time": time.time(), "attempt": attempt, "step": step, "total_steps": STEPS}
            write("heartbeat.json", json.dumps(beat))
            time.sleep(0.1)
            continue
        step += 1
        state = hashlib.sha256(f"{state} {step}".encode()).hexdigest()
        line = {"kind": "train", "attempt": attempt, "step": step, "at": state}
        print(json.dumps(line), file=metrics, flush=True)
        if step % EVERY == 0:
            save()
save()
sys.exit(85 if stop else 0)
""".replace("STEPS", str(STEPS)).replace("EVERY", str(EVERY))
"""Stands for a training: where it is depends on all steps before. Each attempt waits 100 steps further for
what interrupts it, and the fifth goes to the end."""
WAITING = """
import os, pathlib, time
import gymnasium
from gymnasium.envs.classic_control import PendulumEnv

broken = os.environ["CLUSTERKIT_RUN_ID"].startswith("broken")
attempt = int(os.environ["CLUSTERKIT_ATTEMPT"])
saved = pathlib.Path(os.environ["CLUSTERKIT_RUN_DIR"], "checkpoints/step-000000000200")

class Waiting(PendulumEnv):
    def step(self, action):
        if broken and attempt == 0 and saved.exists():
            time.sleep(30)
        if broken and attempt == 1:
            time.sleep(0.2)
        return super().step(action)

gymnasium.register("Waiting-v0", Waiting, max_episode_steps=50)
"""
"""An environment for a real training, which a run called broken waits in: in its first attempt until it is
killed (an environment that answers nothing for a minute counts as hung), in its second long enough to be sent
a signal."""
SMALL = {
    "environment": "waiting:Waiting-v0",
    "actor_hidden": "8",
    "critic_hidden": "8",
    "batch_size": "16",
    "env_steps_per_update": "4",
}
LEARNS = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}", "--unlock", key)]
"""The options of `submit` for that training."""
