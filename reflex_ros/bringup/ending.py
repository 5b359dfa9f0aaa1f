"""The end of a run: figures, picture and where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reflex_ros.bringup.session import LEDGER
from reflex_ros.core.errors import ReflexError

if TYPE_CHECKING:
    from pathlib import Path


def report(folder: Path) -> bool:
    """Write ``summary.json`` and ``picture.png`` of a run folder and print the table.

    A report that fails is said, and does not hide how the run itself ended.

    Returns:
        Whether there is a report.
    """
    if not (folder / LEDGER).is_file():
        print(f'nothing was recorded; what the nodes said is in {folder / "logs"}')
        return False
    from reflex_ros.report import picture, summary, table

    try:
        figures = summary.write_summary(folder)
        print(table.format_table(figures))
        picture.write_picture(folder)
    except ReflexError as error:
        print(f'no report: {error}')
        return False
    print('\n'.join(f'  {path}' for path in (folder / 'summary.json', folder / 'picture.png')))
    return True
