"""Wake-ups over a broker, for fleets that cannot keep a listening connection for every worker."""

from holdfast._engine.wake.nats import NatsWake
from holdfast._engine.wake.redis import RedisWake

__all__ = ["NatsWake", "RedisWake"]
