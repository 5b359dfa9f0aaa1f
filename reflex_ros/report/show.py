"""Prints the report of a run and writes its files."""

from __future__ import annotations

import sys
from pathlib import Path

from reflex_ros.analysis.figures import Analysis, analyse
from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.core.errors import ReflexError
from reflex_ros.core.files import write_text
from reflex_ros.report.audit import audit, format_audit
from reflex_ros.report.brief import format_brief
from reflex_ros.report.document import to_json
from reflex_ros.report.page import page
from reflex_ros.report.run_data import load_run
from reflex_ros.report.summary import write_summary


def show(path: Path, *, json_to: str | None = None, html_to: Path | None = None) -> bool:
    """Report a bag or a run folder on standard output and in the named files.

    Args:
        path: Bag or run folder.
        json_to: File for the JSON, ``-`` for standard output alone, None for none.
        html_to: File for the page, None for none.

    Returns:
        Whether there is a report; why not is said on standard error.

    Raises:
        ConfigError: A file cannot be written.
    """
    run = RunFolder(path)
    if path.is_dir() and run.logs.is_dir() and not (run.ledger.is_file() or run.bags):
        print(f'nothing was recorded; what the nodes said is in {run.logs}', file=sys.stderr)
        return False
    try:
        analysis = analyse(path)
    except (ReflexError, OSError) as error:
        print(f'no report of {path}: {error}', file=sys.stderr)
        return False
    if json_to == '-':
        sys.stdout.write(to_json(analysis))
    else:
        print(format_brief(analysis))
        _more(analysis)
    if json_to not in (None, '-'):
        write_text(Path(str(json_to)), to_json(analysis))
    if html_to is not None:
        write_text(html_to, page(analysis))
    return True


def _more(analysis: Analysis) -> None:
    """Write what a run folder gets besides, and say whether its ledger is true."""
    run = RunFolder(analysis.run.path)
    if analysis.run.ticks_from == 'ledger':
        print('\n' + format_audit(audit(run.path)))
    if run.ledger.is_file() or run.bags:
        from reflex_ros.report.picture import write_picture  # draws; bags alone need no matplotlib

        try:
            data = load_run(run.path)
            write_summary(run.path, data)
            write_picture(run.path, data)
        except (ReflexError, OSError) as error:
            print(f'no summary or picture: {error}', file=sys.stderr)
            return
        print(f'  {run.summary}\n  {run.picture}')
