"""Compare recorded runs, and judge them by budgets: exit code 5 if one is not met.

Each RUN is a bag, a run folder, or the JSON that reflex-ros report wrote. The first one is the
baseline; budgets judge the others, or the only one. A run whose arm never followed a plan fails.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from reflex_ros.core.errors import EXIT_BUDGET, EXIT_DONE, ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument('run', nargs='+', type=Path, metavar='RUN', help='the baseline first')
    parser.add_argument('--budgets', type=Path, metavar='FILE',
                        help='YAML with bounds, e.g. config/budgets.yaml')
    form = parser.add_mutually_exclusive_group()
    form.add_argument('--markdown', action='store_true', help='print Markdown')
    form.add_argument('--json', action='store_true', help='print JSON')
    parser.add_argument('--badge', type=Path, metavar='FILE',
                        help='write the state of the budgets as JSON for an endpoint badge')


def run(options: argparse.Namespace) -> int:
    """Print the comparison and return whether the budgets are met."""
    from reflex_ros.analysis.budgets import judge, load_budgets, require_baseline
    from reflex_ros.analysis.compare import compare, load_subject
    from reflex_ros.core.files import write_text
    from reflex_ros.report import comparison

    if options.badge and options.badge.resolve() in [path.resolve() for path in options.run]:
        raise ConfigError(f'badge {options.badge} is not written: got the name of a run, '
                          'expected one that is not compared. Name another.')
    budgets = load_budgets(options.budgets) if options.budgets else ()
    require_baseline(budgets, len(options.run))
    subjects = [load_subject(path) for path in options.run]
    rows = compare(subjects)
    judged = [(subject.name, judge(budgets, subject.figures,
                                   subjects[0].figures if subjects[1:] else None,
                                   left_out=max(subject.left_out, subjects[0].left_out)))
              for subject in (subjects[1:] or subjects) if budgets]
    if options.json or options.markdown:
        form = comparison.to_json if options.json else comparison.to_markdown
        print(form(subjects, rows, judged), end='')
    else:
        print(comparison.to_text(subjects, rows, judged))
    if options.badge:
        write_text(options.badge, comparison.to_badge(judged))
    is_met = all(j.is_met for _, results in judged for j in results)
    is_met = is_met and not any(subject.never_tracked for subject in subjects)
    return EXIT_DONE if is_met else EXIT_BUDGET
