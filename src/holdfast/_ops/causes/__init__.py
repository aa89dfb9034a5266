"""The causes of what is wrong, by rules over one snapshot of facts. A cause swallows its consequences.

judgement.py  runs the rules in their order, and decides whether all is well
case.py       is what a rule gets: the facts, the last look, and what is explained already
fleet.py      has the rules about locks, workers, pauses, kinds without a worker, reapers, runners and counts
jobs.py       has the rules about order keys, payloads, failures, long runs and backlogs
relays.py     has the rules about sinks and relays
"""
