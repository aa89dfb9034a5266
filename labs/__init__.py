"""Long proofs: bench (measurements), chaos (faults and an oracle), simulation (a thousand workers). See `make help`."""
