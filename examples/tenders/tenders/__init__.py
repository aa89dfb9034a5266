"""Finds new public tenders of Chile, and notifies the phones whose owners want to know of them.

config.py     the settings, from the environment
app.py        the Holdfast application, and the parts that its handlers share
sources/      the tenders of the API and of the web page, and one record made of both
ingest.py     the cycle that stores new tenders and enqueues a job for each delivery
targeting.py  which installations want which tender
push.py       a provider of push notifications, as the chain sees it
expo.py       the provider Expo
dispatch.py   sends deliveries
receipts.py   asks what became of them
chain.py      the chain of a delivery: dispatch, receipt, and dispatch again
deliveries.py the rows of deliveries
stranded.py   the cycle that ends deliveries whose job is gone
runs.py       the counts of each cycle
money.py      pesos
times.py      the clock of Santiago
api.py        the HTTP interface
migrate.py    the tables, from migrations/
local/        a market, a provider and servers that run on this machine
"""
