"""Mail by a real SMTP server, with and without TLS, and with a login."""

from __future__ import annotations

import datetime as dt
import ipaddress
import smtplib
import ssl
from contextlib import contextmanager
from email.message import EmailMessage
from typing import TYPE_CHECKING

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from examples.invoicing.invoicing.config import Smtp
from examples.invoicing.invoicing.mail import Mailer
from examples.invoicing.tests.site import Mailbox
from tools.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aiosmtpd.smtp import SMTP, Envelope, Session

pytestmark = pytest.mark.nightly

TO = "ada@example.org"
HOST = "127.0.0.1"


class Server:
    """A mail server with a login that accepts everyone, and records who logged in and whether by TLS."""

    def __init__(self) -> None:
        self.mailbox = Mailbox()
        self.logins: list[tuple[bytes, bool]] = []

    def __call__(self, _server: SMTP, session: Session, _envelope: Envelope, _method: str, login: object) -> AuthResult:
        assert isinstance(login, LoginPassword)
        self.logins.append((login.login, session.ssl is not None))
        return AuthResult(success=True)

    @contextmanager
    def serving(self, tls: ssl.SSLContext | None) -> Iterator[str]:
        """Serve, with STARTTLS if there is a context for it. The login is offered in either case."""
        controller = Controller(
            self.mailbox, HOST, free_port(), tls_context=tls, authenticator=self, auth_require_tls=False
        )
        controller.start()
        try:
            yield f"{HOST}:{controller.port}"
        finally:
            controller.stop()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1 that is signed by itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    now = dt.datetime.now(dt.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "certificate.pem"
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(secret + signed.public_bytes(pem))
    return file


@pytest.fixture
def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    return context


async def test_a_login_is_encrypted_by_starttls(
    tls: ssl.SSLContext, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The variable by which an operator tells OpenSSL whom to trust. The code has no switch for it.
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    server = Server()
    with server.serving(tls) as address:
        await _send(f"smtp://ada:secret@{address}")
    assert server.logins == [(b"ada", True)]
    assert len(server.mailbox.to(TO)) == 1


async def test_a_password_is_not_sent_to_a_server_without_starttls() -> None:
    server = Server()
    with server.serving(None) as address, pytest.raises(smtplib.SMTPNotSupportedError, match="STARTTLS"):
        await _send(f"smtp://ada:secret@{address}")
    assert (server.logins, server.mailbox.to(TO)) == ([], [])


async def test_a_password_is_not_sent_to_a_server_with_an_unknown_certificate(tls: ssl.SSLContext) -> None:
    server = Server()
    with server.serving(tls) as address, pytest.raises(ssl.SSLCertVerificationError):
        await _send(f"smtp://ada:secret@{address}")
    assert (server.logins, server.mailbox.to(TO)) == ([], [])


async def test_a_server_without_a_login_needs_no_tls() -> None:
    server = Server()
    with server.serving(None) as address:
        await _send(f"smtp://{address}")
    assert (server.logins, len(server.mailbox.to(TO))) == ([], 1)


async def _send(address: str) -> None:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "invoices@example.org", TO, "Invoice"
    await Mailer(Smtp.read(address)).send(message)
