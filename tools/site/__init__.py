"""The documentation site: what mkdocs adds to the pages of docs/.

hooks.py      called by mkdocs: adds the generated pages, and turns links to files of the repository into links to pages
generated.py  pages and parts of pages that are made of code: the Python API, the HTTP API and the log events
doctests.py   shows the examples of docstrings as code
check.py      finds what a built page would load from another host
search.py     asks the search of the built site what readers ask
scripts.py    provides the scripts that the theme would load from another host
"""
