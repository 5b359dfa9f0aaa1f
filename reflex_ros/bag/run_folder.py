"""Where things are in the folder of a run, ``runs/<utc>-<mode>/``.

=================  ==============================================================
``ledger.bin``     one record per control tick, written by the bridge
``bag/``           recorded topics; ``bag_2/`` … after a restart of the recorder
``strip/``         a few camera frames, where images were not recorded
``params/``        what the nodes were given: ``run.yaml``
``logs/``          what the nodes said
``summary.json``   figures, ``picture.png`` the run at a glance
=================  ==============================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from reflex_ros.bag.files import METADATA
from reflex_ros.core.clock import Clock, S
from reflex_ros.core.errors import ConfigError

BAG = 'bag'
RECORDER_REPORT = 'recorder.json'


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths of one run; nothing needs to exist."""

    path: Path

    @classmethod
    def create(cls, runs: Path | str, mode: str, clock: Clock) -> RunFolder:
        """Create ``<runs>/<utc>-<mode>``, with a number behind it if that exists.

        Raises:
            ConfigError: The folder cannot be made.
        """
        when = datetime.fromtimestamp(clock.stamp_ns() // S, UTC)
        for number in count(1):
            suffix = f'-{number}' if number > 1 else ''
            path = Path(runs) / f'{when:%Y%m%dT%H%M%SZ}-{mode}{suffix}'
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise ConfigError(
                    f'run folder {path} cannot be made: got {error.strerror}, expected a folder '
                    'that may be written. Choose another one with --runs, or make room.'
                ) from error
            break
        return cls(path)

    @property
    def ledger(self) -> Path:
        """The ledger of the bridge."""
        return self.path / 'ledger.bin'

    @property
    def strip(self) -> Path:
        """Folder of the frames ``<stamp in ns>.png``."""
        return self.path / 'strip'

    @property
    def params(self) -> Path:
        """The parameter file that the nodes were given."""
        return self.path / 'params' / 'run.yaml'

    @property
    def logs(self) -> Path:
        """Folder of the logs."""
        return self.path / 'logs'

    @property
    def summary(self) -> Path:
        """Figures of the run."""
        return self.path / 'summary.json'

    @property
    def picture(self) -> Path:
        """The run at a glance."""
        return self.path / 'picture.png'

    @property
    def bags(self) -> tuple[Path, ...]:
        """Bags that exist, oldest first; one unless the recorder was restarted."""
        return tuple(path for path in self._names() if path.is_dir())

    @property
    def next_bag(self) -> Path:
        """Name for a new bag."""
        return next(path for path in self._names() if not path.exists())

    def _names(self) -> Iterator[Path]:
        """Yield the possible names up to the first free one."""
        for number in count(1):
            path = self.path / (BAG if number == 1 else f'{BAG}_{number}')
            yield path
            if not path.exists():
                return

    @property
    def is_complete(self) -> bool:
        """Whether every bag was closed."""
        return all((bag / METADATA).is_file() for bag in self.bags)
