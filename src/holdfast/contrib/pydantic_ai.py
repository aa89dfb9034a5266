"""Agents of pydantic-ai that survive a crash: each model request and each tool call is a step of the job."""

from holdfast.contrib._durability import HoldfastDurability, StepOptions, durable

__all__ = ["HoldfastDurability", "StepOptions", "durable"]
