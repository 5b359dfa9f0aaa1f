"""The end of a run: figures, picture and where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reflex_ros.core.errors import ReflexError

if TYPE_CHECKING:
    from reflex_ros.bag.run_folder import RunFolder


def report(run: RunFolder) -> bool:
    """Write ``summary.json`` and ``picture.png`` of a run folder and print the table.

    A report that fails is said, and does not hide how the run itself ended.

    Returns:
        Whether there is a report.
    """
    if not run.path.is_dir():
        print(f'no report: got no folder {run.path}, expected a run folder. Look into runs/.')
        return False
    if not run.ledger.is_file() and not run.bags:
        print(f'nothing was recorded; what the nodes said is in {run.logs}')
        return False
    from reflex_ros.report import audit, picture, run_data, summary, table

    try:
        data = run_data.load_run(run.path)
        figures = summary.write_summary(run.path, data)
        print(table.format_table(figures))
        if run.ledger.is_file():
            print(audit.format_audit(audit.audit(run.path)))
        picture.write_picture(run.path, data)
    except (ReflexError, OSError) as error:
        print(f'no report: {error}')
        return False
    print(f'  {run.summary}\n  {run.picture}')
    return True
