"""Wake-ups over a broker, for fleets that cannot have a listening connection for every worker."""

from holdfast.engine.wakers.carrier import Carrier
from holdfast.engine.wakers.nats import NatsWake
from holdfast.engine.wakers.redis import RedisWake

__all__ = ["Carrier", "NatsWake", "RedisWake"]
