"""Commands to try the agent: `python -m support migrate | ask | approve | model`."""

import argparse
import asyncio
from pathlib import Path

import psycopg

import holdfast

from .agent import answer
from .app import Approval, app, approval
from .scripted import ScriptedModel


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m support", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("migrate", help="create the tables, with three orders")
    ask = commands.add_parser("ask", help="ask a question as a customer, and print its number")
    ask.add_argument("customer", type=int)
    ask.add_argument("question")
    approve = commands.add_parser("approve", help="approve the refund that a question waits for, and print the answer")
    approve.add_argument("number", type=int)
    approve.add_argument("--refuse", action="store_true")
    approve.add_argument("--by", default="ada")
    model = commands.add_parser("model", help="serve the scripted model")
    model.add_argument("--port", type=int, default=8001)
    given = parser.parse_args()
    if given.command == "migrate":
        migrate(app.url)
    elif given.command == "ask":
        print(asyncio.run(ask_question(given.customer, given.question)))
    elif given.command == "approve":
        print(asyncio.run(decide(given.number, Approval(not given.refuse, given.by))))
    else:
        with ScriptedModel().serving(given.port) as address:
            print(address, flush=True)
            asyncio.run(asyncio.Event().wait())


def migrate(url: str) -> None:
    with psycopg.connect(url) as conn:
        holdfast.migrate(conn)
        conn.execute(Path(__file__).with_name("tables.sql").read_bytes())


async def ask_question(customer_id: int, question: str) -> int:
    async with await psycopg.AsyncConnection.connect(app.url) as conn:
        return (await app.enqueue(conn, answer.new(customer_id, question))).chain_id


async def decide(number: int, decision: Approval) -> str:
    async with await psycopg.AsyncConnection.connect(app.url) as conn:
        sent = await app.send(conn, number, approval, decision)
    return f"{sent}: {await app.wait(number)}"


if __name__ == "__main__":
    main()
