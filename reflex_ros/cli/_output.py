"""Standard output, whose reader may leave early (``| head``)."""

from __future__ import annotations

import os
import sys

from reflex_ros.core.errors import EXIT_DONE


def flushed(code: int) -> int:
    """Write out what is left, then return the code.

    Raises:
        BrokenPipeError: Nobody reads it any more.
    """
    sys.stdout.flush()
    return code


def discard() -> int:
    """Send the rest of the output nowhere; whoever read it has seen enough."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_DONE
