"""Shows operations in a terminal, for `holdfast top`; needs the extra `top` and reads everything from Services.

In the order in which a screen is made:

application.py  shows one database, or the list of several
databases.py    lists several databases, each read by its own task
database.py     reads the service of one database periodically, draws the screen, handles its keys
screen.py       sorts and filters the table of a screen
headline.py     draws the status line, the figures and the chart above the tables
fleet.py        lists queues, kinds and workers
runners.py      lists runners and relays
jobs.py         lists dead letters and jobs
grid.py         shows a table, sorted and filtered
sheet.py        defines a table: its query, its columns and its actions
cell.py         formats a value with its tone, and defines the colours
dialogs.py      asks for confirmation and shows text pages
"""
