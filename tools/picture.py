"""Pictures made small: a PNG of 24 bits written anew with at most 256 colours, enough for a screen of text."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = 3
_COLOURS = 256
_EIGHT_BITS_RGB = (8, 2)


def packed(png: bytes) -> bytes:
    """Return the picture with its commonest colours; each of the others becomes the nearest of these."""
    chunks = list(_chunks(png))
    width, height, *kind = struct.unpack(">IIBB", chunks[0][1][:10])
    if tuple(kind) != _EIGHT_BITS_RGB:
        raise ValueError(f"not a PNG of 8 bits RGB: {kind}")
    data = zlib.decompress(b"".join(body for name, body in chunks if name == b"IDAT"))
    pixels = [pixel for row in _rows(data, width * _CHANNELS) for pixel in zip(*[iter(row)] * _CHANNELS, strict=True)]
    found = Counter(pixels)
    palette = [colour for colour, _ in found.most_common(_COLOURS)]
    index = {colour: place for place, colour in enumerate(palette)}
    for colour in found:
        if colour not in index:
            index[colour] = _nearest(colour, palette)
    places = bytes(index[pixel] for pixel in pixels)
    rows = b"".join(b"\0" + places[row * width : (row + 1) * width] for row in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    body = (
        (b"IHDR", head),
        (b"PLTE", bytes(part for colour in palette for part in colour)),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    )
    return _SIGNATURE + b"".join(_chunk(name, data) for name, data in body)


def _nearest(colour: Sequence[int], palette: Sequence[Sequence[int]]) -> int:
    distances = [sum((one - other) ** 2 for one, other in zip(colour, known, strict=True)) for known in palette]
    return distances.index(min(distances))


def _rows(data: bytes, length: int) -> Iterator[bytes]:
    """Undo the filters."""
    above = bytes(length)
    for at in range(0, len(data), length + 1):
        row = data[at + 1 : at + 1 + length]
        match data[at]:
            case 1:
                row = _summed(row)
            case 2:
                row = bytes((one + up) & 255 for one, up in zip(row, above, strict=True))
            case 3 | 4 as kind:
                row = _predicted(row, above, paeth=kind == 4)
        yield row
        above = row


def _summed(row: bytes) -> bytes:
    made = bytearray(len(row))
    for channel in range(_CHANNELS):
        made[channel::_CHANNELS] = bytes(total & 255 for total in accumulate(row[channel::_CHANNELS]))
    return bytes(made)


def _predicted(row: bytes, above: bytes, *, paeth: bool) -> bytes:
    made = bytearray(row)
    for place, one in enumerate(row):
        left = made[place - _CHANNELS] if place >= _CHANNELS else 0
        up = above[place]
        if paeth:
            corner = above[place - _CHANNELS] if place >= _CHANNELS else 0
            made[place] = (one + _paeth(left, up, corner)) & 255
        else:
            made[place] = (one + (left + up) // 2) & 255
    return bytes(made)


def _paeth(left: int, up: int, corner: int) -> int:
    to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
    if to_left <= to_up and to_left <= to_corner:
        return left
    return up if to_up <= to_corner else corner


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_SIGNATURE)
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        at += 12 + length


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
