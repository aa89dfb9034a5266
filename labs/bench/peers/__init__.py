"""The same work against every peer: one harness, one server, a short adapter each."""
