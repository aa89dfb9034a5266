"""Metrics and traces of workers: one list of instruments, fed to Prometheus and to OpenTelemetry."""

from holdfast._telemetry.metrics import INSTRUMENTS, Instrument
from holdfast._telemetry.telemetry import Telemetry, instrument

__all__ = ["INSTRUMENTS", "Instrument", "Telemetry", "instrument"]
