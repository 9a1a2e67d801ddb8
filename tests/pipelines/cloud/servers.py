"""OAuth's token endpoint, and the key of an account that it no longer takes."""

import contextlib
import json

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from pipelines.emulator.api_error import ApiError
from tests.emulator import OpenEmulator


class TokenServer(OpenEmulator):
    routes = (("POST", "/token", "Refresh"),)

    def __init__(self):
        super().__init__(self)

    def noted(self, name, request):
        return None

    def refresh(self, request):
        raise ApiError("invalid_grant", "Token has been expired or revoked.", 400)


def new_key():
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def private(key):
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@contextlib.contextmanager
def expired_sign_in(folder):
    """The path of a service account's key which is refused while the block lasts."""
    with TokenServer() as server:
        account = {
            "type": "service_account",
            "client_email": "trainer@my-project.iam.gserviceaccount.com",
            "private_key": private(new_key()).decode(),
            "token_uri": f"{server.url}/token",
        }
        (folder / "expired.json").write_text(json.dumps(account))
        yield str(folder / "expired.json")
