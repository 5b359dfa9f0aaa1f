"""How a command ends: its exit code, and one line where something went wrong."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from reflex_ros.core.errors import EXIT_DONE, EXIT_INPUT, EXIT_INTERRUPTED, ReflexError


def guarded(work: Callable[[], int]) -> int:
    """Do the work of a command and write out what it printed; return its exit code."""
    with _hearing() as heard:
        try:
            return _flushed(work())
        except ReflexError as error:
            return _failed(f'{type(error).__name__}: {error}', error.exit_code)
        except BrokenPipeError:
            _discard()  # whoever read it has seen enough
            return EXIT_DONE
        except KeyboardInterrupt:
            # a running graph takes the signal itself; here nothing was started, or it has ended
            return interrupted()
        except OSError as error:
            where = f' {error.filename}' if error.filename else ''
            return _failed(f'{type(error).__name__}:{where} {error.strerror or error}')
        except SystemExit as end:  # of wrong options, and of --help
            raise SystemExit(_flushed_quietly(end)) from None
        except Exception:
            if not heard:
                raise
            return interrupted()  # a library made something else of it


def interrupted() -> int:
    """Say that Ctrl-C ended the command; return its exit code."""
    print('reflex-ros: interrupted', file=sys.stderr)
    with suppress(OSError):
        return _flushed(EXIT_INTERRUPTED)
    _discard()
    return EXIT_INTERRUPTED


@contextmanager
def _hearing() -> Iterator[list[int]]:
    """Yield a list that is empty until Ctrl-C, which ends the work as always."""
    heard: list[int] = []

    def hear(number: int, frame: object) -> NoReturn:
        heard.append(number)
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # somebody else's, or ignored
        yield heard
        return
    try:
        signal.signal(signal.SIGINT, hear)
    except ValueError:  # not the main thread: it hears no signal
        yield heard
        return
    try:
        yield heard
    finally:
        signal.signal(signal.SIGINT, before)


def _flushed(code: int) -> int:
    sys.stdout.flush()
    return code


def _flushed_quietly(end: SystemExit) -> object:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard()
    except OSError as error:
        return _failed(f'standard output cannot be written: {error.strerror}')
    return end.code


def _failed(text: str, code: int = EXIT_INPUT) -> int:
    """Say what went wrong; what cannot be printed any more is dropped."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _discard()
        if not isinstance(error, BrokenPipeError):
            text = f'standard output cannot be written: {error.strerror}'
    with suppress(OSError):
        print(text, file=sys.stderr)
    return code


def _discard() -> None:
    """Send the rest of the output nowhere, or Python would stumble over it at its end."""
    with suppress(OSError):  # there is no file behind it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
