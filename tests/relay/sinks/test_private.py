from __future__ import annotations

import pytest

from holdfast._relay.sinks.webhook import is_private


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",  # noqa: S104 - an address to be refused
        "10.0.0.1",
        "100.64.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "192.0.0.192",
        "192.168.1.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::a00:1",
        "64:ff9b:1::101:101",
        "64:ff9b:1:a9fe:a9:fe00::",
        "64:ff9b:1:ffff:ffff:ffff:ffff:ffff",
        "2002:7f00:1::",
        "2001:0:4136:e378:8000:63bf:80ff:fffe",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "fe80::1%eth0",
        "ff02::1",
        "no address",
    ],
)
def test_private(address: str) -> None:
    assert is_private(address)


@pytest.mark.parametrize("address", ["93.184.215.14", "1.1.1.1", "2606:4700:4700::1111", "64:ff9b::101:101"])
def test_public(address: str) -> None:
    assert not is_private(address)
