"""What a worker would wait for in vain: no kinds at all, or queues that none of them names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from holdfast.kind import Kind


def uncovered(kinds: Mapping[str, Kind[..., Any]], queues: Iterable[str]) -> Iterator[str]:
    """Say what is lacking for a worker that was told to serve these queues."""
    if not kinds:
        yield "no kind is registered, so no job runs: register handlers with @app.job, and import their modules"
        return
    named = {kind.envelope.queue for kind in kinds.values()}
    if lacking := [queue for queue in queues if queue not in named]:
        yield (
            f"no kind names the queue {', '.join(lacking)}: only jobs that are enqueued with `queue=` run there; "
            f"the kinds name {', '.join(sorted(named))}"
        )
