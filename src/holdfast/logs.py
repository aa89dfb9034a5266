"""Log lines as Holdfast writes them: as JSON or for people, with the job they belong to, and without secrets."""

from holdfast._logs.log import ContextFilter, HumanFormatter, JsonFormatter, bound, configure
from holdfast._logs.masking import mask

__all__ = ["ContextFilter", "HumanFormatter", "JsonFormatter", "bound", "configure", "mask"]
