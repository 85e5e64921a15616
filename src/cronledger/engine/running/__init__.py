"""Running: the executor calls handlers under leases that the heartbeats extend.

The finisher writes the outcomes. `handlers` has one module for each kind of handler.
"""
