"""Invoices, customers and classes.

config.py      the settings of the environment
money.py       amounts in cents, with their currency, and taxes
tables.py      the tables
migrations/    Alembic's, and migrate.py, which runs them together with Holdfast's own
services.py    the parts that requests and jobs share: database, object store, mail server, browser
storage.py     PDFs in the object store
pdf.py         an invoice as HTML, and as a PDF by Chromium
mail.py        messages, and SMTP
jobs.py        the jobs, the event, and the two runners
documents.py   the endpoint that waits for a PDF
invoices.py    drafting, issuing and paying
customers.py   customers
classes.py     classes and attendance
billing.py     a month of attendance as invoices
reminders.py   reminders of overdue invoices
internal.py    the endpoints that the runners call
users.py       people of the office, their roles and how they sign in
api.py         the parts that endpoints have in common
web.py         the web application
local.py       servers of one's own, for development
__main__.py    the commands
"""
