"""The demo: a small shop under load, on a PostgreSQL that is thrown away.

shop.py       is the application: its kinds, events and schedules
customers.py  buy: they place orders in transactions of their own
postgres.py   starts a PostgreSQL in a temporary folder, and removes both when its parent is gone
"""
