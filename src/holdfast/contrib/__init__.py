"""Integrations with web frameworks and services. Each is imported only by its own users."""
