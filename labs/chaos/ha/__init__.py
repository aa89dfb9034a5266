"""A Patroni cluster under load loses its leader: through HAProxy and through an address with several hosts.

cluster.py  etcd, three PostgreSQL servers with a Patroni each, HAProxy before them, a broker
loss.py     the ways in which a leader is lost
caller.py   producers that repeat an enqueue until it is committed, and note how long that took
run.py      one run: load, the loss, recovery, the oracle's judgement
report.py   labs/chaos/ha/report.md
"""
