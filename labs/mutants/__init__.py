"""Mutants: one operator, condition, constant or lock of the package changed at a time, which a test should notice.

python_sites.py  finds what can be changed in a file of Python, by its syntax tree
sql_sites.py     finds what can be changed in a file of SQL, by patterns
site.py          defines a mutant
sites.py         finds the sites of a file, whichever its language
entered.py       records which test enters which function, in Python and in PostgreSQL: a plugin of pytest
draw.py          draws mutants: half of what has changed, half of everything
run.py           runs the tests that enter a mutant, in copies of the checkout
report.py        compares the survivors with the accepted ones, and writes report.md
"""
