"""What the benches say beside the tables of the paper that no experiment repeats.

Tables 4, 5 and 7, the fusion of Figure 11 and memory against context. Columns are tagged one by
one, so that numbers of the paper and ours stand in one row and never in one column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reflex_ros.study import results_page_cache
from reflex_ros.study.experiment_table import interval
from reflex_ros.study.results_page_found import (
    COMMANDS,
    Bench,
    Found,
    load_bench,
    load_one,
    load_paper,
)
from reflex_ros.study.results_page_plots import Point, dots, lines
from reflex_ros.study.results_page_render import Block, Heading, Picture, Table, Text, slug
from reflex_ros.study.results_page_sources import of_file

TITLES = (
    'Cache ablation (Table 4)', 'Stability of norms in bfloat16 (Table 5)',
    'Time of each stage (Table 7)', 'Memory against context',
    'Fusion on the action expert (Figure 11)',
)
ABSENT, NOT_OF_PAPER = 'not measured', '-'
MIB = 2**20
NORMS = (('BF16 baseline', 'bf16'), ('BF16 + FP32 norm only', 'fp32_norm_only'),
         ('BF16 + AdaRMSNorm', 'ada'))
FUSED = ('packed QKV', 'packed GLU', 'fused attention')
BENCHES = ('denoise_variants', 'stability', 'policy', 'memory')
SHOWN_FRAMES = (1, 3, 16)
NO_GPU = 'On a GPU: not measured, none was at hand.'
ON_GPU = 'On a GPU: [gpu.md](gpu.md).'
STAGES_TEXT = (
    'The times of the paper are those of an RTX 4090; ours are CPU time of one thread, of a '
    'network of the same form and less size with random weights, so that only the shares can be '
    'compared.')
NORMS_TEXT = (
    'The paper does not say from which inputs its norms fail. Ours: streams of noise and of '
    'extreme, tiny, constant and outlying values, and whole calls of `tiny`, whose norms always '
    'have their condition, so that there the statistics alone differ; more, with what does fail, '
    'in [stability.md](stability.md). Time is CPU time of a block of 10 rows, where '
    'the paper has that of a call on a GPU.')
MEMORY_TEXT = (
    'The paper gives the peak memory of a GPU, with weights; ours are the bytes of a context '
    'alone, kept between two calls: the slots of the ring and the copy that the policy works on, '
    'allocated once, against one tensor that is concatenated anew. More lengths: '
    '[benches.md](benches.md).')
FUSION_TEXT = (
    'CPU time of the denoise loop without a fusion, divided by that with it, median of the '
    'rounds. The paper has the figure for a GPU, without numbers that were at hand.')


def sections(root: Path) -> list[Block]:
    """Return the sections of the page that come from benches."""
    paper = load_paper(root)
    found = {name: load_bench(root, name) for name in BENCHES}
    gpu = NO_GPU if load_bench(root, 'gpu') is None else ON_GPU
    table4 = load_one(root, 'table4', paper['table4'])
    return [*cache_section(table4, found['denoise_variants']),
            *norm_section(paper, found['stability']),
            *stage_section(paper, found['policy'], gpu),
            *memory_section(paper, found['memory'], gpu),
            *fusion_section(found['denoise_variants'], gpu)]


def beside(paper: Mapping[str, Any], ours: Mapping[str, Sequence[str]],
           head: Sequence[str]) -> Table:
    """Return rows of the paper with ours in the same row; a row of one side alone says so.

    Args:
        paper: ``head`` and ``rows``, whose first cell names the row.
        ours: Cells by name of the row. ``head``: of ours, tags included.
    """
    names = [str(name) for name in paper['head']]
    rows = [[str(row[0]), *map(str, row[1:]), *ours.get(str(row[0]), [ABSENT] * len(head))]
            for row in paper['rows']]
    theirs = {row[0] for row in rows}
    rows += [[name, *[NOT_OF_PAPER] * (len(names) - 1), *cells]
             for name, cells in ours.items() if name not in theirs]
    return Table((names[0], *(f'{name}, `paper`' for name in names[1:]), *head), rows)


def origin(name: str, bench: Bench | None) -> Text:
    """Return where figures of a bench come from."""
    command = f'Command: `{COMMANDS[name]}`.'
    if bench is None:
        return Text(f'Ours: not measured, no result file in `results/{name}`. {command}')
    result = bench.result
    machine = result['machine']
    dirty = ' with uncommitted changes' if result['dirty'] else ''
    tag = 'tags in the rows' if name == 'memory' else f'tag `{result["tag"]}`'
    return Text(f'Ours: {tag}, [{name}](../{bench.path}), commit '
                f'`{result["sha"][:7]}`{dirty}, {machine["cpu"]}, {machine["cores"]} cores, '
                f'{result["gpu"] or "no GPU"}. {command}',
                of_file(bench.path, 'machine.cpu', 'machine.cores', 'gpu'))


# ---- Table 4 -----------------------------------------------------------------------------------


def cache_section(table4: Found, bench: Bench | None) -> list[Block]:
    """Return the ablation of the cache: actions from a bench, success from an experiment."""
    subjects = bench.result['summary']['subjects'] if bench else []
    success, title = results_page_cache.success(table4), table4.experiment.title
    head = [f'MSE, {one["family"]}, `measured`' for one in subjects]
    ours = {
        'full recomputation': [_mse(one['ladder'][0]['mse']) for one in subjects],
        'naive cache': [_mse(one['naive']['mse']) for one in subjects],
        'partitioned': [_mse(partitioned(one)['mse']) for one in subjects],
        'partitioned, bfloat16': [_mse(one['ladder'][-1]['mse']) for one in subjects],
    }
    table = beside(table4.paper, {name: [*cells, success.get(name, ABSENT)]
                                  for name, cells in ours.items()},
                   [*head, results_page_cache.HEAD])
    note = results_page_cache.NOTE.format(title=title, slug=slug(title))
    return [Heading(2, TITLES[0]), table, Text(note), origin('denoise_variants', bench)]


def partitioned(subject: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what the nodes run in float32: the last such rung of the ladder."""
    last: Mapping[str, Any] = [one for one in subject['ladder'] if one['dtype'] == 'float32'][-1]
    return last


