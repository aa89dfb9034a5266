"""People of the office: their roles, how they sign in, and what they may see of the jobs."""

import secrets
from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import RedirectResponse
from sqlalchemy import func, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from holdfast.ops import Person
from holdfast.ops import Role as OperationsRole

from .api import Body, Email, Shared, services_of
from .tables import LoginLink, User

LINK_VALID = timedelta(hours=24)
OPERATIONS = "/api/settings/events"


class Role(StrEnum):
    OWNER = "owner"
    ACCOUNTANT = "accountant"
    TEACHER = "teacher"


# An owner may do everything, also call the two endpoints of the outbox. Teachers enter who attended, and see no jobs.
_SEES_JOBS = {Role.OWNER: OperationsRole.DEVELOPER, Role.ACCOUNTANT: OperationsRole.VIEWER}


class UserBody(Body):
    email: Email
    role: Role


class Invitation(UserBody):
    login_path: str


async def current_user(request: Request) -> User | None:
    """Return who is signed in. The user is read each time, so that a change of role holds at once."""
    user_id = request.session.get("user")
    if not isinstance(user_id, int):
        return None
    async with services_of(request).sessions() as session:
        return await session.get(User, user_id)


def signed_in(*roles: Role) -> Callable[[Request], Awaitable[User]]:
    """Return a dependency: the user, who has one of these roles. Without roles, any user."""

    async def user(request: Request) -> User:
        found = await current_user(request)
        if found is None:
            raise HTTPException(401, "sign in with your login link")
        if roles and found.role not in roles:
            raise HTTPException(403, f"this needs the role {' or '.join(roles)}")
        return found

    return user


Office = Depends(signed_in(Role.OWNER, Role.ACCOUNTANT))
"""For endpoints of the office: owners and accountants."""
SignedIn: TypeAlias = Annotated[User, Depends(signed_in())]


async def invite(session: AsyncSession, email: str, role: Role) -> str:
    """Give a person a role, and return the path of a link that signs them in once."""
    new = insert(User).values(email=email, role=role)
    known = new.on_conflict_do_update(index_elements=[User.email], set_={"role": role})
    user_id = (await session.execute(known.returning(User.id))).scalar_one()
    code = secrets.token_urlsafe(32)
    link = insert(LoginLink).values(digest=_digest(code), user_id=user_id, expires_at=func.now() + LINK_VALID)
    await session.execute(link)
    return f"/login/{code}"


async def operations_person(request: Request) -> Person | None:
    """Return who this is for the operations API. A user who may not see the jobs is refused with 403."""
    user = await current_user(request)
    if user is None:
        return None
    role = _SEES_JOBS.get(Role(user.role))
    if role is None:
        raise PermissionError
    return Person(user.email, role)


router = APIRouter(tags=["users"])


@router.get("/login/{code}")
async def login(code: str, request: Request, services: Shared) -> RedirectResponse:
    """Sign in, and go on to the page of the jobs, or for teachers to who they are."""
    async with services.sessions.begin() as session:
        is_valid = LoginLink.used_at.is_(None) & (LoginLink.expires_at > func.now())
        use = update(LoginLink).where(LoginLink.digest == _digest(code), is_valid).values(used_at=func.now())
        user_id = (await session.execute(use.returning(LoginLink.user_id))).scalar_one_or_none()
        if user_id is None:
            raise HTTPException(403, "this link was used, or is too old: ask for another one")
        user = await session.get_one(User, user_id)
    request.session["user"] = user.id
    return RedirectResponse(f"{OPERATIONS}/" if user.role in _SEES_JOBS else "/me", status_code=303)


@router.post("/logout", status_code=204)
async def logout(request: Request) -> None:
    request.session.clear()


@router.get("/me")
async def me(user: SignedIn) -> UserBody:
    return UserBody(email=user.email, role=Role(user.role))


@router.post("/users", status_code=201, dependencies=[Depends(signed_in(Role.OWNER))])
async def add_user(new: UserBody, services: Shared) -> Invitation:
    """Add a person, or change their role, and answer with a link for them."""
    async with services.sessions.begin() as session:
        path = await invite(session, new.email, new.role)
    return Invitation(email=new.email, role=new.role, login_path=path)


def _digest(code: str) -> str:
    return sha256(code.encode()).hexdigest()
