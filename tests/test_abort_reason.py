from __future__ import annotations

from holdfast import AbortReason


def test_the_reasons_are_the_words_of_the_database() -> None:
    assert [str(reason) for reason in AbortReason] == [
        "taken_by_another_worker",
        "already_completed",
        "not_found",
        "error",
        "timeout",
        "cancelled",
        "shutdown",
    ]
    assert all(reason.name == reason.value for reason in AbortReason)
