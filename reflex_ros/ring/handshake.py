"""Names, messages and checks that both ends of the ring hand-off share."""

from __future__ import annotations

import array
import hashlib
import json
import os
import socket
import struct

from reflex_ros.core.errors import LayoutError
from reflex_ros.ring.layout import VERSION, RingLayout

GREETING = 'reflex_ros ring'
MOST_BYTES = 65536
MOST_DESCRIPTORS = 8
_LONGEST_NAME = 90


def ring_name(namespace: str, *, domain_id: int, uid: int | None = None, ring: str = 'kv') -> str:
    """Return the name of a ring's abstract socket, which leaves nothing behind in any folder.

    Two users, ROS domains or namespaces never meet. Abstract names belong to the network
    namespace: containers must share it (``--network host``), as DDS on one machine needs anyway.

    Args:
        namespace: ROS namespace, e.g. ``/left_arm``.
        domain_id: ``ROS_DOMAIN_ID``.
        uid: User, None = this process's.
        ring: Which ring of the namespace.
    """
    uid = os.getuid() if uid is None else uid
    name = f'reflex_ros/{uid}/{domain_id}/{namespace.strip("/")}/{ring}'
    if len(name.encode()) > _LONGEST_NAME:
        name = f'reflex_ros/{uid}/{domain_id}/{hashlib.sha256(name.encode()).hexdigest()[:32]}'
    return name


def socket_address(name: str) -> str:
    """Return the abstract Unix address of a name."""
    return '\0' + name


def peer_uid(connection: socket.socket) -> int:
    """Return the user that the kernel recorded for the other end when it connected."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    uid: int = struct.unpack('3i', credentials)[1]
    return uid


def hello() -> bytes:
    """Return a client's first message."""
    return json.dumps({'greeting': GREETING, 'version': VERSION}).encode()


def require_hello(message: bytes) -> None:
    """Raise LayoutError unless the message is a greeting of this version."""
    data = decode(message)
    if data.get('greeting') != GREETING or data.get('version') != VERSION:
        raise LayoutError(f'ring handshake failed: got greeting {data.get("greeting")!r} version '
                          f'{data.get("version")!r}, expected {GREETING!r} version {VERSION}. '
                          'Start both sides with the same version.')


def offer(layout: RingLayout, ring_id: int, store: dict[str, object]) -> bytes:
    """Return the server's answer, which travels with the descriptors."""
    return json.dumps({'greeting': GREETING, 'version': VERSION, 'layout': layout.to_dict(),
                       'layout_hash': layout.hash, 'ring_id': ring_id, 'store': store}).encode()


def refusal(reason: str) -> bytes:
    """Return the server's answer to a peer that it does not serve."""
    return json.dumps({'greeting': GREETING, 'version': VERSION, 'refused': reason}).encode()


def row_notice(row: int, owner: int) -> bytes:
    """Return the message by which a reader names its row, to be freed when the socket ends."""
    return json.dumps({'row': row, 'owner': owner}).encode()


def decode(message: bytes) -> dict[str, object]:
    """Return the fields of a message.

    Raises:
        LayoutError: It is no JSON object.
    """
    try:
        data = json.loads(message)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise LayoutError(f'ring handshake failed: got {message[:40]!r}, expected a JSON object. '
                          'Only vision_encoder and policy may use this socket.')
    return data


def receive(connection: socket.socket, *,
            most: int = MOST_DESCRIPTORS) -> tuple[bytes, tuple[int, ...]]:
    """Receive one message and its descriptors, which the caller then owns; b'' = peer is gone.

    Raises:
        LayoutError: Part of the message or some descriptors were lost in transit.
    """
    fds = array.array('i')
    message, ancillary, flags, _ = connection.recvmsg(
        MOST_BYTES, socket.CMSG_SPACE(most * fds.itemsize), socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[:len(data) - len(data) % fds.itemsize])
    if flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC):
        close_all(fds)
        raise LayoutError(
            f'ring handshake failed: got a truncated message with {len(fds)} descriptor(s), '
            f'expected all of it. Raise the limit of open files (ulimit -n).')
    return message, tuple(fds)


def close_all(fds: array.array[int] | tuple[int, ...]) -> None:
    """Close descriptors."""
    for fd in fds:
        os.close(fd)
