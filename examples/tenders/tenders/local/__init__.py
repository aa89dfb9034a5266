"""Everything that the application needs, on this machine: for trying it and for its tests.

market.py    invents tenders
push.py      a server that speaks Expo's protocol, and fails as it is asked to
server.py    serves both over HTTP, with a page to scrape, and an endpoint that controls them
postgres.py  a PostgreSQL that is thrown away
objects.py   an object store that is thrown away
together.py  starts what is missing
"""
