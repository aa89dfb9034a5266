"""Addresses that a webhook must not reach: private networks and cloud metadata services."""

from __future__ import annotations

import ipaddress
import socket
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

# Networks that some Python versions treat as public (64:ff9b:1::/48 is for translation within one network, at any
# position of the IPv4 address), and 168.63.129.16, which is Azure's internal service address.
_NOT_PUBLIC = [
    ipaddress.ip_network(network)
    for network in (
        "168.63.129.16",
        "192.0.0.0/24",
        "192.88.99.0/24",
        "64:ff9b:1::/48",
        "fec0::/10",
        "3fff::/20",
        "5f00::/16",
    )
]
# Networks that carry an IPv4 address in the last four bytes.
_TRANSLATED = [ipaddress.ip_network(network) for network in ("64:ff9b::/96", "::/96")]


class PrivateAddress(OSError):  # noqa: N818 - named for what happened
    """The endpoint is at an address of a private network."""


def is_private(address: str | Address) -> bool:
    """Return whether the address is anything but one public host.

    >>> is_private("10.0.0.1"), is_private("::ffff:169.254.169.254"), is_private("93.184.215.14")
    (True, True, False)
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0] if isinstance(address, str) else address)
    except ValueError:
        return True
    if isinstance(ip, ipaddress.IPv6Address):
        inner = _inner(ip)
        if inner is not None:
            return is_private(inner)
    return not ip.is_global or ip.is_multicast or ip.is_reserved or any(ip in network for network in _NOT_PUBLIC)


def _inner(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    if ip.sixtofour is not None:
        return ip.sixtofour
    if ip.teredo is not None:
        return ip.teredo[1]
    if any(ip in network for network in _TRANSLATED):
        return ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
    return None


def public_socket(info: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
    """Create the socket for an address about to be connected to. Raise PrivateAddress if it is private.

    No name is resolved after this check, so DNS rebinding cannot bypass it.
    """
    family, kind, protocol, _, where = info
    if is_private(str(where[0])):
        raise PrivateAddress(f"{where[0]} is an address of a private network")
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)  # noqa: FBT003 - the method's name explains the argument
    return made
