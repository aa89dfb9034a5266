"""Kits for web frameworks. Each is imported by those who have its framework, and by nobody else."""
