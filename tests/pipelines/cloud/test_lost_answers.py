"""python -m pipelines deploy when answers are lost, commands are killed and deployments fail."""

import contextlib
import functools
import signal

import pytest
from requests import Session

from tests.pipelines.cloud.test_deploy import deployed, put_champion, traffic
from tests.pipelines.conftest import started
from tests.pipelines.local.conftest import wait_for
from vertex.client import vertex_client

EXITED = "Model server terminated: exit code 1"
REPEAT = "it may have taken effect: repeat the command, which is safe"


@pytest.fixture
def champion(vertex):
    """Version 1 of the model digits is the champion."""
    put_champion(vertex, 1)


@pytest.fixture(params=["listed", "unlisted"])
def operations(request, vertex):
    """Operations at an endpoint, which some servers list."""
    if request.param == "unlisted":
        vertex.fail("ListOperations", 501, "UNIMPLEMENTED", times=9999)
    return request.param


def lose_answer(vertex, name, **options):
    vertex.fail(name, 503, "UNAVAILABLE", after=True, **options)


def test_deployment_whose_answer_is_lost_is_waited_for(vertex, champion, operations, command):
    lose_answer(vertex, "CreateEndpoint")
    lose_answer(vertex, "DeployModel")
    vertex.servers.polls = 9
    code, out, _ = command("deploy digits")
    assert (code, "\ndigits@1 is deployed\n" in out) == (0, True)
    assert (deployed(vertex), traffic(vertex)) == (["1"], {"1": 100})


@pytest.mark.parametrize("lost", [True, False])
def test_failed_deployment_says_what_is_there(vertex, champion, operations, command, lost):
    if lost:
        lose_answer(vertex, "DeployModel")
    vertex.servers.polls, vertex.servers.error = 9, EXITED
    code, out, err = command("deploy digits")
    failure = f"error: the deployment of digits@1 failed: {EXITED}; the endpoint digits serves no"
    assert (code, err.splitlines()[-1]) == (1, f"{failure} version")
    assert "is deployed" not in out
    # A version that serves keeps the traffic.
    vertex.servers.error = ""
    assert command("deploy digits")[0] == 0
    put_champion(vertex, 2)
    vertex.servers.error = EXITED
    code, _, err = command("deploy digits --traffic 10")
    assert (code, err.endswith("; the endpoint digits serves version 1 (100%)\n")) == (1, True)
    assert (deployed(vertex), traffic(vertex)) == (["1"], {"1": 100})


@pytest.mark.slow
@pytest.mark.parametrize(("error", "codes"), [("", [0, 0]), (EXITED, [1, 1])])
def test_two_commands_at_once_say_the_same(vertex, champion, error, codes):
    vertex.servers.polls, vertex.servers.error = 10, error
    with contextlib.ExitStack() as stack:
        both = [stack.enter_context(started("deploy", "digits")) for _ in codes]
        assert [process.wait() for process in both] == codes
    assert deployed(vertex) == (["1"] if codes == [0, 0] else [])


def test_version_that_somebody_undeploys_is_not_deployed_again(vertex, champion, command):
    def undeploy():
        endpoint = vertex.endpoints["digits"]
        endpoint.deployed_models, endpoint.traffic_split = [], {}
        vertex.endpoints["digits"] = endpoint

    def wait_for_end():
        vertex.before("GetOperation", lambda: vertex.before("GetEndpoint", undeploy))

    vertex.before("DeployModel", wait_for_end)
    code, out, err = command("deploy digits")
    assert (code, "is deployed" in out) == (1, False)
    assert "digits@1 failed: it was undeployed in the meantime; the endpoint digits serves" in err
    assert vertex.names().count("DeployModel") == 1


def test_killed_deployment_is_completed_by_the_same_command(vertex, champion, succeed):
    vertex.servers.polls = 9999
    with started("deploy", "digits") as process:
        wait_for(lambda: vertex.sent("DeployModel"))
        process.send_signal(signal.SIGKILL)
    vertex.servers.polls = 5
    assert "\ndigits@1 is deployed\n" in succeed("deploy digits")
    assert len(vertex.sent("DeployModel")) == 1
    assert (deployed(vertex), traffic(vertex)) == (["1"], {"1": 100})


def interrupt(*_, **__):
    raise KeyboardInterrupt


