"""Claiming: the dispatcher calls the claimer, and passes the leases to the executor.

`claimer` retries and adapts; `claim` is one transaction; `decide` contains its decisions.
"""
