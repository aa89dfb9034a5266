"""The proving ground for faults: real processes, real servers, and an oracle that knows what was promised."""
