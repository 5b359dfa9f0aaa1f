"""What the page of results says around its figures; no number stands here."""

from __future__ import annotations

from types import MappingProxyType

TITLE = 'Results in closed loop'
INTRO = (
    'Written by `make results` from the lines in `results/experiments` and the files of the '
    'benches in `results`; every row of ours names the cells or the file that it comes from. '
    '`simulated`: the stages of the nodes with the simulated arm on a virtual clock. `measured`: '
    'a clock was read, or bytes or actions of real networks were compared. `paper`: a number of '
    'the paper, on other robots, tasks and policies; only the order can be compared. `computed`: '
    'bytes of a published size by the formulas that measured networks confirm.')
VERDICT_WORDS = MappingProxyType({
    'holds': 'What was claimed is seen, with intervals apart where there are intervals.',
    'does not hold': 'What was claimed is not seen, or the contrary is; why stands beside it.',
    'not decided': 'The intervals overlap, often because too few episodes were run.',
    'not measured': 'Nothing was run that could tell.',
})
READING = (
    'Success is a share of judged stretches or episodes with its Wilson interval, '
    'which takes the stretches of an episode for independent. *Mean error*: mean over all judged '
    'stretches of the mean distance in a stretch, with a bootstrap interval that draws whole '
    'episodes. *Median error*: median of the same stretches; reaction and seam are medians too, '
    'with a bootstrap interval that draws single samples; intervals are for 95 %. *Reaction*: '
    'from a jump of the target to the first command that could know of it. Stalls by three '
    'definitions: chunk changes with an uncovered tick (*stalled chunks*), share of the inference '
    'time that no plan covers (*uncovered*), uncovered ticks of the ticks in motion (*stall '
    'ratio*). `h` is the number of rows executed before a chunk is replaced, of each cell in the '
    'order in which a claim names them. An *order* holds if each is better than the next with '
    'intervals apart; it does not hold if one is worse than a later one with intervals apart, or '
    'if our intervals leave no room for the lead that the paper gives it over that one.')
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
    'kinds': 'motions of the target',
    'params': 'those parameters of docs/parameters.md that an episode takes',
    'execute_steps': 'rows executed before a chunk is replaced', 'chunk': 'rows of a chunk',
    'window': 'frames that `tiny` sees', 'delay_ms': 'injected delay',
    'times': 'a profile of the stage times above', 'duration_s': 'length of an episode',
    'tolerance_m': 'distance that counts as followed',
})
ELSEWHERE = (
    ('modes and delays with `tiny`', '[README](../README.md#figures)'),
    ('`tiny_multi` task by task, as trained and otherwise', '[training.md](training.md)'),
    ('norms in bfloat16, all regimes', '[stability.md](stability.md)'),
    ('cost of each part and kind of reuse, memory by length', '[benches.md](benches.md)'),
    ('prior caches', '[baselines.md](baselines.md)'),
)
