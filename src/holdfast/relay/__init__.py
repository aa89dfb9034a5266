"""Events on their way out: reading the log, and handing over to sinks."""
