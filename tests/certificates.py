"""Certificates that tests make: an authority, whom it vouches for, and whom no more."""

import ipaddress
import os
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Made:
    """PEM files of a certificate and its key."""

    cert: Path
    key: Path
    serial: int


def write(path: Path, data: bytes) -> Path:
    """Replace a file in one step, as those who renew certificates do; only its owner may read it."""
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    return part.rename(path)


def pem(key: ec.EllipticCurvePrivateKey, password: bytes | None = None) -> bytes:
    how = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)


def context_of(made: "Made", clients: Path | None = None) -> ssl.SSLContext:
    """A server's, with nothing of ours in it. `clients`: authorities of certificates that it asks for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.cert, made.key)
    if clients is not None:
        context.load_verify_locations(clients)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@dataclass
class Authority:
    """Signs, and revokes."""

    directory: Path
    name: str = "Test CA"
    revoked: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.name)])
        self.certificate = (
            self._builder(self.subject, self.key.public_key(), 3650 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        encoded = self.certificate.public_bytes(serialization.Encoding.PEM)
        self.cert = write(self.directory / f"{self.name.replace(' ', '-')}.pem", encoded)

    def _builder(
        self, subject: x509.Name, public: ec.EllipticCurvePublicKey, life: timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        begin = now - 2 * DAY
        return x509.CertificateBuilder(
            self.subject, subject, public, x509.random_serial_number(), begin, now + life
        )

    def server(self, file: str = "server", *names: str, life: timedelta = 90 * DAY) -> Made:
        """For DNS names and addresses; 127.0.0.1, ::1 and localhost if none is given. A negative `life` has ended."""
        known = names or ("localhost", "127.0.0.1", "::1")
        return self._made(
            file, known[0], [_name(each) for each in known], ExtendedKeyUsageOID.SERVER_AUTH, life
        )

    def client(
        self, file: str, *others: x509.GeneralName, subject: str = "", life: timedelta = 90 * DAY
    ) -> Made:
        """For a common name, the file's if no other is given."""
        return self._made(file, subject or file, list(others), ExtendedKeyUsageOID.CLIENT_AUTH, life)

    def _made(
        self,
        file: str,
        common: str,
        others: list[x509.GeneralName],
        use: x509.ObjectIdentifier,
        life: timedelta,
    ) -> Made:
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [(NameOID.ORGANIZATION_NAME, "Example"), (NameOID.COMMON_NAME, common)]
        subject = x509.Name([x509.NameAttribute(oid, text) for oid, text in parts])
        builder = self._builder(subject, key.public_key(), life).add_extension(
            x509.ExtendedKeyUsage([use]), critical=False
        )
        if others:
            builder = builder.add_extension(x509.SubjectAlternativeName(others), critical=False)
        made = builder.sign(self.key, hashes.SHA256())
        encoded = made.public_bytes(serialization.Encoding.PEM)
        cert = write(self.directory / f"{file}.pem", encoded)
        return Made(cert, write(self.directory / f"{file}.key", pem(key)), made.serial_number)

    def crl(self, *revoked: Made, life: timedelta = 30 * DAY) -> Path:
        """Write the list of all that were revoked so far, and these."""
        self.revoked += [each.serial for each in revoked]
        now = datetime.now(UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.subject)
            .last_update(now - 3 * DAY)
            .next_update(now + life)
        )
        for serial in self.revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - DAY).build()
            builder = builder.add_revoked_certificate(entry)
        signed = builder.sign(self.key, hashes.SHA256())
        return write(self.directory / "revoked.crl", signed.public_bytes(serialization.Encoding.PEM))


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
