"""Wake-ups over a broker, for fleets that cannot keep a listening connection for every worker."""

from holdfast._engine.wake.carriers import NatsWake, RedisWake

__all__ = ["NatsWake", "RedisWake"]
