"""Lets third parties through to Redis's port with TLS: passes bytes on, and knows no key and no password.

    python door.py             serve until SIGTERM
    python door.py --check     exit 0 if the door is open and Redis behind it

Docker publishes no port of a service whose networks have no way out, as Redis's have: this one has a foot on each side.
"""

import asyncio
import signal
import socket
import sys

PORT = 6380
REDIS = ("redis", 6380)
MAX_CONNECTIONS = 256
CONNECT_TIMEOUT_S = 5.0
CHUNK_BYTES = 64 * 1024


class Door:
    """Connections from outside, each joined to one to Redis."""

    def __init__(self, redis: tuple[str, int] = REDIS, max_connections: int = MAX_CONNECTIONS) -> None:
        self._redis = redis
        self._places = asyncio.Semaphore(max_connections)

    async def open(self, host: str, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._join, host, port)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end. One too many, or without Redis, is closed."""
        if self._places.locked():
            writer.close()
            return
        async with self._places:
            try:
                inner = await asyncio.wait_for(asyncio.open_connection(*self._redis), CONNECT_TIMEOUT_S)
            except OSError:  # A time that ran out is one.
                writer.close()
                return
            await asyncio.gather(_pass_on(reader, inner[1]), _pass_on(inner[0], writer))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until one side ends."""
    try:
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    except OSError:
        pass  # The other direction ends with it.
    finally:
        writer.close()


async def serve() -> None:
    """Until SIGTERM or Ctrl-C."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    server = await Door().open("0.0.0.0", PORT)
    await stopping.wait()
    server.close()


def check() -> int:
    """Prints what is wrong; nothing and 0 when all is well."""
    for address in (("127.0.0.1", PORT), REDIS):
        try:
            socket.create_connection(address, CONNECT_TIMEOUT_S).close()
        except OSError as error:
            print(f"{address[0]}:{address[1]}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        raise SystemExit(check())
    asyncio.run(serve())
