"""A certificate for a test's server, which its clients trust directly."""

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_VALID = datetime.timedelta(hours=6)


def write_certificate(path: Path, *hosts: str) -> Path:
    """Write the self-signed certificate of a server named `hosts`, and its key, to one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now - _VALID, now + _VALID
    ).add_extension(x509.SubjectAlternativeName(map(x509.DNSName, hosts)), critical=False)
    pem, unencrypted = serialization.Encoding.PEM, serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, unencrypted)
    path.write_bytes(certificate.sign(key, hashes.SHA256()).public_bytes(pem) + private)
    return path
