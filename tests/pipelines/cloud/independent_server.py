"""A server that answers like Vertex AI, written without the emulator and without Google's protos.

It differs from the emulator where Vertex AI may: IDs have 19 digits, names have the project's
number, answers have fields that the client does not know, and default values; a run is queued
first, and its context comes late; lists and logs come in pages, the first of them empty.
"""

import base64
import datetime
import json
import re
import threading
from urllib.parse import parse_qs, unquote, urlsplit

from tests.json_server import JsonServer

NUMBER = "771234509876"
PARENT = f"projects/{NUMBER}/locations/us-central1"
STATES = ["QUEUED", "PENDING", "PENDING", *["RUNNING"] * 6]
"""States of a run, one per answer; then it has succeeded."""


class IndependentServer(JsonServer):
    """A server on a port of 127.0.0.1; a context manager.

    Attributes:
        accounts: members in the answers to getIamPolicy.
    """

    def __init__(self):
        super().__init__(self._reply)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.lock = threading.Lock()
        self.runs, self.schedules, self.operations = {}, {}, {}
        self.accounts = ["user:jane.roe@acme-corp.example", "group:all@acme-corp.example"]
        self._next = 4611686018427387904

    def _reply(self, verb, path, headers, content):
        parts = urlsplit(path)
        body = json.loads(content) if content and "json" in headers["Content-Type"] else {}
        return self.answer(verb, unquote(parts.path), parse_qs(parts.query), body)

    def number(self):
        self._next += 7919
        return str(self._next)

    def answer(self, verb, path, query, body):
        """Return the status and JSON of an answer."""
        for pattern, function in ROUTES.items():
            if match := re.fullmatch(pattern, f"{verb} {path}"):
                with self.lock:
                    result = function(self, *match.groups(), query=query, body=body)
                if result is not None:
                    return 200, result
        why = f"{verb} {path} (project {NUMBER}) was not found, jane.roe@acme-corp.example."
        return 404, {"error": {"code": 404, "message": why, "status": "NOT_FOUND"}}

    def operate(self):
        name = f"{PARENT}/operations/{self.number()}"
        self.operations[name] = 0
        kind = "type.googleapis.com/google.cloud.aiplatform.v1.DeleteOperationMetadata"
        return {"metadata": {"@type": kind, "genericMetadata": {"newField": "1"}}, "name": name}


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat().replace("+00:00", "Z")


def create_run(server, *, query, body):
    name = f"{PARENT}/pipelineJobs/{query['pipelineJobId'][0]}"
    if name in server.runs:
        return None
    job = server.runs[name] = {"satisfiesPzs": False, "state": "PIPELINE_STATE_QUEUED"}
    job |= {"etagOfTheFuture": "AbC=", "createTime": now(), **dict(reversed(body.items()))}
    job |= {"name": name, "job": f"{PARENT}/customJobs/{server.number()}", "answers": 0}
    return show_run(job)


def show_run(job):
    return {key: value for key, value in job.items() if key not in ("answers", "job")}


def get_run(server, run, *, query, body):
    job = server.runs.get(f"{PARENT}/pipelineJobs/{run}")
    if not job:
        return None
    job["answers"] += 1
    if job["state"] == "PIPELINE_STATE_CANCELLING":
        job |= {"state": "PIPELINE_STATE_CANCELLED", "endTime": now()}
    elif not job.get("endTime"):
        state = STATES[min(job["answers"], len(STATES) - 1)]
        ended = job["answers"] > len(STATES) and "second" not in run and "gone" not in run
        job["state"] = f"PIPELINE_STATE_{'SUCCEEDED' if ended else state}"
        if ended:
            job["endTime"] = now()
    job["updateTime"] = now()
    started = "RUNNING" in job["state"] or job.get("endTime")
    job["jobDetail"] = {"taskDetails": list(yield_tasks(job)) if started else []}
    if job["answers"] > 1:
        context = f"{PARENT}/metadataStores/default/contexts/{run}"
        job["jobDetail"]["pipelineRunContext"] = {"name": context, "schemaTitle": "x.Run"}
    return show_run(job)


def yield_tasks(job):
    state = job["state"].removeprefix("PIPELINE_STATE_")
    names = {"fingerprint-source": "SUCCEEDED", "create-tfrecords": "SKIPPED"}
    for number, (name, value) in enumerate({**names, "custom-training-job": state}.items()):
        task = {"state": value, "taskId": str(4000000000 + number), "taskName": name}
        task |= {"createTime": job["createTime"], "startTime": job["createTime"]}
        task["pipelineTaskStatus"] = [{"updateTime": job["createTime"], "state": value}]
        if name == "custom-training-job":
            task["executorDetail"] = {"customJobDetail": {"job": job["job"]}}
        yield task
    if state == "SUCCEEDED":
        metadata = {"verdict": "accepted", "reason": "accuracy 0.98"}
        decision = {"decision": {"artifacts": [{"metadata": metadata, "uri": "gs://b/x"}]}}
        yield {"state": state, "taskName": "evaluate-model", "taskId": "9", "outputs": decision}


