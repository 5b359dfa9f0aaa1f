"""What the page of results says around its figures; no number stands here."""

from __future__ import annotations

from types import MappingProxyType

TITLE = 'Results in closed loop'
INTRO = (
    'Written by `make results` from the lines in `results/experiments` and the runs in '
    '`results/wall_clock`; every row of ours names '
    'the cells that it comes from. `simulated`: the stages of the nodes with the simulated arm on '
    'a virtual clock. `measured`: a clock was read. `paper`: a number of the paper, on other '
    'robots, tasks and policies; only the order can be compared.')
READING = (
    'Success is a share of judged stretches or episodes with its Wilson interval, '
    'which takes the stretches of an episode for independent. Error, reaction '
    'and seam are medians with a bootstrap interval; intervals are for 95 %. *Reaction*: from a '
    'jump of the target to the first command that could know of it. Stalls by three definitions: '
    'chunk changes with an uncovered tick (*stalled chunks*), share of the inference time that no '
    'plan covers (*uncovered*), uncovered ticks of the ticks in motion (*stall ratio*). `h` is '
    'the number of rows executed before a chunk is replaced. *Not decided*: the intervals '
    'overlap, often because too few episodes were run.')
PROFILES = (
    'What an inference costs on the virtual clock, medians in ms; an episode draws from the '
    'stored samples in an order that its seed decides. `serial`: an inference encodes its own '
    'images; `two_stream`: they are encoded beside it.')
OWN_GRID = (
    'A file in the form of those in `config/experiments`: `title`, `about`, `seeds` (`first`, '
    '`count`), `defaults` for all blocks, and `grid`, a list of blocks with the keys below. A '
    'list of values is one cell each; several lists are every combination. '
    '`reflex-ros experiment FILE` runs what is missing, seed by seed; the same file and seed give '
    'the same lines.')
KEYS = MappingProxyType({
    'label': 'name of the cell; settings in braces are filled in',
    'kinds': 'motions of the target', 'params': 'further parameters of docs/parameters.md',
    'execute_steps': 'rows executed before a chunk is replaced', 'chunk': 'rows of a chunk',
    'window': 'frames that `tiny` sees', 'delay_ms': 'injected delay',
    'times': 'a profile of the stage times above', 'duration_s': 'length of an episode',
    'tolerance_m': 'distance that counts as followed',
})
MISSING = (
    'LIBERO and Kinetix are not here, so Table 3, Table 8, Table 10 and their figures are not '
    'run.',
)
ELSEWHERE = (
    ('Table 4, ablation of the cache', '[benches.md](benches.md), [baselines.md](baselines.md)'),
    ('Table 5, numerical stability', '[stability.md](stability.md)'),
    ('Table 7, time of each stage; Figure 11', '[benches.md](benches.md)'),
    ('memory against context', '[benches.md](benches.md)'),
    ('modes and delays with `tiny`', '[README](../README.md#figures)'),
)
