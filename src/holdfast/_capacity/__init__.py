"""Computes what a deployment can bear, from costs that were measured.

In the order in which a question passes through them:

    speed.py      measures the speed of a server and of this machine
    costs.py      holds the measured costs of each call and of each job or event in it (`costs.json`)
    deployment.py describes a deployment: its load, its workers and its hardware
    resources.py  computes how much of each resource a load uses
    ceiling.py    finds the largest load that fits, and the resource that gives out first

`python -m labs.bench costs` measures the costs anew and writes `costs.json`.
"""
