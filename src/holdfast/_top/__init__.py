"""Shows operations in a terminal, for `holdfast top`; needs the extra `top` and reads everything from a Service.

In the order in which a screen is made:

application.py  reads the service periodically, draws the screen, handles the keys
headline.py     draws the status line, the figures and the chart above the tables
fleet.py        lists queues, kinds and workers
runners.py      lists runners and relays
jobs.py         lists dead letters and jobs
grid.py         shows a table, sorted and filtered
sheet.py        defines a table: its query, its columns and its actions
cell.py         formats a value with its tone, and defines the colours, dark and light
dialogs.py      asks for confirmation and shows text pages
"""