def _mse(value: float) -> str:
    return '0' if value == 0.0 else f'{value:.1e}'


# ---- Table 5 -----------------------------------------------------------------------------------


def norm_section(paper: Mapping[str, Any], bench: Bench | None) -> list[Block]:
    """Return the stability of norms in bfloat16."""
    head = ('first step with NaN or Inf, `measured`', 'NaN or Inf of norms, `measured`',
            'NaN or Inf of whole calls, `measured`', 'added CPU time, us, `measured`')
    ours = {name: norm_cells(bench.result['summary'], variant)
            for name, variant in NORMS} if bench else {}
    return [Heading(2, TITLES[1]),
            beside(paper['table5'], ours, head), Text(NORMS_TEXT), origin('stability', bench)]


def norm_cells(summary: Mapping[str, Any], variant: str) -> list[str]:
    """Return first failure, failures of norms, failures of calls and added time of a variant."""
    bad, total, first = norm_failures(summary, variant)
    failed, calls = call_failures(summary, variant)
    cost = {row['variant']: row['us']['p50'] for row in summary['cost']}
    added = f'{cost[variant] - cost["bf16"]:.0f}' if {variant, 'bf16'} <= set(cost) else ABSENT
    return ['never' if first is None else str(first), f'{bad} of {total}',
            f'{failed} of {calls}' if calls else ABSENT, added]


def norm_failures(summary: Mapping[str, Any], variant: str) -> tuple[int, int, int | None]:
    """Return failed norms, norms, and the first failed step, in regimes of operation."""
    own = [row for row in summary['norms'] if row['variant'] == variant and row['is_operating']]
    first = min((row['first_nan_or_inf_step'] for row in own
                 if row['first_nan_or_inf_step'] is not None), default=None)
    return (sum(row['nan'] + row['inf'] for row in own),
            sum(row['applications'] for row in own), first)


def call_failures(summary: Mapping[str, Any], precision: str) -> tuple[int, int]:
    """Return failed calls and calls of ``tiny`` in a precision, in regimes of operation."""
    own = [row for row in summary['calls']
           if row['precision'] == precision and row['is_operating']]
    return sum(row['nan'] + row['inf'] for row in own), sum(row['calls'] for row in own)


# ---- Table 7 -----------------------------------------------------------------------------------


