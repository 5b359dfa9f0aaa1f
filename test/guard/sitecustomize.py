"""Loaded by every Python process that a test starts: no connection but to this host.

The folder is put on PYTHONPATH by ``test/conftest.py``. An attempt raises in the process that
makes it, and is written to the file that REFLEX_GUARD_LOG names, so that it cannot pass unseen.
"""

from __future__ import annotations

import os
import sys

LOOPBACK = ('127.', '::1', 'localhost', '::ffff:127.')


def is_local(address: object) -> bool:
    """Return whether an address belongs to this host; paths and kernel sockets do."""
    if not isinstance(address, tuple) or not address or not isinstance(address[0], str):
        return True
    host = address[0]
    names_a_port = len(address) >= 2 and isinstance(address[1], int)
    return not names_a_port or host.startswith(LOOPBACK) or host in ('', '0.0.0.0', '::')


def _watch(event: str, arguments: tuple) -> None:
    if event == 'socket.connect' and not is_local(arguments[1]):
        text = f'connection to {arguments[1]} refused by the tests: only this host may be reached'
        if log := os.environ.get('REFLEX_GUARD_LOG'):
            with open(log, 'a') as file:
                file.write(f'{os.getpid()} {sys.argv[:2]} {text}\n')
        raise ConnectionRefusedError(text)


sys.addaudithook(_watch)
