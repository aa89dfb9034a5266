"""Where tenders come from.

record.py   a tender as both sources know it
api.py      the API of ChileCompra: a list of each day, and the details of each tender
scraper.py  the web page with the newest tenders, which has some fields that the API leaves empty
merge.py    one record made of both, field by field
"""