@pytest.fixture
def interrupted(vertex, champion, command, monkeypatch):
    """A deployment that is under way, although its command got a Ctrl-C; its output."""
    vertex.servers.polls = 9999
    with monkeypatch.context() as patch:
        vertex.before("DeployModel", lambda: patch.setattr(Session, "request", interrupt))
        code, out, _ = command("deploy digits")
    assert code == 130
    vertex.servers.polls = 5
    return out


def test_interrupted_deployment_names_the_way_to_end_it(vertex, interrupted, succeed):
    assert interrupted.endswith("To remove them: python -m pipelines deploy digits --undeploy\n")
    # The end of the deployment is waited for.
    assert "is no longer served or billed" in succeed("deploy digits --undeploy")
    assert vertex.names().count("UndeployModel") == 1
    assert (deployed(vertex), traffic(vertex)) == ([], {})


def test_deployment_that_the_server_does_not_show_is_not_denied(vertex, interrupted, succeed):
    vertex.fail("ListOperations", 404, "NOT_FOUND", times=99)
    vertex.servers.polls = 99
    out = succeed("deploy digits --undeploy")
    assert "if a deployment was under way, repeat the command after its end" in out
    assert "or billed" not in out


def test_operation_that_can_not_be_read_is_replaced_by_the_endpoint(
    vertex, champion, operations, command, monkeypatch
):
    monkeypatch.setattr(vertex_client, "_RETRY_SECONDS", 0.2)
    vertex.fail("GetOperation", 500, "INTERNAL", "down", times=999)
    vertex.operations.seconds = 0.1
    code, out, err = command("deploy digits")
    assert (code, deployed(vertex)) == (0, ["1"]), err
    assert "the operation that creates the endpoint digits can't be read: 500 down\n" in out
    assert "the operation that deploys digits@1 can't be read: 500 down\n" in out
    code, out, err = command("deploy digits --undeploy")
    assert (code, deployed(vertex)) == (0, []), err
    assert "the operation that undeploys version 1 can't be read: 500 down\n" in out


@pytest.mark.parametrize(
    ("before", "name", "action"),
    [
        pytest.param([], "CreateEndpoint", "", marks=pytest.mark.slow),
        ([], "DeployModel", ""),
        pytest.param([""], "UpdateEndpoint", "--traffic 10", marks=pytest.mark.slow),
        (["", "--traffic 10"], "UpdateEndpoint", "--rollback"),
        pytest.param(["", "--traffic 10"], "UpdateEndpoint", "--undeploy", marks=pytest.mark.slow),
        (["", "--traffic 10"], "UndeployModel", "--undeploy"),
    ],
)
def test_change_is_tried_again_or_may_have_taken_effect(
    vertex, champion, command, monkeypatch, before, name, action
):
    def prepare():
        """Deploy versions 1 and 2 to a new endpoint, as the action needs it."""
        vertex.endpoints.clear()
        for number, flags in enumerate(before, 1):
            put_champion(vertex, number)
            assert command(f"deploy digits {flags}")[0] == 0
        if action.startswith("--traffic"):
            put_champion(vertex, 2)
            command("deploy digits")

    fail = functools.partial(vertex.fail, name, 503, "UNAVAILABLE", "down")
    for fault in (fail, functools.partial(fail, after=True)):
        prepare()
        fault()
        code, _, err = command(f"deploy digits {action}")
        assert (code, err.count("\n") <= 1) == (0, True), err
    prepare()
    monkeypatch.setattr(vertex_client, "_RETRY_SECONDS", 0.2)
    fail(times=99)
    code, _, err = command(f"deploy digits {action}")
    assert (code, err.splitlines()[-1]) == (1, f"error: serving 'digits': 503 down; {REPEAT}")


