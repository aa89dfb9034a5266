"""The agent, its tools, and the job that runs it."""

import os
from dataclasses import dataclass
from datetime import timedelta

from pydantic_ai import Agent, RunContext, UsageLimits
from pydantic_ai.exceptions import UsageLimitExceeded

from holdfast import Job, Limit, Retry, Step
from holdfast.contrib.pydantic_ai import HoldfastDurability, StepOptions, durable

from .app import Connection, Pool, app, approval

# A customer may start 20 questions in an hour, each with at most 10,000 tokens: 200,000 tokens in an hour. A question
# that continues after an approval counts again.
QUESTIONS = Limit(concurrency=1, rate="20/h", burst=20, by="customer_id")
TOKENS = UsageLimits(total_tokens_limit=10_000)
# More than this is refunded only when a person has approved it.
FREE_CENTS = 2_000


@dataclass(frozen=True)
class Case:
    """The question of a customer, and the job that answers it."""

    job: Job[Pool]
    customer_id: int


@dataclass(frozen=True)
class Order:
    id: int
    item: str
    cents: int


agent = Agent(
    os.environ.get("SUPPORT_MODEL", "openai-chat:gpt-5-mini"),
    name="support",
    deps_type=Case,
    instructions="You answer the customers of a shop. Refund what arrived broken.",
    capabilities=[HoldfastDurability(model=StepOptions(attempts=3, timeout=60))],
    defer_model_check=True,
)


@app.job(
    "support.answer",
    limits=[QUESTIONS],
    retry=Retry(max_attempts=10, base=timedelta(seconds=1), never=(UsageLimitExceeded,)),
    max_runtime=timedelta(minutes=10),
)
async def answer(job: Job[Pool], customer_id: int, question: str) -> str:
    with durable(job):
        run = await agent.run(question, deps=Case(job, customer_id), usage_limits=TOKENS)
    return run.output


@agent.tool
async def find_orders(ctx: RunContext[Case]) -> list[Order]:
    """Return the orders of the customer."""
    async with ctx.deps.job.state.connection() as conn:
        await conn.execute("INSERT INTO access_log (customer_id) VALUES (%s)", [ctx.deps.customer_id])
        orders = await conn.execute(
            "SELECT id, item, cents FROM customer_order WHERE customer_id = %s ORDER BY id", [ctx.deps.customer_id]
        )
        return [Order(*row) for row in await orders.fetchall()]


# It is no step, so that it can use the verbs of the job.
@agent.tool(metadata={"holdfast": False})
async def refund(ctx: RunContext[Case], order_id: int, cents: int) -> str:
    """Refund an order of the customer, whole or in part."""
    job, call, by = ctx.deps.job, ctx.tool_call_id, "the agent"
    if cents > FREE_CENTS:
        decision = await job.receive(approval, key=call)
        if not decision.approved:
            return f"{decision.by} refused it"
        by = decision.by
    async with job.state.connection() as conn:
        step = Step("refund", key=call)
        return await job.step_on(conn, step, write_refund, ctx.deps.customer_id, order_id, cents, by)


async def write_refund(conn: Connection, customer_id: int, order_id: int, cents: int, by: str) -> str:
    written = await conn.execute(
        "INSERT INTO refund (order_id, cents, by) SELECT id, %s, %s FROM customer_order"
        " WHERE id = %s AND customer_id = %s AND cents >= %s",
        [cents, by, order_id, customer_id, cents],
    )
    return f"refunded {cents} cents" if written.rowcount else "the customer has no such order"
