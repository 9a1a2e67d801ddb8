"""A stand-in for trainer.task that starts at once and acts as its role's flag says.

    python stand_in_replica.py --chief=finish --worker=serve

It writes its environment to <base>/<role>-<index>.json, then acts:
finish (exit with 0; a chief waits until all replicas have started), exit:N, complain (end with an
InputError), crash (with a traceback), die (by SIGKILL), abort (by SIGABRT, without a thread),
starve (out of memory), serve (until killed), save (serve; write <base>/checkpoint on SIGTERM),
stubborn (serve; ignore SIGTERM), again (serve on the first start, finish on the next), wait (finish
once <base>/go exists), litter (serve; leave a temporary file).
"""

import argparse
import json
import os
import pathlib
import signal
import sys
import tempfile
import time

ROLES = {"workerpool0": "chief", "workerpool1": "worker", "workerpool2": "ps"}

parser = argparse.ArgumentParser()
for name in ("chief", "worker", "ps", "evaluator"):
    parser.add_argument(f"--{name}", default="finish")
arguments = parser.parse_args()

spec = json.loads(os.environ["CLUSTER_SPEC"])
role = ROLES.get(spec["task"]["type"], "evaluator")
index = spec["task"]["index"]
action = getattr(arguments, role)
base = pathlib.Path(os.environ["AIP_MODEL_DIR"]).parent
base.mkdir(parents=True, exist_ok=True)
note = base / f"{role}-{index}.json"
first = not note.exists()


def save(*_):
    (base / "checkpoint").write_text("weights")
    sys.exit(0)


if action == "save":
    signal.signal(signal.SIGTERM, save)
if action == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

half = note.with_suffix(".half")
half.write_text(json.dumps({"environment": dict(os.environ), "arguments": sys.argv[1:]}))
half.replace(note)
print(f"{role} {index} is here", flush=True)

if action == "litter":
    tempfile.mkstemp()
if action in ("serve", "save", "stubborn", "litter") or (action == "again" and first):
    while True:
        time.sleep(0.05)
if action == "wait":
    while not (base / "go").exists():
        time.sleep(0.05)
if action == "complain":
    print("error: learning_rate=-1.0 is out of range: it must be above 0", file=sys.stderr)
    sys.exit(2)
if action == "die":
    os.kill(os.getpid(), signal.SIGKILL)
if action == "abort":
    print("env.cc:84] Check failed: Thread tf_Compute creation via pthread_create() failed.")
    print("*** Check failure stack trace: ***", *["    @ 0x7f pybind11"] * 20, sep="\n", flush=True)
    os.abort()
if action == "starve":
    bytearray(1 << 62)
if action == "crash":
    raise RuntimeError("the loss is not a number")
if action.startswith("exit:"):
    sys.exit(int(action[5:]))
while role == "chief" and len([*base.glob("*-*.json")]) < sum(map(len, spec["cluster"].values())):
    time.sleep(0.02)
(base / "logs").mkdir(exist_ok=True)
