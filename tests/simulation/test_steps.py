"""What the replica drives and what the simulator steps are the same."""

import ast
import inspect
import textwrap
from collections import Counter
from collections.abc import Iterator

import pytest

from cronledger.engine.running.heartbeats import Heartbeats
from cronledger.engine.runtime.runtime import Runtime
from tests.simulation.support.backend import Database
from tests.simulation.support.run import SimHeartbeats, simulate

pytestmark = pytest.mark.tools

IN_A_LOOP = {
    "alerts", "check_in", "deliveries", "dispatcher", "finisher", "gates", "listener",
    "output", "scopes", "sweeper",
}  # fmt: skip


def driven() -> Iterator[str]:
    """The names of the loops that a replica drives, read from its source."""
    source = textwrap.dedent(inspect.getsource(Runtime._drive))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "drive":
            assert isinstance(node.args[0], ast.Constant)
            yield str(node.args[0].value)


def test_the_simulator_steps_every_loop_of_a_replica(simulated: Database) -> None:
    steps: Counter[str] = Counter()
    for seed in range(5):
        steps += simulate(seed, simulated).steps
    assert set(driven()) == IN_A_LOOP
    assert set(steps) == IN_A_LOOP


def test_every_component_with_a_thread_or_process_is_known() -> None:
    """The simulator replaces it, or it has nothing to do here."""
    source = inspect.getsource(Runtime.start)
    begun = {
        ast.unparse(node.func)
        for node in ast.walk(ast.parse(textwrap.dedent(source)))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".start")
    }
    assert begun == {"self.components.supervisor.start", "self.components.heartbeats.start"}


def test_heartbeats_are_the_production_ones() -> None:
    own = {name for name in vars(SimHeartbeats) if not name.startswith("__")}
    assert own == {"start"}
    assert SimHeartbeats._run is Heartbeats._run
    assert SimHeartbeats.step is Heartbeats.step
