"""Reports executions to services outside, because a database that is down sends nothing.

Pings follow the protocol of Healthchecks. Sentry receives check-ins of its monitors. Both are sent
beside the executions: what they take or lose changes no execution.
"""
