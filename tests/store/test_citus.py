"""Citus, where it is installed beside PostgreSQL 15: a coordinator and two nodes. No package source has it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psycopg
import pytest

from holdfast import Holdfast, Job
from holdfast._store.schema import check, migrate, migrations
from tests.kit.commands import holdfast
from tools.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.prove,
    pytest.mark.skipif(
        not Path("/usr/share/postgresql/15/extension/citus.control").exists(), reason="Citus is not installed"
    ),
]


class Cluster(NamedTuple):
    coordinator: Server
    nodes: list[Server]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings: dict[str, str | int] = {"shared_preload_libraries": "citus", "citus.node_conninfo": "sslmode=disable"}
    with ExitStack() as ends:
        coordinator, *nodes = [
            ends.enter_context(Server(15, max_prepared_transactions=100, **settings)) for _ in range(3)
        ]
        for server in (coordinator, *nodes):
            with psycopg.connect(server.url(), autocommit=True) as conn:
                conn.execute("CREATE EXTENSION citus")
        with psycopg.connect(coordinator.url(), autocommit=True) as conn:
            conn.execute("SELECT citus_set_coordinator_host('127.0.0.1', %s)", [coordinator.port])
            for node in nodes:
                conn.execute("SELECT citus_add_node('127.0.0.1', %s)", [node.port])
        yield Cluster(coordinator, nodes)


@pytest.mark.parametrize("sharding", ["off", "on"])
def test_every_server_can_be_migrated_on_its_own(cluster: Cluster, sharding: str) -> None:
    for server in cluster.nodes if sharding == "off" else [cluster.coordinator, *cluster.nodes]:
        with psycopg.connect(
            server.url(), autocommit=True, options=f"-c citus.enable_schema_based_sharding={sharding}"
        ) as conn:
            migrate(conn)
            check(conn)
            assert migrate(conn) == []
            names = conn.execute("SELECT name FROM holdfast.migration ORDER BY number").fetchall()
            assert [name for (name,) in names] == [migration.name for migration in migrations()]
        assert holdfast("check", "--server", database=server.url()).status == 0


async def test_one_transaction_over_a_distributed_table_and_a_job(cluster: Cluster) -> None:
    app = Holdfast(cluster.coordinator.url())

    @app.job("receipt.send")
    async def send(job: Job[None], order_id: int) -> str:
        return f"{order_id} sent"

    with psycopg.connect(app.url, autocommit=True) as conn:
        migrate(conn)
        conn.execute("CREATE TABLE orders (id integer PRIMARY KEY)")
        conn.execute("SELECT create_distributed_table('orders', 'id')")
        conn.execute("CREATE ROLE shop LOGIN IN ROLE holdfast_producer")
        conn.execute("GRANT INSERT ON orders TO shop")
    shop = cluster.coordinator.url().replace("postgres@", "shop@")
    async with await psycopg.AsyncConnection.connect(shop) as own:
        await own.execute("INSERT INTO orders VALUES (6)")
        await app.enqueue(own, send.new(6))
        await own.rollback()
        await own.execute("INSERT INTO orders VALUES (7)")
        receipt = await app.enqueue(own, send.new(7))
        await own.commit()
    async with app.worker():
        assert await app.wait(receipt) == "7 sent"
    with psycopg.connect(app.url, autocommit=True) as conn:
        assert conn.execute("SELECT id FROM orders").fetchall() == [(7,)]
        assert conn.execute("SELECT count(*) FROM holdfast.job_history").fetchone() == (1,)
