"""Where a message goes within a broker, and what may be said of where the broker is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from holdfast.masking import mask
from holdfast.relay.message import Refused

if TYPE_CHECKING:
    from holdfast.relay.message import Message


def public(url: str) -> str:
    """Return the address without what may be secret: user, password, webhook path, query. Several: with commas.

    >>> public("nats://me:secret@one:4222, nats://two")
    'nats://one:4222,nats://two'
    >>> public("https://hooks.example.com/services/T0/secret")
    'https://hooks.example.com/***'
    """
    return ",".join(_public(one.strip()) for one in url.split(","))


def _public(url: str) -> str:
    # A password may contain what ends a host name, so everything up to the last @ is cut off first.
    scheme, separator, rest = url.rpartition("://")
    rest = rest.rpartition("@")[2]
    parts = urlsplit(f"//{rest}")
    return mask(f"{scheme}{separator}{parts.netloc}{parts.path.rstrip('/')}")


class Pattern(NamedTuple):
    """A name made of a message's topic and key.

    >>> Pattern("shop.{topic}")
    Pattern(text='shop.{topic}')
    """

    text: str

    def fill(self, message: Message) -> str:
        if self.text == "{topic}":
            return message.topic
        name = self.text.replace("{topic}", message.topic)
        if "{key}" in name:
            if message.key is None:
                raise Refused(f"{self.text} needs a key, and the message has none")
            name = name.replace("{key}", message.key)
        return name
