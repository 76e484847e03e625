import json, os, time


def heartbeat(step, total, **metrics):
    """Tell clusterkit how far the run is, and what was measured; without clusterkit do nothing."""
    if folder := os.environ.get("CLUSTERKIT_RUN_DIR"):
        now = {"step": int(step), "time": time.time(), "attempt": int(os.environ["CLUSTERKIT_ATTEMPT"])}
        part = f"{folder}/heartbeat.{os.getpid()}.tmp"
        with open(part, "w") as file:
            json.dump({"schema": 1, "total_steps": total, **now}, file)
        os.replace(part, f"{folder}/heartbeat.json")
        if metrics:
            with open(f"{folder}/metrics.jsonl", "a") as file:
                file.write(json.dumps({"kind": "train", **now, **metrics}, default=float) + "\n")
