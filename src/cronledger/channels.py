"""Channels for `App(channels={…})`: where alerts are sent.

`FromEnvironment(env="NAME")` reads a secret from the environment of the replica that delivers.
"""

from cronledger.rules.channels import (
    Apprise,
    Channel,
    Command,
    Email,
    Function,
    Slack,
    Webhook,
)
from cronledger.rules.targets import FromEnvironment

__all__ = [
    "Apprise", "Channel", "Command", "Email", "FromEnvironment", "Function", "Slack", "Webhook",
]  # fmt: skip
