"""Pictures made to hurt delay no other request, and take little memory."""

import asyncio
import contextlib
import functools
import json
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest

from tests.hurtful_images import SIDE, EndlessFormat, hurtful_images, jpeg_of_scans
from tests.odd_images import picture, png, saved
from tests.trainer.serving.serving_processes import b64, serve
from trainer.data.images.pixels import PixelFormat
from trainer.data.write.record_options import RecordOptions
from trainer.serving.decoding_processes import DecodingProcesses
from trainer.serving.image_files import decode_in_process

OTHER_SECONDS = 2.0
GROWTH = 300e6
PHOTO = b64(saved(picture((500, 375), 0), "JPEG"))
PIXELS = np.zeros((8, 8)).tolist()
LARGEST = b64(png(SIDE, SIDE, 1, 0, bytes((SIDE // 8 + 1) * SIDE)))


@pytest.fixture
def server(image_server):
    assert image_server.ask([PHOTO])[0] == 200
    return image_server


def total_bytes(server):
    """Return the memory of the server and the processes that it started."""
    process, total = psutil.Process(server.process.pid), 0
    for one in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += one.memory_info().rss
    return total


def send_others(server, busy):
    """Send small requests and health checks while `busy`; return how long each took."""
    took, sizes = [], []
    while busy.is_set():
        for ask in (
            lambda: server.ask([PHOTO])[0],
            lambda: server.ask([PIXELS])[0],
            lambda: server.send("GET", "/health")[0],
        ):
            sent = time.monotonic()
            assert ask() == 200
            took.append(time.monotonic() - sent)
            sizes.append(total_bytes(server))
    return took, sizes


@pytest.mark.slow
def test_30_pictures_delay_no_other_request_and_take_little_memory(server):
    files = hurtful_images()
    assert len(files) == 30
    before = total_bytes(server)
    busy = threading.Event()
    busy.set()
    with ThreadPoolExecutor(40) as pool:
        others = [pool.submit(send_others, server, busy) for _ in range(4)]
        statuses = pool.map(lambda file: server.ask([b64(file)]), files.values())
        answers = dict(zip(files, statuses, strict=True))
        busy.clear()
        results = [one.result(60) for one in others]
        took, sizes = (np.concatenate(parts) for parts in zip(*results, strict=True))
    growth = sizes.max() - before
    print(f"{len(took)} others, at most {took.max():.1f} s; {growth / 1e6:.0f} MB more")
    assert {status for status, _ in answers.values()} <= {200, 400, 503}
    assert "5,006 scans" in answers["JPEG of 5000 scans"][1]["error"]
    assert len(took) > 30 and took.max() < OTHER_SECONDS
    assert growth < GROWTH


@pytest.mark.slow
def test_requests_of_many_slow_images_delay_no_request_of_one(server):
    # Each small file takes 20 ms, and all together half a minute.
    body = json.dumps({"instances": [b64(png(1, 65_535, 8, 6, bytes(5 * 65_535)))] * 1024})
    took = []
    with ThreadPoolExecutor(2) as pool:
        many = [pool.submit(server.send, "POST", server.route, body) for _ in range(2)]
        while not all(one.done() for one in many):
            sent = time.monotonic()
            assert server.ask([PHOTO])[0] == 200
            took.append(time.monotonic() - sent)
            time.sleep(0.2)
    assert {one.result()[0] for one in many} <= {200, 503}
    assert max(took) < OTHER_SECONDS


def test_request_of_too_many_pixels_is_refused_before_they_are_decoded(server):
    sent = time.monotonic()
    status, content = server.ask([LARGEST] * 64)
    assert status == 400
    assert "more than 250,000,000 pixels together; send fewer at once" in content["error"]
    assert time.monotonic() - sent < OTHER_SECONDS


@pytest.mark.slow
def test_file_that_takes_too_long_is_refused_and_the_others_are_decoded():
    endless = EndlessFormat(RecordOptions(image_size=8))
    file = saved(picture((40, 30), 0), "PNG")

    async def decode(records, files):
        processes = DecodingProcesses(functools.partial(decode_in_process, records))
        working = asyncio.create_task(processes.work())
        try:
            return await processes.decode(files), processes.check()
        finally:
            working.cancel()
            processes.close()

    ((outcome,), is_healthy) = asyncio.run(decode(endless, [file]))
    assert outcome.problem == "takes over 5 s to decode; send an image with fewer pixels"
    assert is_healthy
    outcomes, _ = asyncio.run(decode(PixelFormat(RecordOptions(image_size=8)), [file] * 9))
    assert len(outcomes) == 9 and all(outcome.stored for outcome in outcomes)


def test_killed_decoders_are_replaced(server):
    children = psutil.Process(server.process.pid).children()
    assert len(children) > 1
    for child in children:
        child.kill()
    # A process ends with its last thread, so that the server may learn of one after the other.
    answers = []
    while any(child.is_running() for child in children):
        answers.append(server.send("GET", "/health"))
    assert (503, {"error": "a process that decodes images has ended"}) in answers
    assert server.send("GET", "/health")[0] == 200
    assert server.ask([PHOTO])[0] == 200


@pytest.mark.slow
def test_sigterm_ends_the_server_and_its_processes_while_pictures_are_decoded(image_model):
    body = json.dumps({"instances": [b64(jpeg_of_scans(30))] * 2})
    with serve(image_model) as server, ThreadPoolExecutor(4) as pool:
        assert server.ask([PHOTO])[0] == 200
        children = psutil.Process(server.process.pid).children()
        for _ in range(4):
            pool.submit(server.send, "POST", server.route, body)
        time.sleep(0.5)
        server.process.send_signal(signal.SIGTERM)
        sent = time.monotonic()
        assert server.process.wait(30) == 0
    assert time.monotonic() - sent < 15
    _, alive = psutil.wait_procs(children, 10)
    assert not alive
