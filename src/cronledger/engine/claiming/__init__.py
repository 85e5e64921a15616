"""Claiming: the dispatcher asks the claimer for what is due, and passes the leases on.

`claimer` retries and adapts; `claim` is one transaction; `decide` contains its decisions.
"""
