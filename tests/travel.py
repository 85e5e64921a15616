"""Time travel for our own suites: the one that `cronledger.testing` gives to everybody."""

from cronledger.testing import Travel

__all__ = ["Travel"]
