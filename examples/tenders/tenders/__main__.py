"""One command for everything: `python -m tenders`.

It serves the HTTP interface and runs a worker. What the environment does not name, it starts on this machine, and
removes at the end: a PostgreSQL, an object store, and a server that stands for ChileCompra and Expo.
"""

from __future__ import annotations

import argparse
import logging
from contextlib import suppress

from tenders.local.together import run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tenders", description=__doc__)
    parser.add_argument("--port", type=int, default=8000, help="of the HTTP interface; default: 8000")
    parser.add_argument("--local-port", type=int, default=8080, help="of the market and provider; default: 8080")
    given = parser.parse_args()
    logging.basicConfig(level="WARNING", format="%(levelname)s %(name)s: %(message)s")
    with suppress(KeyboardInterrupt):
        run(port=given.port, local_port=given.local_port)


if __name__ == "__main__":
    main()
