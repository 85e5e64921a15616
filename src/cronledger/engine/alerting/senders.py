"""Sends a message to a channel. Each function raises what went wrong, and returns nothing."""

import asyncio
import hashlib
import hmac
import json
import logging
import os
import smtplib
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import contextmanager
from email.message import EmailMessage
from functools import partial
from html import escape
from pathlib import Path
from time import monotonic
from typing import Any

from pydantic_core import to_jsonable_python

from cronledger.engine.alerting.message import Message, subject, text
from cronledger.engine.commands.client import Supervisor
from cronledger.engine.late import Late
from cronledger.engine.threads import Threads
from cronledger.extras import require_http
from cronledger.ledger.rows import Delivery
from cronledger.rules.channels import Apprise, Channel, Command, Email, Function, Slack, Webhook
from cronledger.rules.problems import ConfigurationError
from cronledger.rules.targets import FromEnvironment
from cronledger.sources.python import resolve_function

SMTP_SECONDS = 15.0
"""The longest wait for one answer of an SMTP server."""
TAIL_BYTES = 4_000

Post = Callable[[str, bytes, Mapping[str, str], bool], Awaitable[tuple[int, str | None]]]


class DeliveryError(Exception):
    """The receiver did not accept a message, or the channel cannot be used."""


class Sender:
    """Sends the messages of one delivery. `hidden` collects the secrets that it has used.

    `seconds`: the time after which a command is killed.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        threads: Threads,
        delivery: Delivery,
        seconds: float,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._supervisor = supervisor
        self._threads = threads
        self._delivery = delivery
        self._seconds = seconds
        self._environ = os.environ if environ is None else environ
        self.hidden: list[str] = []

    async def send(self, channel: Channel, message: Message) -> None:
        """Send a message. Raises DeliveryError, or the error of the connection or the function."""
        match channel:
            case Webhook():
                await self._webhook(channel, message)
            case Slack():
                # Otherwise a text such as <!channel> in an error would notify everybody.
                shown = escape(f"*{subject(message)}*\n{text(message)}", quote=False)
                body = {"text": shown}
                await self._post(self._value(channel.url), json.dumps(body).encode(), {},
                                 channel.allow_private)  # fmt: skip
            case Email():
                await self._in_thread(partial(self._mail, channel, message))
            case Command():
                await self._command(channel, message)
            case Function():
                await self._call(channel, message)
            case Apprise():
                urls = [self._value(url) for url in channel.urls]
                await self._in_thread(partial(_apprise, urls, message))

    def _value(self, value: str | FromEnvironment) -> str:
        """Return a value of the channel. Raises DeliveryError if a variable is not set."""
        if isinstance(value, str):
            return value
        try:
            secret = self._environ[value.env].strip()
        except KeyError:
            raise DeliveryError(
                f"{value.env} is not set in the environment of the runner, but the channel uses"
                " it; set it for every replica"
            ) from None
        if secret:
            self.hidden.append(secret)
        return value.prefix + secret

    async def _webhook(self, channel: Webhook, message: Message) -> None:
        body = json.dumps(to_jsonable_python(message)).encode()
        headers = {name: self._value(value) for name, value in channel.headers.items()}
        if channel.secret is not None:
            at = str(int(self._delivery.claimed_at.timestamp()))
            key = self._value(channel.secret).encode()
            signature = hmac.new(key, at.encode() + b"." + body, hashlib.sha256).hexdigest()
            headers["Cronledger-Signature"] = f"t={at},v1={signature}"
        await self._post(self._value(channel.url), body, headers, channel.allow_private)

    async def _post(
        self, url: str, body: bytes, headers: Mapping[str, str], allow_private: bool
    ) -> None:
        own = {
            "Content-Type": "application/json",
            "User-Agent": "cronledger",
            "Cronledger-Delivery": str(self._delivery.id),
        }
        post = await _late_post.get()
        status, reason = await post(url, body, {**own, **headers}, allow_private)
        if not 200 <= status <= 299:
            raise DeliveryError(f"the receiver returned {status} {reason}")

    def _mail(self, channel: Email, message: Message) -> None:
        mail = EmailMessage()
        mail["Subject"] = " ".join(subject(message).split())
        mail["From"] = channel.sender
        mail["To"] = ", ".join(channel.to)
        mail["Message-ID"] = f"<{self._delivery.id}.{message['ledger']}@cronledger>"
        mail.set_content(text(message))
        with _smtp(channel) as server:
            if channel.user is not None:
                password = "" if channel.password is None else self._value(channel.password)
                server.login(channel.user, password)
            server.send_message(mail)

    async def _command(self, channel: Command, message: Message) -> None:
        command = channel.command
        with _file(message) as path:
            end = await self._supervisor.run(
                str(self._delivery.token),
                argv=None if isinstance(command, str) else command,
                shell=command if isinstance(command, str) else None,
                env={
                    **{name: self._value(value) for name, value in channel.env.items()},
                    "CRONLEDGER_ALERTS_FILE": str(path),
                    "CRONLEDGER_ALERT_SUBJECT": subject(message),
                    "CRONLEDGER_DELIVERY": str(self._delivery.id),
                },
                cwd=channel.cwd,
                deadline=monotonic() + self._seconds,
                tail_bytes=TAIL_BYTES,
            )
        if end.reason != "exited" or end.returncode != 0:
            status = f"status {end.returncode}" if end.signal is None else f"signal {end.signal}"
            how = f"exited with {status}" if end.reason == "exited" else f"ended: {end.reason}"
            shown = f"\n{end.output}" if end.output else ""
            raise DeliveryError(f"the command {how}{f': {end.error}' if end.error else ''}{shown}")

    async def _call(self, channel: Function, message: Message) -> None:
        function = resolve_function(channel.python)
        if asyncio.iscoroutinefunction(function):
            await function(message)
        else:
            await self._in_thread(partial(function, message))

    async def _in_thread(self, function: Callable[[], object]) -> None:
        """Call a function that blocks. Raises its error."""
        _, error = await self._threads.call(function)
        if isinstance(error, Exception):
            raise error
        if error is not None:
            raise DeliveryError(f"it ended with {type(error).__name__}")


def _import_post() -> Post:
    try:
        require_http("a channel of the kind webhook or slack")
    except ConfigurationError as error:
        raise DeliveryError(str(error)) from None
    from cronledger.engine.alerting.posts import post  # noqa: PLC0415 - aiohttp

    return post


_late_post = Late(_import_post)


@contextmanager
def _smtp(channel: Email) -> Any:
    if channel.security == "tls":
        connected: smtplib.SMTP = smtplib.SMTP_SSL(
            channel.host, channel.port, timeout=SMTP_SECONDS, context=ssl.create_default_context()
        )
    else:
        connected = smtplib.SMTP(channel.host, channel.port, timeout=SMTP_SECONDS)
    with connected as server:
        if channel.security == "starttls":
            server.starttls(context=ssl.create_default_context())
        yield server


@contextmanager
def _file(message: Message) -> Any:
    """Yield the path of a file with the message, which only this user can read."""
    with tempfile.TemporaryDirectory(prefix="cronledger-alert-") as directory:
        path = Path(directory) / "alerts.json"
        path.write_text(json.dumps(to_jsonable_python(message)), "utf-8")
        yield path


def _apprise(urls: list[str], message: Message) -> None:
    try:
        from apprise import Apprise as Notifier  # noqa: PLC0415
    except ImportError:
        raise DeliveryError(
            "a channel of the kind apprise needs `pip install 'cronledger[apprise]'` on every"
            " replica"
        ) from None
    # Their lines contain the URLs, and so their secrets.
    logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
    logging.getLogger("urllib3").setLevel(logging.INFO)
    notifier = Notifier()
    if not all(notifier.add(url) for url in urls):
        raise DeliveryError("Apprise does not know one of the urls of the channel")
    if not notifier.notify(title=subject(message), body=text(message)):
        raise DeliveryError("Apprise could not notify at least one of the urls of the channel")
