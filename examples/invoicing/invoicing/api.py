"""The parts that endpoints have in common: bodies in camelCase, their types, and the services of a request."""

from decimal import Decimal
from typing import Annotated, TypeAlias

from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from .services import Services

Id: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]
Email: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$", max_length=200)]
Line: TypeAlias = Annotated[str, Field(pattern=r"^[^\x00-\x1f]+$", max_length=200)]
"""One line of text."""
Text: TypeAlias = Annotated[str, Field(pattern=r"^[^\x00]*$", max_length=1000)]
Amount: TypeAlias = Annotated[Decimal, Field(ge=0, max_digits=9, decimal_places=2)]
Percent: TypeAlias = Annotated[Decimal, Field(ge=0, le=100, decimal_places=2)]
Limit: TypeAlias = Annotated[int, Field(ge=1, le=200)]


class Body(BaseModel):
    """A request or an answer."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, extra="forbid")


def services_of(request: Request) -> Services:
    services: Services = request.state.services
    return services


Shared: TypeAlias = Annotated[Services, Depends(services_of)]
