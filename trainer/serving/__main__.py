"""python -m trainer.serving: serve the SavedModel at $AIP_STORAGE_URI, until SIGTERM.

Reads Vertex AI's environment variables AIP_STORAGE_URI, AIP_HTTP_PORT, AIP_HEALTH_ROUTE and
AIP_PREDICT_ROUTE; MODEL_VERSION, which responses repeat; and REQUEST_LOG, a file in which to log
instances (default: no log). After SIGTERM, the server refuses new connections and answers pending
requests.
"""

import argparse
import gc
import os
import signal
import socket
import tempfile
from pathlib import Path
from typing import Any

import uvicorn

from trainer import quiet
from trainer.serving import HEALTH_ROUTE, LOG_VARIABLE, PORT, PREDICT_ROUTE, request_log
from trainer.serving.connections import LimitedHttpProtocol
from trainer.serving.prediction_server import DEADLINE, PredictionServer
from vertex.errors import InputError, exit_on_input_error


def main() -> None:
    """Serve; exit with code 2, after a line on stderr, for an unusable model."""
    parser = argparse.ArgumentParser(prog="python -m trainer.serving", description=__doc__)
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; 0.0.0.0 in a container"
    )
    with exit_on_input_error():
        _serve(parser.parse_args().host)


class _Server(uvicorn.Server):
    """A server that drains after SIGTERM or Ctrl-C, even if it receives them again."""

    def handle_exit(self, sig: int, frame: Any) -> None:
        self.should_exit = True


def _serve(address: str) -> None:
    listener = _listen(address)
    uri = os.environ.get("AIP_STORAGE_URI", "")
    if not uri:
        raise InputError("AIP_STORAGE_URI is not set; set it to the folder of a SavedModel")
    # In a bucket, only TensorFlow can look, whose import takes seconds.
    if "://" not in uri and not any(Path(uri).glob("saved_model.*")):
        raise InputError(f"no SavedModel at {uri} (no saved_model.pb); train and export one first")
    path = os.environ.get(LOG_VARIABLE, "")
    log = request_log.open_log(path) if path else None
    predict_route = os.environ.get("AIP_PREDICT_ROUTE") or PREDICT_ROUTE
    host, port = listener.getsockname()[:2]
    failure: BaseException | None = None

    def load() -> Any:
        # Imported here, so that the port is open during the seconds that the import takes.
        # TensorFlow's import asks for this folder, and Python would try to write to several. The
        # server writes no temporary file, and all file systems may be read-only.
        tempfile.tempdir = "/tmp"  # noqa: S108
        quiet.import_tensorflow()
        from trainer.serving.predictor import Predictor

        predictor = Predictor()
        predictor.load(uri)
        return predictor

    def ready() -> None:
        # Exempt TensorFlow's objects from garbage collection, which each request with pixels
        # triggers: it contains fifty thousand lists.
        gc.freeze()
        print(f"serving {uri} at http://{host}:{port}{predict_route}", flush=True)

    def failed(error: BaseException) -> None:
        nonlocal failure
        failure = error
        server.should_exit = True

    predictions = PredictionServer(load, ready=ready, failed=failed, log=log)
    app = predictions.build_application(
        os.environ.get("AIP_HEALTH_ROUTE") or HEALTH_ROUTE, predict_route
    )
    server = _Server(
        uvicorn.Config(
            app,
            http=LimitedHttpProtocol,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=int(DEADLINE),
        )
    )
    # Handle signals also after uvicorn has drained, while the process ends.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, server.handle_exit)
    server.run(sockets=[listener])
    if predictions.is_computing:
        os._exit(0)  # The process would wait for the model, but all requests have been answered.
    if failure:
        raise failure


def _listen(host: str) -> socket.socket:
    """Listen on port $AIP_HTTP_PORT; raise InputError if that fails."""
    text = os.environ.get("AIP_HTTP_PORT") or str(PORT)
    try:
        return socket.create_server((host, int(text)), backlog=1024)
    except (OSError, OverflowError, ValueError) as error:
        # create_server appends the address to the text of some errors.
        reason = str(getattr(error, "strerror", None) or error).partition(" (while")[0]
        raise InputError(
            f"can't listen on port {text!r} of {host} ({reason}); use another port"
        ) from None


if __name__ == "__main__":
    main()
