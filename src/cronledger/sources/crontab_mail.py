"""The mail of a crontab: `MAILTO` and `MAILFROM` become a channel."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

SENDER = "cronledger@localhost"
"""The sender without MAILFROM."""
_NAME_LENGTH = 60
_ADDRESS = re.compile(r"[\w.!%+-]+(@[\w.-]+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Mail:
    """The recipients and the sender of mails. An address without a host has `@localhost`."""

    to: tuple[str, ...]
    sender: str


def read_mail(env: Mapping[str, str]) -> Mail | None:
    """Return the mail of an entry with these variables, or None if none is sent.

    An address that cron would refuse is left out.
    """
    to = tuple(dict.fromkeys(_full(word) for word in addresses(env.get("MAILTO", ""))))
    senders = addresses(env.get("MAILFROM", ""))
    return Mail(to, _full(senders[0]) if senders else SENDER) if to else None


def addresses(value: str) -> list[str]:
    """Return the addresses in a list of cron, which separates them by commas."""
    words = (word.strip() for word in value.split(","))
    return [word for word in words if _ADDRESS.fullmatch(word)]


def refused_addresses(value: str) -> list[str]:
    """Return what a list of cron contains besides addresses."""
    words = (word.strip() for word in value.split(","))
    return [word for word in words if word and not _ADDRESS.fullmatch(word)]


def channel_names(mails: Iterable[Mail | None]) -> dict[Mail, str]:
    """Return a name for the channel of each mail, made of its addresses.

    A repeated import gives the same names.
    """
    names: dict[Mail, str] = {}
    for mail in mails:
        if mail is None or mail in names:
            continue
        words = "-".join(address.removesuffix("@localhost") for address in mail.to)
        slug = re.sub(r"[^a-z0-9]+", "-", f"mail-{words.lower()}")[:_NAME_LENGTH].strip("-")
        name, number = slug, 1
        while name in names.values():
            number += 1
            name = f"{slug}-{number}"
        names[mail] = name
    return names


def _full(address: str) -> str:
    return address if "@" in address else f"{address}@localhost"
