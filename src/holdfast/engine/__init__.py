"""The worker: loops that claim, run, renew, finish and reap. Attempts contain no SQL; loops contain no handlers."""