READS = ("GetEndpoint", "GetOperation", "ListOperations")
REFUSALS = [
    *((400, "FAILED_PRECONDITION"), (403, "PERMISSION_DENIED")),
    # Google's client retries for seconds.
    pytest.param(503, "UNAVAILABLE", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("code", "status"), REFUSALS)
def test_deployment_that_has_begun_is_not_kept_quiet(
    vertex, champion, command, monkeypatch, code, status
):
    monkeypatch.setattr(vertex_client, "_RETRY_SECONDS", 0.2)

    def refuse():
        for name in READS:
            vertex.fail(name, code, status, "no", times=999)

    vertex.before("DeployModel", refuse)
    ended, out, err = command("deploy digits")
    # Exit code 2 would say that nothing was started.
    assert (ended, "is deployed" in out) == (1, False)
    assert err.splitlines()[-1].endswith(REPEAT), err
    vertex.pardon()
    assert "digits@1 is deployed already" in command("deploy digits")[1]
    assert vertex.names().count("DeployModel") == 1


def test_undeployment_of_one_version_is_not_kept_quiet(vertex, champion, command):
    assert command("deploy digits")[0] == 0
    put_champion(vertex, 2)
    assert command("deploy digits")[0] == 0

    def refuse_the_next():
        vertex.before("UndeployModel", lambda: vertex.fail("UndeployModel", 400, "INVALID", "no"))

    vertex.before("UndeployModel", refuse_the_next)
    code, _, err = command("deploy digits --undeploy")
    assert (code, deployed(vertex)) == (1, ["1"])
    assert err.endswith(f"no; {REPEAT}\n")
    assert (command("deploy digits --undeploy")[0], deployed(vertex)) == (0, [])


@pytest.mark.parametrize("flags", ["--traffic 10", "--rollback"])
def test_traffic_that_is_set_is_not_kept_quiet(vertex, champion, command, flags):
    for number in (1, 2):
        put_champion(vertex, number)
        assert command("deploy digits")[0] == 0
    assert command("deploy digits --traffic 100")[0] == 0

    def refuse():
        vertex.fail("GetEndpoint", 403, "PERMISSION_DENIED", "no")

    vertex.before("UpdateEndpoint", refuse)
    code, _, err = command(f"deploy digits {flags}")
    assert (code, err.endswith(f"; {REPEAT}\n")) == (1, True), err
    assert traffic(vertex)["1"] >= 90


def test_end_of_all_versions_is_not_kept_quiet(vertex, champion, command):
    def refuse():
        vertex.fail("ListOperations", 401, "UNAUTHENTICATED", "no")

    assert command("deploy digits")[0] == 0
    vertex.before("UndeployModel", lambda: vertex.before("GetEndpoint", refuse))
    code, _, err = command("deploy digits --undeploy")
    assert (code, err.endswith(f"; {REPEAT}\n")) == (1, True), err
    assert deployed(vertex) == []


def test_endpoint_that_another_command_creates_keeps_its_traffic(vertex, champion, command):
    assert command("deploy digits")[0] == 0
    created = vertex.endpoints.pop("digits")
    put_champion(vertex, 2)
    vertex.before("CreateEndpoint", lambda: vertex.endpoints.update(digits=created))
    assert command("deploy digits")[0] == 0
    assert (deployed(vertex), traffic(vertex)) == (["1", "2"], {"1": 100})


def test_endpoint_whose_creation_is_aborted_is_one_line(vertex, champion, command, monkeypatch):
    monkeypatch.setattr(vertex_client, "_RETRY_SECONDS", 0.2)
    aborted = functools.partial(vertex.fail, "CreateEndpoint", 409, "ABORTED", "again")
    aborted(times=99)
    code, _, err = command("deploy digits")
    assert (code, err.splitlines()[-1]) == (1, "error: serving 'digits': 409 again")


def test_traffic_that_somebody_else_changes_is_not_overwritten(vertex, champion, command):
    def change():
        endpoint = vertex.endpoints["digits"]
        endpoint.description = "changed"
        vertex.endpoints["digits"] = endpoint

    assert command("deploy digits")[0] == 0
    put_champion(vertex, 2)
    assert command("deploy digits")[0] == 0
    vertex.before("UpdateEndpoint", change)
    code, _, err = command("deploy digits --traffic 10")
    there = "the endpoint digits serves version 2 (0%), version 1 (100%); try again"
    assert (code, err) == (1, f"error: the endpoint was changed in the meantime: {there}\n")
    assert command("deploy digits --traffic 10")[0] == 0


def test_operations_are_listed_over_grpc(vertex, interrupted, succeed, monkeypatch):
    monkeypatch.setenv("VERTEX_AI_TRANSPORT", "grpc")
    assert "is no longer served or billed" in succeed("deploy digits --undeploy")
    assert (deployed(vertex), traffic(vertex)) == ([], {})
