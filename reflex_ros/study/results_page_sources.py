"""Where the numbers in the sentences of the page of results come from.

A sentence that is computed names its sources where it is made (``Text.sources``); words that are
written by hand stand here, each with what its numbers are. A source is a file of the checkout and
what of it: a key of an experiment file, a path in a JSON or YAML file (``*``: all of it), a
constant or a default argument of Python sources; ``sum``, ``count``, ``min`` and ``max`` of that;
times a factor. A test reads each from its file and compares it with the number in its place.
"""

from __future__ import annotations

from types import MappingProxyType

from reflex_ros.study.results_page_found import FILES, STORED

CLAIMS = 'docs/results.md claims'
"""Rows of the tables of claims, in all or of a verdict."""
STUDY = 'reflex_ros/study'
PHRASES = MappingProxyType({
    **{f'{title}, 100 ms for everybody': (f'{FILES}/{name}.yaml delay_ms',) for name, title in (
        ('jump100', 'Jumping target'), ('table2', 'Manipulation by mode'),
        ('table2_multi', 'Manipulation by mode with a learned policy'),
        ('figure8', 'Parts added one by one'),
        ('figure8_multi', 'Parts with a learned policy, pick-place'),
        ('stitchers', 'Stitchers with a learned policy, jumping target'))},
    'Every inference takes 100 ms from its start': (f'{FILES}/jump100.yaml delay_ms',),
    'counts as followed within 50 mm': (f'{FILES}/table4.yaml tolerance_m * 1000',),
    'Without one, an inference takes 20 ms': (
        f'{FILES}/stage_times.json sum profiles.fixed.stages_ms.*.*',),
    'where the paper has 38 to 54 %': (f'{FILES}/paper.yaml min table1.rows.*.5',
                                       f'{FILES}/paper.yaml max table1.rows.*.5'),
    'A real PiPer, 20 trials a task': (f'{FILES}/paper.yaml table2.trials',),
    '12 s are time to grasp again': (f'{FILES}/table2_multi.yaml duration_s',),
    'intervals are for 95 %': ('reflex_ros/core/stats.py bootstrap_median.level * 100',),
    'CPU time of a block of 10 rows': ('bench/stability.py TOKENS',),
    'Jumping target at 100 ms, beside': (f'{FILES}/jump100.yaml delay_ms',),
    'succeeds in at least 98 % of its episodes': (f'{STUDY}/expert_report.py LEAST * 100',),
    'follows better with 4 frames than with 1': (f'{FILES}/figure10.yaml max window',
                                                 f'{FILES}/figure10.yaml min window'),
    'than `async_naive` at 0 ms of delay': (f'{FILES}/figure9.yaml min delay_ms',),
    'at every injected delay above 0 ms': (f'{FILES}/figure9.yaml min delay_ms',),
    **{f'follows better than `{mode}` at 100 ms': (
        f'{STUDY}/results_page_bench_claims.py DELAY_MS',) for mode in ('sync', 'async_naive')},
    'solves at least 80 % of each task': (
        f'{STUDY}/results_page_bench_claims.py SOLVED * 100',),
})
"""Words of the page whose numbers are these, in their order."""


def of_settings(name: str) -> tuple[str, ...]:
    """Return where what all cells of an experiment share comes from."""
    return tuple(f'{FILES}/{name}.yaml {key}'
                 for key in ('duration_s', 'tolerance_m', 'delay_ms', 'seeds'))


def of_lines(name: str, *, is_run: bool) -> tuple[str, ...]:
    """Return where the counts, the machine and the time of stored lines come from."""
    planned = f'{FILES}/{name}.yaml planned'
    if not is_run:
        return (planned,)
    return (f'{STORED}/{name}/results.jsonl lines', planned, f'{STORED}/{name}/wall.jsonl machine',
            f'{STORED}/{name}/wall.jsonl cpu_s')


def of_left(name: str) -> tuple[str, ...]:
    """Return where the counts of lines that were not run come from."""
    return f'{STORED}/{name}/results.jsonl left', f'{FILES}/{name}.yaml planned'


def of_claim(text: str) -> tuple[str, ...]:
    """Return where the sentence of a claim has its numbers: in its row."""
    return (f'{CLAIMS} of {text}',)


def of_file(path: str, *fields: str) -> tuple[str, ...]:
    """Return fields of one file."""
    return tuple(f'{path} {field}' for field in fields)
