from __future__ import annotations

from concurrent.futures import Future

from reflex_ros.bringup.lifecycle import Routine, RoutineState, Step

STEPS = [Step('configure', 'policy'), Step('activate', 'policy')]


class Asked:
    def __init__(self):
        self.futures = []

    def request(self, node, transition):
        self.futures.append(Future())
        return self.futures[-1]

    def close(self):
        pass


def test_a_step_is_asked_for_only_when_the_one_before_is_done():
    asked = Asked()
    routine = Routine(STEPS, asked)
    routine.advance()
    routine.advance()
    assert len(asked.futures) == 1
    asked.futures[0].set_result('')
    routine.advance()
    assert len(asked.futures) == 2
    assert routine.current == STEPS[1]
    asked.futures[1].set_result('')
    routine.advance()
    assert routine.state is RoutineState.DONE
    assert routine.done == STEPS


def test_a_failure_names_the_step_and_ends_the_routine():
    asked = Asked()
    routine = Routine(STEPS, asked)
    routine.advance()
    asked.futures[0].set_result('no answer')
    routine.advance()
    assert (routine.state, routine.failure) == (RoutineState.FAILED, 'no answer')
    assert routine.current == STEPS[0]
    routine.advance()
    assert len(asked.futures) == 1


def test_cancelling_ends_the_running_request():
    asked = Asked()
    routine = Routine(STEPS, asked)
    routine.advance()
    routine.cancel()
    assert asked.futures[0].cancelled()
    assert routine.state is RoutineState.FAILED
