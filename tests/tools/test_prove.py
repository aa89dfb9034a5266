from __future__ import annotations

from tools import prove

REPORT = """<?xml version="1.0"?><testsuites><testsuite time="61.4">
<testcase classname="tests.a" name="one"/><testcase classname="tests.a" name="two[x|y]"><failure/></testcase>
<testcase classname="tests.b" name="three"><skipped/></testcase>
<testcase classname="tests.b" name="four"><error/></testcase>
</testsuite></testsuites>"""


def test_a_report_becomes_a_line_of_the_page() -> None:
    found = prove.read(REPORT, commit="abc1234", day="2026-11-17")
    assert found.cells == "1 | 2 | 1 | 61 s | 2026-11-17, abc1234"
    assert found.failures == ("tests.a::two[x|y]", "tests.b::four")


def test_the_page_keeps_the_results_of_parts_that_were_not_run_again() -> None:
    first = {(15, "suite"): prove.read(REPORT, commit="abc1234", day="2026-11-17")}
    kept = prove.written(prove.page(first))
    assert kept == first
    both = kept | {(18, "faults"): prove.Result("5 | 0 | 0 | 9 s | 2026-11-18, abc1235", ())}
    assert prove.written(prove.page(both)) == both


def test_the_committed_page_is_one_that_this_tool_writes() -> None:
    text = prove.PAGE.read_text()
    assert prove.written(text), "no result is committed"
    assert prove.page(prove.written(text)) == text
