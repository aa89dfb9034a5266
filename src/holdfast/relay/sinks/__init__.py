"""Where a relay publishes. Each sink needs the library of its broker, and is imported by its own name."""
