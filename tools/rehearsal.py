"""Rehearse a release with a package index on loopback: `make release-rehearsal`.

Two versions are built from this checkout, which differ in their number alone, and uploaded. The first is installed by
its name into an empty environment, and its workers run jobs. Then the second one takes its place, one worker after the
other, while jobs are enqueued. RELEASING.md has what it prints.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from contextlib import ExitStack
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import psycopg

from tools.compose import Service
from tools.ports import free_port
from tools.postgres import Server

ROOT = Path(__file__).parent.parent
NAME = "holdfast-pg"
SHOP = """
import asyncio, os, signal
from psycopg import AsyncConnection
from holdfast import Holdfast, Job

app = Holdfast()

@app.job("receipt.send")
async def send_receipt(job: Job[None], number: int) -> int:
    await asyncio.sleep(0.05)
    return number

async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with await AsyncConnection.connect(os.environ["HOLDFAST_DATABASE_URL"], autocommit=True) as conn:
        number = 0
        while not stop.is_set():
            await app.enqueue(conn, send_receipt.new(number))
            number += 1
            if number == 10:
                print("enqueueing", flush=True)
            await asyncio.sleep(0.02)
    print("enqueued", number, flush=True)

if __name__ == "__main__":
    asyncio.run(main())
"""


class Rehearsal:
    def __init__(self, folder: Path, server: Server, ends: ExitStack) -> None:
        self.folder, self.ends = folder, ends
        self.began = time.monotonic()
        self.address = f"http://127.0.0.1:{free_port()}"
        self.database = server.url()
        self.env = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
        self.env |= {"HOLDFAST_DATABASE_URL": self.database, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(folder)}
        self.services = 0

    def log(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:5.0f} s  {text}", flush=True)

    def run(self, *command: str | Path, cwd: Path | None = None, **env: str) -> str:
        done = subprocess.run(
            command, cwd=cwd or self.folder, env=self.env | env, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
        return done.stdout

    def start(self, printed: str, *command: str | Path) -> Service:
        self.services += 1
        log = self.folder / f"{self.services}.log"
        service = self.ends.enter_context(Service(list(map(str, command)), cwd=self.folder, env=self.env, log=log))
        if printed:
            service.wait_for(printed)
        return service

    def environment(self, name: str, *packages: str) -> Path:
        """Make a virtualenv and return the folder of its programs."""
        self.run(sys.executable, "-m", "venv", self.folder / name)
        programs = self.folder / name / "bin"
        if packages:
            self.run(programs / "pip", "install", *packages)
        return programs

    def build(self, version: str) -> Path:
        """Build both packages of this checkout under another number, and return their folder."""
        tree = self.folder / f"tree-{version}"
        for name in self.run("git", "ls-files", "-z", cwd=ROOT).split("\0"):
            if (ROOT / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, tree / name)
        (tree / "dashboard" / "node_modules").symlink_to(ROOT / "dashboard" / "node_modules")
        project = tree / "pyproject.toml"
        text, count = re.subn(r'^version = ".*"$', f'version = "{version}"', project.read_text(), flags=re.MULTILINE)
        assert count == 1
        project.write_text(text)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.run(sys.executable, "-m", "hatchling", "build", cwd=tree, PATH=path, HOLDFAST_DASHBOARD="require")
        return tree / "dist"

    def serve_index(self) -> None:
        """Start an index that serves what is uploaded to it and nothing else."""
        programs = self.environment("index", "pypiserver", "twine")
        (self.folder / "uploaded").mkdir()
        interface, port = self.address.removeprefix("http://").split(":")
        self.start("", programs / "pypi-server", "run", "--disable-fallback", "--authenticate=.", "--passwords=.",
                   f"--interface={interface}", f"--port={port}", self.folder / "uploaded")  # fmt: skip
        deadline = time.monotonic() + 30
        while True:
            try:
                with urlopen(f"{self.address}/simple/"):  # noqa: S310 - on loopback
                    break
            except URLError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        self.log(f"an index on {self.address}, empty")

    def upload(self, version: str) -> None:
        files = sorted(self.build(version).iterdir())
        twine = self.folder / "index" / "bin" / "twine"
        self.run(twine, "check", "--strict", *files)
        to = ("--repository-url", self.address, "--username=any", "--password=any")
        self.run(twine, "upload", "--disable-progress-bar", *to, *files)
        self.log(f"built and uploaded {', '.join(file.name for file in files)}")

    def install(self, programs: Path, version: str) -> None:
        """Install it by its name, and verify that it came from the index of this rehearsal."""
        report = self.folder / "report.json"
        index = ("--extra-index-url", f"{self.address}/simple/", "--no-cache-dir", f"--report={report}")
        self.run(programs / "pip", "install", "--upgrade", *index, f"{NAME}[binary]=={version}")
        (source,) = [
            item["download_info"]["url"]
            for item in json.loads(report.read_text())["install"]
            if item["metadata"]["name"] == NAME
        ]
        assert source.startswith(self.address), source
        assert self.run(programs / "holdfast", "--version") == f"holdfast {version}\n"
        self.log(f"installed {NAME}[binary]=={version} by its name; holdfast --version: {version}")

    def worker(self, programs: Path) -> Service:
        return self.start("worker started", programs / "holdfast", "worker", "rehearsed:app")

    def ask(self, query: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.database, autocommit=True) as conn:
            return conn.execute(query).fetchall()

    def wait_until_empty(self) -> None:
        deadline = time.monotonic() + 60
        while self.ask("SELECT 1 FROM holdfast.job WHERE kind = 'receipt.send' LIMIT 1"):
            assert time.monotonic() < deadline, "jobs are left"
            time.sleep(0.05)


def rehearse(rehearsal: Rehearsal, first: str, second: str) -> None:
    """Go from one version to the next."""
    rehearsal.serve_index()
    rehearsal.upload(first)
    programs = rehearsal.environment("empty")
    rehearsal.install(programs, first)
    rehearsal.run(programs / "holdfast", "migrate")
    (rehearsal.folder / "rehearsed.py").write_text(SHOP)
    workers = [rehearsal.worker(programs) for _ in range(2)]
    producer = rehearsal.start("enqueueing", programs / "python", "rehearsed.py")
    rehearsal.log(f"migrated; two workers of {first} run jobs, and more are enqueued until the end")

    rehearsal.upload(second)
    rehearsal.install(programs, second)
    rehearsal.run(programs / "holdfast", "migrate")
    for number, worker in enumerate(workers, start=1):
        rehearsal.worker(programs)
        status, seconds = worker.stop()
        assert status == 0, status
        rehearsal.log(
            f"worker {number} of {first} stopped in {seconds:.1f} s with status 0, after one of {second} had started"
        )
    status, _ = producer.stop()
    assert status == 0, status
    rehearsal.wait_until_empty()
    found = rehearsal.ask("SELECT status::text, attempt, count(*) FROM holdfast.job_history GROUP BY 1, 2")
    ran = rehearsal.ask(
        "SELECT w.version, count(*) FROM holdfast.job_history JOIN holdfast.worker w ON w.id = worker_id GROUP BY 1"
    )
    by_version = dict(sorted((str(version), count) for version, count in ran))
    enqueued = int(producer._log.read_text().rpartition(" ")[2])
    assert found == [("completed", 1, enqueued)], (found, enqueued)
    assert set(by_version) == {first, second}, by_version
    counts = ", ".join(f"{count} by {version}" for version, count in by_version.items())
    rehearsal.log(f"{enqueued} jobs enqueued, {enqueued} completed at their first attempt: {counts}")


def main() -> None:
    """Rehearse the version of this checkout and the one after it."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    first = version.partition(".dev")[0]
    second = re.sub(r"\d+$", lambda last: str(int(last[0]) + 1), first)
    with tempfile.TemporaryDirectory(prefix="holdfast-release-") as folder, Server(18) as server, ExitStack() as ends:
        rehearse(Rehearsal(Path(folder), server, ends), first, second)


if __name__ == "__main__":
    main()
