"""Stands for `pip` in the clean environment: everything is installed already, and this checks that it is."""

from __future__ import annotations

import re
import sys
from importlib.metadata import metadata, version


def main() -> int:
    command, *asked = sys.argv[1:]
    if command != "install":
        sys.stderr.write(f"pip {command}: only install is run\n")
        return 1
    for requirement in asked:
        if requirement.startswith("-"):
            continue
        found = re.fullmatch(r"([\w.-]+)(?:\[([\w,-]*)\])?", requirement)
        if found is None:
            sys.stderr.write(f"pip install {requirement}: expected a name, with extras or without\n")
            return 1
        version(found[1])
        missing = set(filter(None, (found[2] or "").split(","))) - set(
            metadata(found[1]).get_all("Provides-Extra") or ()
        )
        if missing:
            sys.stderr.write(f"{found[1]} has no extra {', '.join(sorted(missing))}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
