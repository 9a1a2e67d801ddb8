"""A stand-in for the training program of a trial, which reports as cloudml-hypertune does.

    python stand_in_trial.py FOLDER [ACTION] --rate 0.5 --layers 3

It appends its trial's ID to FOLDER/starts and writes its environment to FOLDER/<trial>.json.
Then it reports the accuracy `rate` at the steps 1 to 3, and ends. An ACTION changes that for the
trials that it names, such as fail:2,3: fail (after the reports), mute (report nothing), hang
(after the first report), wait (after the first report, until FOLDER/go exists).
"""

import json
import os
import pathlib
import sys
import time

trial = os.environ["CLOUD_ML_TRIAL_ID"]
folder = pathlib.Path(sys.argv[1])
words = [word for word in sys.argv[2:] if ":" in word]
values = [word for word in sys.argv[2:] if ":" not in word]
given = dict(zip(values[::2], values[1::2], strict=True))
actions = dict(word.split(":") for word in words)
action = next((name for name, trials in actions.items() if trial in trials.split(",")), "")
half = folder / f"{trial}.{os.getpid()}"  # Its worker may write at the same time.
half.write_text(json.dumps({"given": given, "variables": dict(os.environ)}))
half.replace(folder / f"{trial}.json")
with (folder / "starts").open("a") as starts:
    starts.write(f"{trial}\n")
lines = []
for step in (1, 2, 3) if action != "mute" else ():
    value = {"accuracy": str(float(given["--rate"])), "loss": "nan", "checkpoint_path": ""}
    report = {"timestamp": time.time(), "trial": trial, "global_step": str(step), **value}
    lines.append(json.dumps(report, sort_keys=True) + "\n")
    pathlib.Path(os.environ["CLOUD_ML_HP_METRIC_FILE"]).write_text("".join(lines))
    while action in ("hang", "wait") and not (action == "wait" and (folder / "go").exists()):
        time.sleep(0.02)
sys.exit(3 if action == "fail" else 0)
