"""Shows operations in a terminal, for `holdfast top`; needs the extra `top` and reads everything from a Service.

In the order in which a screen is made:

application.py  reads the service periodically, draws the screen, handles the keys
sheet.py        defines a table: its query, its columns and its actions
sheets/         lists the tables
grid.py         shows a table, sorted and filtered, and formats its cells
cell.py         formats a value in a few characters, with its tone
palette.py      defines the colours, dark and light
headline.py     draws the status line, the figures and the chart above the tables
dialogs.py      asks for confirmation and shows text pages
"""
