"""Text for people and logs: log lines, stored failures and trace ids, with secrets masked by one rule.

log.py      formats log lines and adds the job and the trace they belong to
failure.py  turns an exception into a code, a text and a traceback that can be stored
kept.py     keeps the last records of an attempt
masking.py  masks secrets in texts and values
"""
