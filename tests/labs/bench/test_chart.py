from __future__ import annotations

import re

from labs.bench.chart import bars, lines


def test_a_chart_draws_every_series_and_names_it() -> None:
    svg = lines("a < b", "seconds", {"ours": [(0, 1), (10, 2)], "theirs": [(0, 1), (10, 2)]})
    assert svg.count("<polyline") == 2
    assert "a &lt; b" in svg
    places = re.findall(r'y="([\d.]+)"[^>]*>(?:ours|theirs)<', svg)
    assert len(set(places)) == 2, "names that end at one place would lie on one another"


def test_the_scale_begins_at_zero_and_ends_above_the_highest_point() -> None:
    svg = lines("", "", {"ours": [(0, 1_700), (10, 1_100)]})
    assert ">0<" in svg
    assert ">2,000<" in svg


def test_bars_are_as_long_as_their_values_and_one_stands_out() -> None:
    svg = bars("a < b", {"ours": 2, "theirs": 1}, emphasis="ours")
    widths = [float(width) for width in re.findall(r'<rect[^>]* width="([\d.]+)"', svg)]
    assert widths[0] == 2 * widths[1] > 0
    assert len(set(re.findall(r'<rect[^>]* fill="([^"]+)"', svg))) == 2
    assert "a &lt; b" in svg
