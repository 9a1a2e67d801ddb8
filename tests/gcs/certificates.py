"""A server's certificate of a test's own, which its clients trust as it is."""

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_VALID = datetime.timedelta(hours=6)


def write_certificate(folder: Path, *hosts: str) -> tuple[Path, Path]:
    """Write the self-signed certificate of a server named `hosts`, and the same with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now - _VALID, now + _VALID
    ).add_extension(x509.SubjectAlternativeName(map(x509.DNSName, hosts)), critical=False)
    public = certificate.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    trusted, shown = folder / "trusted.pem", folder / "server.pem"
    trusted.write_bytes(public)
    shown.write_bytes(public + private)
    return trusted, shown
