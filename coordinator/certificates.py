"""The coordinator's own certificate authority and its server certificate.

P-384 throughout, as Flower's node keys. The authority signs nothing but this one server.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from protocols.errors import ParameterError
from protocols.exchange.private_files import write_private

CA, CA_KEY, SERVER, SERVER_KEY = "ca.crt", "ca.key", "server.pem", "server.key"
YEARS = 5
_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


def make_certificates(folder: Path, hosts: Sequence[str]) -> None:
    """Write CA and server certificate with their keys (mode 0600).

    hosts: names and addresses under which the parties reach the server.
    """
    ca_key, server_key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    ca_name, ca_public = _name("ciphercohort coordinator CA"), ca_key.public_key()
    ca = (
        _builder(ca_name, ca_name, ca_key, "key_cert_sign", "crl_sign")
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_public), critical=False)
        .sign(ca_key, hashes.SHA384())
    )
    names = [_subject(host) for host in dict.fromkeys(hosts)]
    server = (
        _builder(_name(hosts[0]), ca_name, server_key, "digital_signature")
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_public), critical=False
        )
        .sign(ca_key, hashes.SHA384())
    )
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    for name, certificate in ((CA, ca), (SERVER, server)):
        (folder / name).write_bytes(certificate.public_bytes(encoding))
    for name, key in ((CA_KEY, ca_key), (SERVER_KEY, server_key)):
        write_private(
            folder / name, key.private_bytes(encoding, form, serialization.NoEncryption())
        )


def hosts_of(folder: Path) -> list[str]:
    """Names and addresses of the server certificate in a folder.

    Raises:
        ParameterError: it names none, as one of your own may.
    """
    server = x509.load_pem_x509_certificate((folder / SERVER).read_bytes())
    try:
        found = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        raise ParameterError(
            f"{folder / SERVER} names no host: have your own certificates made again where they "
            "were made, with the host as subject alternative name"
        ) from None
    return [str(each.value) for each in found]


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *uses: str
) -> x509.CertificateBuilder:
    now = datetime.now(timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=365 * YEARS))
        .add_extension(x509.KeyUsage(**{use: use in uses for use in _USES}), critical=True)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _subject(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
