"""Where the payload of the ring would be, and what the GPU could do for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from reflex_ros.core.errors import ConfigError
from reflex_ros.doctor.model import Finding, from_error, ok, skip, warn
from reflex_ros.doctor.software import gpu_device, model_runs
from reflex_ros.ring.cuda_choice import choose_store

if TYPE_CHECKING:
    from reflex_ros.doctor.context import Context
    from reflex_ros.ring.cuda_choice import CudaProbe

ONE_PROCESS = 'Leave encoder and policy in one process (executable inference)'


def ring_store(context: Context) -> Iterable[Finding]:
    """Judge the choice that the nodes of one process would make, and the trial of sharing."""
    found = context.probes.ring()
    wanted = cast('str', context.choices.params['ring.store'])
    device = 'cuda' if context.choices.params['policy.device'] == 'cuda' else _auto(context)
    try:
        choice, _ = choose_store(wanted, lambda: found, model_device=device, is_one_process=True)
    except ConfigError as error:
        return [from_error(error, about=_about(found))]
    now = f'{choice.way.value}: {choice.reason}'
    if found.facts is None:
        what, _, todo = found.problem.partition('. ')
        if not gpu_device(context)[0]:
            return [skip(f'{now}; no GPU to share memory of')]
        return [warn(f'{now}; {what}', todo, about=_about(found))]
    return [_ability(now, found)]


def _auto(context: Context) -> str:
    """Return where the model goes, the CPU where a check of its own refuses the parameters."""
    try:
        return model_runs(context)[0]
    except ConfigError:
        return 'cpu'


def _ability(now: str, found: CudaProbe) -> Finding:
    assert found.facts is not None
    about, name = _about(found), found.facts.name
    if not found.obstacle:
        return ok(f'{now}; {name} shares its memory between processes', about=about)
    text = f'{now}; {name} shares no memory between processes: {found.obstacle}'
    if found.facts.is_integrated:
        return ok(f'{text}; its memory is that of the CPU', about=about)
    return warn(text, ONE_PROCESS, about=about)


def _about(found: CudaProbe) -> dict[str, object]:
    facts = found.facts
    return {
        'problem': found.problem, 'obstacle': found.obstacle,
        'device': facts.name if facts else '', 'uuid': facts.uuid if facts else '',
        'integrated': facts.is_integrated if facts else None,
        'vmm': facts.has_vmm if facts else None, 'fd': facts.has_fd if facts else None,
        'driver_version': facts.driver_version if facts else None,
    }
