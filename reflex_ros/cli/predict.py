"""Compute actions once, without ROS: arrays in, arrays out.

IN.npz holds raw_u8/<camera> uint8 [B,3,H,W], raw_state [B,joints] in the checkpoint's units, task
[B] and, if wanted, noise [B,chunk,32]. OUT.npz gets actions, actions_unnormalized, v_t, prefix_k,
prefix_v, prefix_pad_masks and stage_s/<stage> (seconds). A missing camera, a state far from the
training data and a task that is cut are warnings.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reflex_ros.cli._options import positive_int, threads
from reflex_ros.core.errors import EXIT_DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument('checkpoint', type=Path, help='checkpoint folder')
    parser.add_argument('--input', type=Path, required=True, metavar='IN.npz')
    parser.add_argument('--output', type=Path, required=True, metavar='OUT.npz')
    parser.add_argument('--dtype', choices=('float32', 'bfloat16', 'float64'),
                        help="of the language model (default: the checkpoint's)")
    parser.add_argument('--cache', default='partitioned',
                        choices=('partitioned', 'full', 'naive', 'vla_cache', 'vl_cache'),
                        help='reuse the prefix in every step (default), recompute it, reuse the '
                             'suffix as well (naive: wrong), or a prior method (approximate; rows '
                             'of IN.npz are one call after another; with --layout compact)')
    parser.add_argument('--cache-set', action='append', default=[], metavar='NAME=VALUE',
                        help='parameter of a prior method; may be repeated')
    parser.add_argument('--layout', choices=('reference', 'compact'), default='reference',
                        help='keep every pad and attend as the reference does (default), or '
                             'drop them, as the nodes do')
    parser.add_argument('--steps', type=positive_int, metavar='N',
                        help="denoise steps (default: the checkpoint's)")
    parser.add_argument('--seed', type=int, default=0, help='of the noise, if IN.npz has none')
    parser.add_argument('--state-text', choices=('real', 'padded'), default='real',
                        help='columns of the state in the text of pi05: its own (default), or '
                             'padded, as older exporters trained')
    parser.add_argument('--threads', type=threads, default=1, help='of torch (default 1)')


def run(options: argparse.Namespace) -> int:
    """Compute and say what was written."""
    from reflex_ros.study.predict import Options, predict_file, read_values

    how = Options(options.dtype, options.cache, options.layout, options.steps,
                  options.seed, options.threads, options.state_text,
                  read_values(options.cache_set))
    result = predict_file(options.checkpoint, options.input, options.output, how,
                          warn=lambda line: print(f'warning: {line}', file=sys.stderr))
    rows, chunk, joints = result.physical.shape
    print(f'{options.output}: {rows} x {chunk} actions of {joints} joints')
    return EXIT_DONE
