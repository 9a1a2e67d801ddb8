"""The HTTP server of the serving image, which meets Vertex AI's requirements for containers.

https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/predictions/custom-container-requirements

The server uses the Predictor interface of Google's custom prediction routines, but not their server
(CprModelServer). That one calls the predictor in the event loop, so that health checks wait for the
model; it has no batching and no limits on bodies, queue and time; it answers 500 with the text of
any exception; and it keeps one copy of the model per core.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pydantic_core
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from trainer.serving import MAX_INSTANCES
from trainer.serving.batching import Batcher, QueueFullError
from trainer.serving.decoding_processes import DecodingProcesses, UnavailableError
from trainer.serving.instances import RequestError

MAX_BYTES = 32 << 20
"""Size limit of a request and of its answer. A shared public endpoint accepts 1.5 MB; no limit is
documented for batch prediction, which sends 64 photos at once."""
DEADLINE = 10.0
"""Seconds allowed from a request's arrival to its answer."""
MAX_REQUESTS = 128
"""Largest number of requests that have arrived and are being answered."""
MAX_BODIES = 192 << 20
"""Largest total size, in memory, of request bodies and the images that their files become: 1.5 MB
for each of MAX_REQUESTS."""
CAPACITY = 4 * MAX_INSTANCES
BATCH_DELAY = 0.003
"""Seconds that the first instance of a batch waits for others."""

_logger = logging.getLogger(__name__)


class PredictionServer:
    """Answers health checks and prediction requests.

    Args:
        load: loads the model and returns its predictor (trainer.serving.predictor.Predictor);
            called in a thread, while the server already listens and answers 503.
        ready: called when the model is loaded.
        failed: called with the exception that `load` raises.
        log: called with the instances of each valid request; None: no log.
    """

    def __init__(
        self,
        load: Callable[[], Any],
        *,
        ready: Callable[[], None] = lambda: None,
        failed: Callable[[BaseException], None],
        log: Callable[[list[Any]], None] | None = None,
    ) -> None:
        self._load, self._ready, self._failed, self._log = load, ready, failed, log
        self._predictor: Any = None
        self._decoding: DecodingProcesses | None = None
        self._requests = self._bytes = 0

    def build_application(self, health_route: str, predict_route: str) -> Starlette:
        routes = [Route(health_route, self._health, methods=["GET"])]
        routes.append(Route(predict_route, self._predict, methods=["POST"]))
        return Starlette(routes=routes, lifespan=self._lifespan)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        loading = asyncio.create_task(self._start())
        try:
            yield
        finally:
            # By now, all requests have been answered.
            loading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await loading
            if self._decoding:
                self._decoding.close()

    async def _start(self) -> None:
        """Load the model, then run its batches until cancelled."""
        try:
            predictor = await asyncio.to_thread(self._load)
        except Exception as error:
            self._failed(error)
            return
        self._batcher = Batcher(
            predictor.predict_together, limit=predictor.batch, delay=BATCH_DELAY, capacity=CAPACITY
        )
        workers: list[Batcher | DecodingProcesses] = [self._batcher]
        if predictor.decode_files:
            self._decoding = DecodingProcesses(predictor.decode_files)
            workers.append(self._decoding)
        self._predictor = predictor
        self._ready()
        await asyncio.gather(*(worker.work() for worker in workers))

    @property
    def is_computing(self) -> bool:
        """Return whether a call of the model has begun and not ended."""
        return self._predictor is not None and self._batcher.running_seconds > 0

    async def _health(self, _: Request) -> Response:
        if self._predictor is None:
            return JSONResponse({"error": "the model is not loaded yet"}, 503)
        if self._batcher.running_seconds > DEADLINE:
            return JSONResponse({"error": f"the model computes for over {DEADLINE:.0f} s"}, 503)
        if self._decoding and not self._decoding.check():
            return JSONResponse({"error": "a process that decodes images has ended"}, 503)
        return JSONResponse({"model_version": self._predictor.version})

    async def _predict(self, request: Request) -> Response:
        held = _Held()
        try:
            return Response(await self._answer(request, held), media_type="application/json")
        except RequestError as error:
            return JSONResponse(error.body, 400)
        except HTTPException as error:
            headers = {"Retry-After": "1"} if error.status_code in (429, 503) else {}
            return JSONResponse({"error": error.detail}, error.status_code, headers)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception:
            _logger.exception("a request failed")
            return JSONResponse({"error": "the server failed; see its log"}, 500)
        finally:
            self._requests -= held.requests
            self._bytes -= held.bytes

    async def _answer(self, request: Request, held: "_Held") -> bytes:
        loop = asyncio.get_running_loop()
        end = loop.time() + DEADLINE
        if self._predictor is None:
            raise HTTPException(503, "the model is not loaded yet; try again")
        try:
            with anyio.fail_after(end - loop.time()):
                body = await self._read(request, held)
        except TimeoutError:
            raise HTTPException(408, f"the request took over {DEADLINE:.0f} s to arrive") from None
        # Not before: those that arrive slowly would take the place of others.
        if self._requests >= MAX_REQUESTS:
            raise HTTPException(429, f"{MAX_REQUESTS} requests are being answered; try again")
        self._requests += 1
        held.requests = 1
        instances = self._parse(body)
        del body  # From here on, files are in memory only once.
        try:
            with anyio.fail_after(end - loop.time()):
                if self._decoding and (files := instances.files):
                    self._hold(held, len(files) * self._predictor.stored_bytes)
                    decoded = await self._decoding.decode(files)
                    instances = self._predictor.merge_files(instances, decoded)
                    del files, decoded
                answers = await self._batcher.submit(instances, len(instances))
        except QueueFullError:
            raise HTTPException(429, "too many instances are waiting; try again") from None
        except UnavailableError:
            raise HTTPException(503, "no process that decodes images starts; try again") from None
        except TimeoutError:
            raise HTTPException(503, f"no answer within {DEADLINE:.0f} s; try again") from None
        content = pydantic_core.to_json(self._predictor.postprocess(answers))
        if len(content) > MAX_BYTES:
            raise RequestError(
                f"the response would have {len(content):,} bytes, more than {MAX_BYTES:,}; send "
                f"fewer than {len(instances)} instances"
            )
        return content

    def _parse(self, body: bytearray) -> Any:
        """Return the instances of a request's body, and log them."""
        try:
            content = self._predictor.decode(body)
        except ValueError as error:
            raise RequestError(f"the request is not JSON in UTF-8: {str(error)[:200]}") from None
        instances = self._predictor.parse(content)
        if self._log:
            self._log(content["instances"])
        return instances

    async def _read(self, request: Request, held: "_Held") -> bytearray:
        """Return a request's body; raise HTTPException if it is too large."""
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > MAX_BYTES:
            raise HTTPException(413, f"the request has more than {MAX_BYTES:,} bytes")
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BYTES:
                raise HTTPException(413, f"the request has more than {MAX_BYTES:,} bytes")
            self._hold(held, len(chunk))
        return body

    def _hold(self, held: "_Held", size: int) -> None:
        """Count bytes that a request takes until it is answered; raise HTTPException for too many.

        A request that is alone may take more: it could never be answered otherwise.
        """
        if self._bytes + size > max(MAX_BODIES, held.bytes + size):
            raise HTTPException(429, "the requests take too much memory; try again")
        self._bytes += size
        held.bytes += size


@dataclasses.dataclass
class _Held:
    """The share of the limits that a request uses."""

    bytes: int = 0  # that it takes in memory
    requests: int = 0  # 1 once it has arrived
