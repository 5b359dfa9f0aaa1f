"""The parser of a command."""

from __future__ import annotations

import argparse
import sys
from typing import Any


class CommandParser(argparse.ArgumentParser):
    """A parser that does not keep silent about help that could not be printed."""

    def print_help(self, file: Any = None) -> None:
        """Print the help.

        Raises:
            OSError: It cannot be written.
        """
        (file or sys.stdout).write(self.format_help())