def list_runs(server, *, query, body):
    jobs = [show_run(job) for job in server.runs.values()]
    return page("pipelineJobs", jobs, query)


def page(name, items, query):
    """Return a page of one item; its token holds the project's number in base64."""
    token = query.get("pageToken", [""])[0]
    start = int(base64.b64decode(token).decode().rpartition(":")[2]) if token else 0
    answer = {name: items[start : start + 1], "unreachable": []}
    if start + 1 < len(items):
        following = f"{PARENT}:{start + 1}".encode()
        answer["nextPageToken"] = base64.b64encode(following).decode()
    return answer


def cancel_run(server, run, *, query, body):
    server.runs[f"{PARENT}/pipelineJobs/{run}"]["state"] = "PIPELINE_STATE_CANCELLING"
    return {}


def get_custom_job(server, number, *, query, body):
    for run in server.runs.values():
        if run["job"].endswith(number):
            state = run["state"].removeprefix("PIPELINE_STATE_")
            machine = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": "1"}
            return {
                "webAccessUris": {},
                "state": f"JOB_STATE_{state}",
                "displayName": run["name"].rpartition("/")[2],
                "createTime": run["createTime"],
                "startTime": run["createTime"],
                "jobSpec": {"workerPoolSpecs": [machine, machine], "futureField": {"a": [1]}},
                "name": run["job"],
            }
    return None


def create_schedule(server, *, query, body):
    name = f"{PARENT}/schedules/{server.number()}"
    server.schedules[name] = {**body, "name": name, "state": "ACTIVE", "createTime": now()}
    server.schedules[name] |= {"nextRunTime": "2030-01-01T03:00:00Z", "catchUp": False}
    return server.schedules[name]


def list_schedules(server, *, query, body):
    return page("schedules", list(server.schedules.values()), query)


def change_schedule(server, number, *, query, body):
    schedule = server.schedules[f"{PARENT}/schedules/{number}"]
    schedule |= {name: body[name] for name in query["updateMask"][0].split(",")}
    return schedule


def set_state(state):
    def change(server, number, *, query, body):
        server.schedules[f"{PARENT}/schedules/{number}"]["state"] = state
        return {}

    return change


def delete_schedule(server, number, *, query, body):
    del server.schedules[f"{PARENT}/schedules/{number}"]
    return server.operate()


def get_operation(server, name, *, query, body):
    server.operations[name] += 1
    empty = {"@type": "type.googleapis.com/google.protobuf.Empty"}
    done = {"done": True, "response": empty} if server.operations[name] > 1 else {}
    return {"name": name, **done}


def list_entries(server, *, query, body):
    if not body.get("pageToken"):
        return {"nextPageToken": base64.b64encode(NUMBER.encode()).decode()}
    entries = []
    for replica in ("workerpool1-0", "workerpool0-0"):
        labels = {"project_id": body["resourceNames"][0], "task_name": replica}
        payload = {"message": f"secret words of {replica}", "levelname": "INFO"}
        resource = {"type": "ml_job", "labels": labels}
        entries.append({"jsonPayload": payload, "resource": resource, "insertId": "x1"})
    return {"entries": entries}


def grant(server, *_, query, body):
    return {"permissions": body["permissions"]}


def get_policy(server, *_, query, body):
    return {"etag": "BwY", "bindings": [{"role": "roles/owner", "members": server.accounts}]}


_LOCATION = r"/v1/projects/[^/]+/locations/us-central1"
ROUTES = {
    r"POST /token": lambda *_, **__: {"access_token": "ya29.of-the-token-server", "expires_in": 99},
    rf"POST {_LOCATION}/pipelineJobs": create_run,
    rf"GET {_LOCATION}/pipelineJobs": list_runs,
    rf"GET {_LOCATION}/pipelineJobs/([^/:]+)": get_run,
    rf"POST {_LOCATION}/pipelineJobs/([^/:]+):cancel": cancel_run,
    rf"GET {_LOCATION}/customJobs/([0-9]+)": get_custom_job,
    rf"POST {_LOCATION}/metadataStores/default/contexts": lambda *_, **__: {"name": "x"},
    rf"POST {_LOCATION}/metadataStores/.+:addContextChildren": lambda *_, **__: {},
    rf"POST {_LOCATION}/schedules": create_schedule,
    rf"GET {_LOCATION}/schedules": list_schedules,
    rf"PATCH {_LOCATION}/schedules/([0-9]+)": change_schedule,
    rf"POST {_LOCATION}/schedules/([0-9]+):pause": set_state("PAUSED"),
    rf"POST {_LOCATION}/schedules/([0-9]+):resume": set_state("ACTIVE"),
    rf"DELETE {_LOCATION}/schedules/([0-9]+)": delete_schedule,
    r"GET /v1/(projects/.+/operations/[0-9]+)": get_operation,
    r"POST /v2/entries:list": list_entries,
    r"GET /v1/projects/[^/]+/services/[^/]+": lambda *_, **__: {"state": "ENABLED"},
    r"POST /v1/projects/.+:testIamPermissions": grant,
    r"POST /v1/projects/.+:getIamPolicy": get_policy,
}
