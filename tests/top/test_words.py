"""How values are worded, filtered and coloured."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from textual.color import Color

from holdfast._ops import wording
from holdfast._top import cell
from holdfast._top.cell import THEME, TONES
from holdfast._top.headline import bars
from holdfast._top.sheet import Words

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "output"),
    [
        (0, "0ms"),
        (0.0123, "12ms"),
        (1, "1.0s"),
        (9.94, "9.9s"),
        (12.9, "12s"),
        (61, "1m 1s"),
        (3_600, "1h 0m"),
        (86_399, "23h 59m"),
        (90_000, "1d 1h"),
        (86_400 * 365, "365d 0h"),
    ],
)
def test_durations(seconds: float, output: str) -> None:
    assert wording.span(seconds) == output
    assert len(output) <= 7


@pytest.mark.parametrize(
    ("count", "output"),
    [(0, "0"), (9_999, "9,999"), (10_000, "10.0k"), (1_234_567, "1.2M"), (9_999_999_999, "10.0G"), (10**15, "1000.0T")],
)
def test_counts(count: int, output: str) -> None:
    assert wording.compact(count) == output


@pytest.mark.parametrize(
    ("part", "whole", "output"), [(0, 0, "0%"), (1, 1_000_000, "0.1%"), (3, 200, "1.5%"), (1, 2, "50%"), (7, 7, "100%")]
)
def test_shares(part: int, whole: int, output: str) -> None:
    assert wording.share(part, whole) == output


def test_times() -> None:
    assert cell.ago(NOW - timedelta(seconds=5), NOW).text == "5.0s"
    assert cell.ago(NOW + timedelta(seconds=5), NOW).text == "0ms", "a clock that was set back"
    assert cell.ahead(NOW + timedelta(minutes=3), NOW).text == "3m 0s"
    assert cell.ahead(NOW - timedelta(minutes=3), NOW).text == "now"
    assert cell.ago(None, NOW).text == cell.ahead(None, NOW).text == "-"


def test_long_and_hostile_texts_become_one_harmless_line() -> None:
    assert wording.plain("a" * 100) == "a" * 39 + "…"
    assert wording.plain("a\x1b[2J\nb\u202e") == r"a\x1b[2J\nb\u202e"


def test_words_of_a_filter() -> None:
    words = Words.read("  Mail status:failed :x y: ")
    assert words == Words(("Mail", ":x", "y:"), {"status": "failed"})
    assert str(words) == "status:failed Mail :x y:"
    assert not Words.read("  ")
    row = {"kind": "mail.send", "status": "FAILED"}
    assert Words.read("mail").match(row)
    assert Words.read("SEND status:fail").match(row)
    assert not Words.read("status:send").match(row)
    assert not Words.read("mail pdf").match(row)


def test_bars_start_at_nought_and_show_whatever_is_there() -> None:
    assert bars([0, 1, 500, 1000], 4) == " ▁▄█"
    assert bars([30, 30], 4) == "████"
    assert bars([8, 0, 16], 5) == "▄▄  █", "the whole room is used"
    assert bars([0, 0], 2) == "  "
    assert bars([1, 4], 2) == "▁▄", "few are no tower"
    assert bars([90, 10, 20], 2) == "▄█", "the oldest are left out"
    assert bars([], 3) == "   "


def test_text_can_be_read() -> None:
    """WCAG AA: 4.5 to 1, on every ground that text stands on."""
    for ground in (THEME.background, THEME.surface, THEME.panel):
        assert ground is not None
        for tone, colour in TONES.items():
            assert contrast(colour, ground) >= 4.5, (tone, ground)
        assert contrast(THEME.variables["footer-key-foreground"], ground) >= 4.5
    assert contrast("#ffffff", THEME.variables["block-cursor-background"]) >= 4.5


def contrast(one: str, other: str) -> float:
    """The ratio of luminances as WCAG has it."""
    light, dark = sorted((_luminance(Color.parse(one)), _luminance(Color.parse(other))), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: Color) -> float:
    parts = [part / 255 for part in colour.rgb]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
