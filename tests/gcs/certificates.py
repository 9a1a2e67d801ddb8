"""A certificate authority of a test's own, and a server's certificate that it has signed."""

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_VALID = datetime.timedelta(hours=6)


def write_certificates(folder: Path, *hosts: str) -> tuple[Path, Path]:
    """Writes what a client trusts and what a server named `hosts` shows, key included.

    Returns:
        (the authority's certificate, the server's certificate and key), PEM files in `folder`.
    """
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = _name("a test's authority")
    authority = (
        _builder(authority_name, authority_name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
    certificate = (
        _builder(_name(hosts[0]), authority_name, key.public_key())
        .add_extension(names, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    trusted, shown = folder / "authority.pem", folder / "server.pem"
    trusted.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    shown.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return trusted, shown


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _VALID)
        .not_valid_after(now + _VALID)
    )
