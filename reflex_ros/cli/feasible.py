"""Say which delays, execution horizons and chunk lengths fit together.

Times come from a run's report or from a guess. With --execute-steps the choice itself is judged:
exit code 2 if it cannot work.
"""

from __future__ import annotations

import argparse

from reflex_ros.cli._options import non_negative, positive, positive_int
from reflex_ros.core.errors import EXIT_DONE

PER_MS = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument('--latency-ms', type=non_negative, required=True,
                        help='L: inference start to acceptance')
    parser.add_argument('--delta-ms', type=non_negative,
                        help='Δ: observation to first command (default: L + 40)')
    parser.add_argument('--chunk', type=positive_int, nargs='+', default=[50], metavar='H',
                        help='rows of a chunk (default 50)')
    parser.add_argument('--execute-steps', type=positive_int, metavar='S',
                        help='judge this execution horizon')
    parser.add_argument('--step-ms', type=positive, default=20.0, help='between rows (20)')
    parser.add_argument('--max-age-ms', type=positive, default=500.0,
                        help='safety.max_observation_age_s in ms (500)')
    parser.add_argument('--stitch', choices=('replace', 'blend', 'rtc'), default='blend')
    parser.add_argument('--state', choices=('measured', 'predicted'), default='predicted',
                        help='whether row 0 is the observation (measured) or the first execution')


def run(options: argparse.Namespace) -> int:
    """Print the region; judge the choice if there is one."""
    from reflex_ros.core.feasible import Choice, Timing, region, require
    from reflex_ros.core.types import Stitch

    delta = options.latency_ms + 40.0 if options.delta_ms is None else options.delta_ms
    latency, delta, step, age = (
        round(ms * PER_MS)
        for ms in (options.latency_ms, delta, options.step_ms, options.max_age_ms))
    timing = Timing(latency, delta, step, age, options.state == 'measured')
    stitch = Stitch(options.stitch)
    delays = sorted({latency, *(k * 2 * step for k in range(16))})
    spans = [region(rows, timing, delays, stitch=stitch).spans for rows in options.chunk]
    print('feasible execute_steps (rows), by delay L and chunk length')
    print('L, ms'.rjust(8) + ''.join(f'H = {rows}'.rjust(12) for rows in options.chunk))
    for index, delay in enumerate(delays):
        row = (span[index] for span in spans)
        cells = ['-' if span is None else f'{span[0]} to {span[1]}' for span in row]
        mark = ' <- yours' if delay == latency else ''
        print(f'{delay / PER_MS:8g}' + ''.join(cell.rjust(12) for cell in cells) + mark)
    for rows in options.chunk if options.execute_steps else ():
        require(Choice(rows, options.execute_steps, stitch), timing)
    return EXIT_DONE
