"""The lease protocol as a model that a machine searches wholly: `lease.pml`, and its mistakes."""
