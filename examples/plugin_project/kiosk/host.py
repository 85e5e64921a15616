"""The program: it has a replica, and plugins that come and go. `python -m kiosk.host news`."""

import asyncio
import importlib
import signal
import sys

from cronledger import App
from cronledger.replica import Replica


class Host:
    """Switches plugins on and off, by the name of their module."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._on: dict[str, App] = {}

    async def switch_on(self, name: str) -> None:
        """The jobs of the plugin run from now on."""
        app: App = importlib.import_module(f"kiosk.plugins.{name}").app
        await self._replica.register(app)
        self._on[name] = app

    async def switch_off(self, name: str) -> None:
        """The jobs of the plugin plan no more; what runs of them is asked to end."""
        await self._replica.unregister(self._on[name])
        del self._on[name]


async def main(plugins: list[str]) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Replica() as replica:
        host = Host(replica)
        for name in plugins:
            await host.switch_on(name)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
