"""`python -m tests.kit.without_posix PROGRAM…`: run a program where nothing exists that Windows does not have.

The modules of POSIX, its signals and its system calls are removed, and event loops accept no signal handlers. The
standard library is imported before that.
"""

from __future__ import annotations

import asyncio
import getpass
import importlib.metadata
import logging.config
import multiprocessing.pool
import multiprocessing.popen_spawn_posix
import multiprocessing.resource_tracker
import os
import random
import runpy
import shutil
import signal
import socketserver
import ssl
import subprocess
import sys
import tempfile
import uuid
from typing import Any, NoReturn, cast

IMPORTED = (
    *(getpass, importlib.metadata, logging.config, multiprocessing, random, shutil, socketserver, ssl),
    *(subprocess, tempfile, uuid),
)
MODULES = ("fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty")
# What signal has on Windows.
SIGNALS = {"SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM"}
CALLS = ("alarm", "pause", "pthread_kill", "pthread_sigmask", "setitimer", "siginterrupt", "sigpending", "sigwait")
SYSTEM = (
    *("chown", "fchmod", "fork", "forkpty", "getegid", "geteuid", "getgid", "getgroups", "getpgid", "getuid", "killpg"),
    *(
        "nice",
        "pidfd_open",
        "register_at_fork",
        "sched_getaffinity",
        "sched_setscheduler",
        "setpgid",
        "setsid",
        "setuid",
    ),
    *("sysconf", "uname", "wait", "waitid"),
)


def remove() -> None:
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    kept = SIGNALS | {"SIG_DFL", "SIG_IGN"}
    for name in [*(name for name in vars(signal) if name.startswith("SIG") and name not in kept), *CALLS]:
        delattr(signal, name)
    for name in SYSTEM:
        if hasattr(os, name):
            delattr(os, name)

    def refuse(*_: Any) -> NoReturn:
        raise NotImplementedError

    cast("Any", asyncio.SelectorEventLoop).add_signal_handler = refuse


if __name__ == "__main__":
    remove()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
