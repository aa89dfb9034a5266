"""Messages, and SMTP."""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from email.message import EmailMessage
from email.utils import localtime
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .config import Config, Smtp
    from .tables import Invoice

_SECONDS = 20.0


class Mailer:
    def __init__(self, smtp: Smtp) -> None:
        self._smtp = smtp

    async def send(self, message: EmailMessage) -> None:
        """Hand the message to the mail server. It is sent when this returns, and may have been if this fails."""
        await asyncio.to_thread(self._send, message)

    def _send(self, message: EmailMessage) -> None:
        with self._connected() as server:
            if self._smtp.user and self._smtp.password:
                if not self._smtp.tls:
                    server.starttls(context=ssl.create_default_context())  # a password is never sent in clear text
                server.login(self._smtp.user, self._smtp.password)
            server.send_message(message)

    def _connected(self) -> smtplib.SMTP:
        host, port = self._smtp.host, self._smtp.port
        if self._smtp.tls:
            return smtplib.SMTP_SSL(host, port, timeout=_SECONDS, context=ssl.create_default_context())
        return smtplib.SMTP(host, port, timeout=_SECONDS)


def invoice_message(invoice: Invoice, config: Config, key: str, pdf: bytes) -> EmailMessage:
    """Return the mail with an invoice. Its Message-ID follows from the key, so that a second copy can be recognized."""
    text = f"Dear {invoice.customer.name},\n\nplease find attached invoice {invoice.number} of {invoice.total}."
    message = _message(invoice, config, key, f"Invoice {invoice.number}", text)
    message.add_attachment(pdf, maintype="application", subtype="pdf", filename=f"{invoice.number}.pdf")
    return message


def reminder_message(invoice: Invoice, config: Config, key: str) -> EmailMessage:
    text = f"Dear {invoice.customer.name},\n\ninvoice {invoice.number} of {invoice.total} was due on {invoice.due_on}."
    return _message(invoice, config, key, f"Reminder of invoice {invoice.number}", text)


def _message(invoice: Invoice, config: Config, key: str, subject: str, text: str) -> EmailMessage:
    message = EmailMessage()
    message["From"] = config.mail_from
    message["To"] = invoice.customer.email
    message["Date"] = localtime()
    message["Subject"] = subject
    message["Message-ID"] = f"<{sha256(key.encode()).hexdigest()[:32]}@{config.mail_from.rpartition('@')[2]}>"
    message.set_content(f"{text}\n\n{config.company}\n")
    return message
