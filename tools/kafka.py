"""A throwaway Kafka: librdkafka's mock cluster in a process of its own.

It speaks the real protocol, idempotent producers included, and keeps everything in memory. No real broker is to be had
from the package sources this project uses. It chooses its port itself, so that it cannot come back on the same one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Self

PROGRAM = """
import sys
from confluent_kafka import Producer
cluster = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "-", "log_level": 0})
[broker] = cluster.list_topics(timeout=20).brokers.values()
print(f"{broker.host}:{broker.port}", flush=True)
sys.stdin.read()  # until the parent process is gone
"""


class KafkaServer:
    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self.servers = ""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.servers = self._process.stdout.readline().strip()
        if not self.servers:
            self.stop()
            raise RuntimeError("the mock cluster of confluent-kafka did not start")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.stop()

    @property
    def url(self) -> str:
        return self.servers

    @property
    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None, "the server does not run"
        return self._process

    def freeze(self) -> None:
        self._running.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._running.pid, os.WSTOPPED | os.WNOWAIT)

    def thaw(self) -> None:
        self._running.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        process = self._running
        process.kill()
        process.communicate(timeout=30)
        self._process = None
