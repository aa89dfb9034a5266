"""One command for everything: `python -m tenders`.

It serves the HTTP interface and runs a worker. If the environment does not name a database, an object store, or the
addresses of ChileCompra and Expo, it starts servers for them on this machine, and removes them at the end.
"""

from __future__ import annotations

import argparse
import logging
import os
from contextlib import suppress
from pathlib import Path

from tenders.local.together import run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tenders", description=__doc__)
    ports = {name: int(os.environ.get(name, default)) for name, default in (("PORT", 8000), ("LOCAL_PORT", 8080))}
    parser.add_argument("--port", type=int, default=ports["PORT"], help="of the HTTP interface; default: PORT, or 8000")
    parser.add_argument(
        "--local-port", type=int, default=ports["LOCAL_PORT"], help="of the market and provider; default: 8080"
    )
    parser.add_argument("--env-file", type=Path, help="write the addresses to it, for other terminals, until the end")
    given = parser.parse_args()
    logging.basicConfig(level="WARNING", format="%(levelname)s %(name)s: %(message)s")
    with suppress(KeyboardInterrupt):
        run(port=given.port, local_port=given.local_port, env_file=given.env_file)


if __name__ == "__main__":
    main()
