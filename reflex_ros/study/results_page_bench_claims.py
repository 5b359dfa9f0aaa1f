"""The claims that results of benches decide: cache, norms, time, memory, learned policies.

As in ``results_page_claims`` a verdict is computed from the result file; without one the claim is
not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reflex_ros.study.experiment_table import interval
from reflex_ros.study.results_page_benches import (
    FUSED,
    NORMS,
    TITLES,
    call_failures,
    fusions,
    memory_pairs,
    norm_failures,
    partitioned,
)
from reflex_ros.study.results_page_claims import ABSENT, FAILS, HOLDS, OPEN, Claim, verdict
from reflex_ros.study.results_page_found import COMMANDS, Bench, load_bench

SOLVED = 0.8
"""Share of success from which a task counts as solved."""
DELAY_MS = 100
SHOWN = MappingProxyType({'control': 'from a finished prefix to the actions',
                          'all_new': 'with all work, all cameras new'})
OTHERWISE = MappingProxyType({
    'as trained': ('with everything as trained', 'it was trained on too little of the task'),
    'unseen wording': ('told in wordings that it was not trained on',
                       'wordings were learned one by one'),
    'unknown word': ('told with one word that it does not know',
                     'without the word that it does not know the sentence no longer names the '
                     'task'),
    'unseen colour': ('with objects in colours that it was not shown',
                      'it was shown few colours and learned these, not what an object is'),
    'told otherwise': ('told to open the drawer where a cube lies',
                       'it does what the scene suggests'),
})


def bench_claims(root: Path) -> list[Claim]:
    """Return every claim that a bench decides."""
    cache, norms, stages, memory, fusion = TITLES
    makers: tuple[tuple[str, Callable[[Bench], Iterator[Claim]], str, str], ...] = (
        ('denoise_variants', cache_claims, cache,
         'Reuse gives the actions of a full recomputation'),
        ('stability', norm_claims, norms, 'Norms in plain bfloat16 become unstable'),
        ('policy', time_claims, stages, 'A call costs less than in the reference implementations'),
        ('memory', memory_claims, memory, 'A context allocated once takes less memory'),
        ('denoise_variants', fusion_claims, fusion, 'Fusion saves CPU time'),
        ('tiny', tiny_claims, '`tiny` at equal delay', '`tiny` follows better with `reflex`'),
        ('tiny_multi', multi_claims, '`tiny_multi` without delay',
         '`tiny_multi` solves every task'),
    )
    found: list[Claim] = []
    for name, make, topic, text in makers:
        bench = load_bench(root, name)
        own = [absent(name, text)] if bench is None else make(bench)
        found += [replace(claim, topic=topic) for claim in own]
    if load_bench(root, 'gpu') is None:
        found += [replace(claim, topic='On a GPU') for claim in gpu_claims()]
    return found


def absent(name: str, text: str, why: str = '') -> Claim:
    """Return a claim without a result."""
    return Claim(text, ABSENT, '', '', f'no file in `results/{name}`',
                 why or 'the bench was not run', f'`{COMMANDS[name]}`')


def gpu_claims() -> Iterator[Claim]:
    """Yield what the paper claims of a GPU; nothing of it was measured."""
    why = 'no GPU was at hand'
    for text in ('A call of Pi0.5 takes less time on a GPU (Tables 7 and 8)',
                 'Peak memory of the GPU falls (Table 8)',
                 'Fusion shortens a denoise step on a GPU (Figure 11)',
                 'A call of SmolVLA takes less time on a GPU (Table 10)'):
        yield absent('gpu', text, why)


def made(bench: Bench, name: str, text: str, answer: str, evidence: str, why: str,
         steps: str = '', tag: str = '') -> Claim:
    """Return a claim with the file that it comes from; ``why`` is kept where it differs."""
    return Claim(text, answer, steps, tag or bench.result['tag'], evidence,
                 '' if answer == HOLDS else why,
                 f'[{name}](../{bench.path}), `{COMMANDS[name]}`')


def all_of(answers: list[str]) -> str:
    """Return the verdict of a claim whose parts must all hold."""
    return next((one for one in (ABSENT, FAILS, OPEN) if one in answers), HOLDS)


# ---- Tables 4 and 5 ----------------------------------------------------------------------------


def cache_claims(bench: Bench) -> Iterator[Claim]:
    """Yield what is exact, and what a naive cache does."""
    name, subjects = 'denoise_variants', bench.result['summary']['subjects']
    most = max(row['max'] for one in subjects for row in (*one['loop'], *one['ladder'])
               if row['dtype'] == 'float32')
    yield made(bench, name, 'Reuse gives the actions of a full recomputation, in float32 '
               '(Table 4)', HOLDS if all(one['equal'] for one in subjects) else FAILS,
               f'largest difference {most:.1e} of max(1, velocity), {len(subjects)} networks',
               'some reuse changes more than the rounding')
    naive = [one['naive']['mse'] for one in subjects]
    exact = max(partitioned(one)['mse'] for one in subjects)
    yield made(bench, name, 'A naive cache changes the actions (Table 4)',
               HOLDS if min(naive) > exact else FAILS,
               f'MSE {min(naive):.1e} to {max(naive):.1e} against at most {exact:.1e}',
               'its actions differ by no more than the rounding')


def norm_claims(bench: Bench) -> Iterator[Claim]:
    """Yield which claims of stability are reproduced."""
    name, summary = 'stability', bench.result['summary']
    failed = {ours: norm_failures(summary, ours) for _, ours in NORMS}
    bad, total, first = failed['bf16']
    yield made(bench, name, 'Norms in plain bfloat16 become unstable (Table 5)',
               HOLDS if bad else FAILS, f'NaN or Inf in {bad} of {total} norms in operation'
               + ('' if first is None else f', first at step {first}'),
               'torch sums in float32 inside a norm, and a sum of squares overflows in bfloat16 '
               'no sooner than in float32; from which inputs the paper saw it, it does not say')
    bad, total, _ = failed['ada']
    yield made(bench, name, 'AdaRMSNorm (eq. 2) gives no NaN or Inf (Table 5)',
               FAILS if bad else HOLDS, f'{bad} of {total} norms in operation',
               'some input overflows its statistics')
    plain, calls = call_failures(summary, 'bf16')
    ada, ada_calls = call_failures(summary, 'ada')
    yield made(bench, name, 'Whole calls in bfloat16 need the float32 statistics of eq. 2 to stay '
               'finite (Table 5)',
               HOLDS if plain and not ada else FAILS if calls and ada_calls else ABSENT,
               f'NaN or Inf in {plain} of {calls} calls of `tiny` without, {ada} of {ada_calls} '
               'with', 'neither fails, so that there is nothing to cure')
    yield _norm_cost(bench, {row['variant']: row['us'] for row in summary['cost']})


def _norm_cost(bench: Bench, cost: Mapping[str, Any]) -> Claim:
    """Return whether eq. (2) costs less than statistics in float32; quantiles are all there is."""
    ada, other = cost['ada'], cost['fp32_norm_only']
    spans = [(one['p50'], one['p50'], one['p90']) for one in (ada, other)]
    return made(bench, 'stability', 'AdaRMSNorm costs less than float32 statistics alone '
                '(Table 5)', verdict(*spans, more_is_better=False),
                f'p50 (p90) {ada["p50"]:.0f} ({ada["p90"]:.0f}) against {other["p50"]:.0f} '
                f'({other["p90"]:.0f}) us of CPU time', 'the p90 of one lies above the p50 of the '
                'other')


# ---- time and memory ---------------------------------------------------------------------------


def time_claims(bench: Bench) -> Iterator[Claim]:
    """Yield what a call costs beside the reference implementation, in float32."""
    for part, words in SHOWN.items():
        ratios = {one['family']: (target['ratio'], target['low'], target['high'])
                  for one in bench.result['summary']['subjects'] for target in one['targets']
                  if (target['part'], target['dtype']) == (part, 'float32')}
        evidence = ', '.join(f'{name} {interval(value, digits=3)}'
                             for name, value in ratios.items())
        answers = [verdict(value, (1.0,) * 3, more_is_better=False) for value in ratios.values()]
        yield made(bench, 'policy', f'A call costs less CPU time than in the reference '
                   f'implementations, {words} (Table 7)', all_of(answers or [ABSENT]),
                   f'ratio {evidence}', 'what is saved is less than what is added')


def memory_claims(bench: Bench) -> Iterator[Claim]:
    """Yield what a context costs beside a cache that is concatenated."""
    pairs = memory_pairs(bench.result['summary']['rows'])
    ratios = [own / joined for (_, tag, _), (own, joined) in pairs.items() if tag == 'computed']
    yield made(bench, 'memory', 'A context allocated once takes less memory than one that is '
               'concatenated', HOLDS if max(ratios) < 1 else FAILS,
               f'{min(ratios):.1f} to {max(ratios):.1f} times as much, {len(ratios)} lengths of '
               'the published sizes, computed', 'it pays for slots that a reader may still hold '
               'and for the copy that the policy works on, and is never allocated again',
               tag='computed')


def fusion_claims(bench: Bench) -> Iterator[Claim]:
    """Yield which fusions save time on a CPU."""
    found = fusions(bench)
    for part in FUSED:
        own = [value for (name, *_), value in found.items() if name == part]
        answers = [verdict(value, (1.0,) * 3, more_is_better=True) for value in own]
        yield made(bench, 'denoise_variants', f'Fusion saves CPU time: {part} (Figure 11)',
                   all_of(answers), f'apart in {answers.count(HOLDS)} of {len(own)} networks; '
                   f'without it {min(own)[0]:.2f} to {max(own)[0]:.2f} times the time',
                   'a joined matrix product is hardly faster on one core')


# ---- learned policies --------------------------------------------------------------------------


def tiny_claims(bench: Bench) -> Iterator[Claim]:
    """Yield whether ``reflex`` helps a learned policy at equal delay."""
    cells = {one['cell']: one for one in bench.result['summary']}
    ours = cells[f'reflex:measured_observation@{DELAY_MS}']
    for mode in ('sync', 'async_naive'):
        other = cells[f'{mode}@{DELAY_MS}']
        mine, theirs = (tuple(one[key] for key in ('success', 'success_low', 'success_high'))
                        for one in (ours, other))
        yield made(bench, 'tiny', f'With a learned policy, `tiny`, `reflex` follows better than '
                   f'`{mode}` at {DELAY_MS} ms', verdict(mine, theirs, more_is_better=True),
                   f'{interval(mine, 100)} against {interval(theirs, 100)} %, '
                   f'{ours["episodes"]} and {other["episodes"]} episodes',
                   'its chunks are drawn anew each time', steps=f'{ours["execute_steps"]} against '
                   f'{other["execute_steps"]}')


def multi_claims(bench: Bench) -> Iterator[Claim]:
    """Yield what ``tiny_multi`` solves without delay, by condition; its worst task decides."""
    for condition, (words, why) in OTHERWISE.items():
        own = [one for one in bench.result['summary'] if one['condition'] == condition]
        if not own:
            continue
        worst = min(own, key=lambda one: one['success'])
        share = tuple(worst[key] for key in ('success', 'success_low', 'success_high'))
        tasks = ', '.join(f'{one["task"]} {100 * one["success"]:.0f}' for one in own)
        yield made(bench, 'tiny_multi', f'`tiny_multi` solves at least {100 * SOLVED:.0f} % of '
                   f'each task {words}, without delay',
                   verdict(share, (SOLVED,) * 3, more_is_better=True),
                   f'worst: {worst["task"]} {interval(share, 100)} %, {worst["judged"]} judged; '
                   f'all: {tasks} %', why)
