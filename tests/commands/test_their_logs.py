"""Programs that know nothing of clusterkit, and log in their own way: curves, page, comparison, search."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.commands.conftest import Project

pytestmark = pytest.mark.slow

EVENTS = f"""
import os, sys
sys.path[:0] = {sys.path!r}
from tests.results.test_logs import event
seed = int(os.environ["CLUSTERKIT_SEED"])
os.makedirs(f"runs/CartPole__ppo__{{seed}}")
with open(f"runs/CartPole__ppo__{{seed}}/events.out.tfevents.1.node.2.0", "wb") as file:
    for step in range(0, 2001, 100):
        file.write(event(step, "losses/value", 1 / (1 + step)))
        file.write(event(step, "charts/episodic_return", seed + step / 10))
"""
MONITOR = """
import os
os.mkdir("logs")
with open("logs/0.monitor.csv", "w") as monitor, open("logs/progress.csv", "w") as progress:
    monitor.write('#{"t_start": 1700000000.0, "env_id": "CartPole-v1"}\\nr,l,t\\n')
    progress.write("rollout/ep_len_mean,rollout/ep_rew_mean,time/total_timesteps,train/loss\\n")
    for episode in range(1, 21):
        monitor.write(f"{episode * 10.0},10,{episode * 0.5}\\n")
        progress.write(f"10,{episode * 9.0},{episode * 10},{'' if episode == 1 else 0.5}\\n")
"""
LIGHTNING = """
import os
os.makedirs("lightning_logs/version_0")
with open("lightning_logs/version_0/metrics.csv", "w") as file:
    file.write("epoch,step,train_loss,val_loss\\n")
    for epoch in range(10):
        for train, val in ((1 / (1 + epoch), ""), ("", 2 / (1 + epoch))):
            file.write(f"{epoch},{epoch * 10 + 9},{train},{val}\\n")
"""
NUMPY = """
import os, sys
best = 1 - abs(float(sys.argv[1] if sys.argv[1:] else "0.3") - 0.3)
with open("results.csv", "w") as file:
    file.write("iteration,height\\n" + "".join(f"{n},{best * n / 20}\\n" for n in range(21)))
"""
PRINTS = """
import os
for epoch in range(40):
    print(f"epoch {epoch} of seed {os.environ['CLUSTERKIT_SEED']}: loss {1 / (1 + epoch):.3f}")
print("\\x1b[31mred <b>end</b>\\x1b[0m")
"""


@pytest.mark.parametrize(
    ("program", "metric", "step", "value", "other"),
    [
        (EVENTS, "charts/episodic_return", 2000, 191.5, "losses/value"),
        (MONITOR, "r", 200, 195.0, "rollout/ep_rew_mean"),
        (LIGHTNING, "train_loss", 99, 0.1, "val_loss"),
        (NUMPY, "height", 20, 0.95, "height"),
    ],
    ids=["events", "monitor", "lightning", "numpy"],
)
def test_a_program_that_logs_in_its_own_way_gets_curves_a_page_and_a_comparison(
    project: Project, program: str, metric: str, step: int, value: float, other: str
) -> None:
    (project.folder / "train.py").write_text(program)
    group = project.run("submit", "--seeds", "1,2", "--yes").stdout.strip()
    for number in range(2):
        project.ended(f"{group}-{number}")
    live = project.run("curves", group, "--once").stdout
    assert live.splitlines()[0].split()[:4] == ["run", "state", "step", metric]
    project.run("sync-results", "--no-wandb")
    assert project.run("curves", group).stdout == live
    drawn = project.run("curves", f"{group}-0", "--metric", other).stdout
    assert "synced copy" in drawn
    assert f"{other}  " in drawn.splitlines()[1]
    missing = project.run("curves", group, "--metric", "none", code=8).stderr
    assert "no run logs a number 'none'" in missing
    assert metric in missing
    document = json.loads(project.run("report", group, "--json").stdout)
    (row,) = document["groups"]
    assert (row["metric"], row["step"], row["last_tenth"]) == (metric, step, True)
    assert row["value"] == pytest.approx(value, rel=1e-3)
    page = Path(document["files"][-1]).read_text()
    assert f"<figcaption>{other}</figcaption>" in page
    assert "mean of the last tenth" in page
    chosen = json.loads(project.run("report", group, "--json", "--metric", other).stdout)["groups"][0]
    assert chosen["metric"] == other
    differs = json.loads(project.run("diff", f"{group}-0", f"{group}-1", "--json", "--metric", other).stdout)
    names = {one["name"] for one in differs["differences"] if one["section"] == "results"}
    assert metric not in names - {other}
    assert project.run("diff", f"{group}-0", f"{group}-1", "--metric", "none", code=8).stderr


def test_a_program_that_only_prints_gets_a_page_with_the_end_of_its_log(project: Project) -> None:
    (project.folder / "train.py").write_text(PRINTS)
    run_id = project.submit("--seed", "7")
    project.ended(run_id)
    assert "has ended and logged no numbers" in project.run("curves", run_id, code=8).stderr
    project.run("sync-results", "--no-wandb")
    assert "has ended and logged no numbers" in project.run("curves", run_id, code=8).stderr
    done = project.run("report", run_id)
    assert "no run has logged a number" in done.stderr
    page = (project.folder / "results" / run_id / "report/report.html").read_text()
    assert re.search(r"<details open>.*epoch 39 of seed 7: loss 0\.025\nred &lt;b&gt;end", page, re.DOTALL)
    assert "python train.py" in page


def test_the_asked_for_column_holds_the_steps(project: Project) -> None:
    (project.folder / "train.py").write_text('open("a.csv", "w").write("step,n,x\\n1,100,5\\n2,200,6\\n")')
    config = project.folder / "clusterkit.toml"
    config.write_text(config.read_text().replace('name = "demo"', 'name = "demo"\nstep = "n"'))
    run_id = project.submit()
    project.ended(run_id)
    assert "step 200" in project.run("curves", run_id, "--once").stdout


def test_trials_of_a_search_are_compared_by_what_they_log(project: Project) -> None:
    (project.folder / "train.py").write_text(NUMPY)
    words = [
        "--space",
        "lr=0.3,0.7",
        "--metric",
        "height",
        "--trials",
        "2",
        "--prune",
        "none",
    ]
    project.run("search", "s", *words, "--", "{lr}")
    found = json.loads(project.run("search", "s", "--best", "--json").stdout)
    by_lr = {trial["values"]["lr"]: trial["value"] for trial in found["trials"]}
    assert all(value == pytest.approx((1 - abs(float(lr) - 0.3)) * 0.95) for lr, value in by_lr.items())
    assert {trial["step"] for trial in found["trials"]} == {20}