def stage_section(paper: Mapping[str, Any], bench: Bench | None, gpu: str) -> list[Block]:
    """Return the time of each stage."""
    cells = stage_subject(bench)
    head = [f'`{variant}` {dtype} ms, `measured`' for variant, dtype in cells]
    ours = {}
    if cells:
        times = [{part: value['p50'] for part, value in cell['cpu'].items()}
                 for cell in cells.values()]
        ours = {
            'vision encoding (prefill)': [f'{t["vision"]:.0f} + {t["prefix"]:.0f}' for t in times],
            'denoise loop (10 steps)': [f'{t["denoise"]:.0f}' for t in times],
            'total': [f'{t["all_new"]:.0f}' for t in times],
            'total, one camera new': [f'{t["one_new"]:.0f}' for t in times],
            'from a finished prefix to the actions': [f'{t["control"]:.0f}' for t in times],
        }
    about = ('Prefill of ours: image tower + prefix of the language model. Preprocessing and '
             'decoding are parts of these and not measured apart; what the paper calls fusion is '
             f'part of the prefix here. {STAGES_TEXT} {gpu}')
    return [Heading(2, TITLES[2]), beside(paper['table7'], ours, head),
            Text(about), origin('policy', bench)]


def stage_subject(bench: Bench | None) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Return the cells of Pi0.5 by variant and type, {} without a result."""
    if bench is None:
        return {}
    subject = next(one for one in bench.result['summary']['subjects']
                   if (one['family'], one['size']) == ('pi05', 'mid'))
    return {(cell['variant'], cell['dtype']): cell for cell in subject['cells']
            if cell['variant'] != 'full'}


# ---- memory ------------------------------------------------------------------------------------


def memory_section(paper: Mapping[str, Any], bench: Bench | None, gpu: str) -> list[Block]:
    """Return memory against context, beside what the paper says of memory."""
    rows = bench.result['summary']['rows'] if bench else []
    pairs = memory_pairs(rows)
    ours = {f'{subject}, {count} frames, {tag}': [f'{joined / MIB:.3g}', f'{own / MIB:.3g}',
                                                  f'{own / joined:.1f}']
            for (subject, tag, count), (own, joined) in pairs.items() if count in SHOWN_FRAMES}
    head = ('concatenated MiB, ours', 'allocated once MiB, ours', 'once ÷ concatenated, ours')
    blocks: list[Block] = [Heading(2, TITLES[3]),
                           beside(paper['memory'], ours, head)]
    if pairs:
        blocks.append(Picture('results-memory.svg', TITLES[3], _curve(pairs)))
    return [*blocks, Text(f'{MEMORY_TEXT} {gpu}'), origin('memory', bench)]


def memory_pairs(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, int], Any]:
    """Return bytes kept by ours and by the concatenated cache, by subject, tag and frames."""
    kept = {(row['subject'], row['source'], row['value'], row['method']): row['kept']
            for row in rows if row['axis'] == 'frames'}
    return {key[:3]: (value, kept[*key[:3], 'concatenated'])
            for key, value in kept.items() if key[3] == 'ours'}


def _curve(pairs: Mapping[tuple[str, str, int], Any]) -> str:
    names = ('allocated once', 'concatenated')
    own = {count: value for (subject, _, count), value in pairs.items() if subject == 'pi05'}
    series = {name: [(float(count), (value[at] / MIB,) * 3) for count, value in own.items()]
              for at, name in enumerate(names)}
    return lines(TITLES[3], 'pi05, MiB kept, computed', 'images', series)


# ---- Figure 11 ---------------------------------------------------------------------------------


def fusion_section(bench: Bench | None, gpu: str) -> list[Block]:
    """Return what each fusion brings on the action expert."""
    title = TITLES[4]
    if bench is None:
        return [Heading(2, title), Text(f'{FUSION_TEXT} {gpu}'), origin('denoise_variants', bench)]
    found = fusions(bench)
    networks = list(dict.fromkeys((family, dtype) for _, family, dtype in found))
    table = Table(('network', *(f'without {part}, `measured`' for part in FUSED)), [
        [f'{family}, {dtype}', *(interval(found[part, family, dtype], digits=2)
                                 if (part, family, dtype) in found else 'none' for part in FUSED)]
        for family, dtype in networks])
    points = [Point(f'{family}, {dtype}, without {part}', '', (value,))
              for (part, family, dtype), value in found.items()]
    plot = dots(title, ('CPU time without ÷ with',), points)
    return [Heading(2, title), table, Picture('results-figure11.svg', title, plot),
            Text(f'{FUSION_TEXT} {gpu}'), origin('denoise_variants', bench)]


def fusions(bench: Bench) -> dict[tuple[str, str, str], tuple[float, float, float]]:
    """Return time without a fusion over time with it, by part, family and type."""
    return {(part, one['family'], row['dtype']): (row['ratio'], row['low'], row['high'])
            for part in FUSED for one in bench.result['summary']['subjects']
            for row in one['loop'] if row['variant'] == f'without {part}'}
