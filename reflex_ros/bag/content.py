"""What a bag says, whatever the order and the bytes it is stored in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from reflex_ros.bag.read import BagReader


def content_hash(folder: Path | str, *, topics: Iterable[str] = ()) -> str:
    """Return SHA-256 over the sorted (topic, stamp, decoded fields) of a bag, as hexadecimal.

    Neither storage, order of equal stamps nor padding bytes enter, since fields are compared.

    Args:
        folder: The bag.
        topics: Full names; none = all.

    Raises:
        ConfigError: It cannot be read, or has no such topic.
    """
    with BagReader(folder) as reader:
        digests = sorted(
            hashlib.sha256(
                f'{message.topic}\0{message.stamp_ns}\0{message.type}\0'.encode()
                + reader.canonical(message)
            ).digest()
            for message in reader.messages(*topics)
        )
    return hashlib.sha256(b''.join(digests)).hexdigest()
