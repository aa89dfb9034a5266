"""Moves history out of the database: closed days and months become Parquet files in an object store.

In the order in which a row passes through them:

    tables.py       is the declaration of a table of the application whose old rows are archived
    moving.py       moves these rows into the schema `archive`, month by month
    months.py       lists the months to export, and drops one that is verified
    columns.py      maps the columns of a table to the types of a Parquet file
    stream.py       streams the rows of a period out of PostgreSQL, as CSV
    parquet.py      writes them into a Parquet file, in bounded memory
    manifest.py     describes a file: rows, ids, checksum, columns
    incomplete.py   explains why a file with more rows than the database is not replaced
    location.py     opens the object store, and names the objects
    child.py        is the process that exports and verifies periods
    throttle.py     slows an export in the background while other sessions are active on the server
    export.py       has periods exported and verified in that process, and records each step
    cleanup.py      drops what is verified and no longer to be kept
    recorded.py     opens a file only if it is what its record says
    restore.py      loads a file into a table
    filesystem.py   shows objects to Arrow as files
    search.py       finds a job, an event, or the answer of a query, in the files
    runners.py      builds the ticks of the runners `cleanup` and `archiveExport`
"""
