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

IN_A_LOOP = {
    "alerts", "check_in", "deliveries", "dispatcher", "finisher", "listener", "scopes", "sweeper",
}  # fmt: skip


def driven() -> Iterator[str]:
    """The names of the loops that a replica drives, read from its source."""
    source = textwrap.dedent(inspect.getsource(Runtime._drive))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "drive":
            assert isinstance(node.args[0], ast.Constant)
            yield str(node.args[0].value)


@pytest.fixture(scope="module")
def stepped(simulated: Database) -> tuple[Counter[str], Counter[str]]:
    """How often each loop stepped in a few seeds, and what was logged."""
    steps: Counter[str] = Counter()
    events: Counter[str] = Counter()
    for seed in range(5):
        verdict = simulate(seed, simulated)
        steps += verdict.steps
        events += verdict.events
    return steps, events


@pytest.mark.slow
def test_every_loop_of_a_replica_is_stepped(stepped: tuple[Counter[str], Counter[str]]) -> None:
    assert set(driven()) == IN_A_LOOP
    assert set(stepped[0]) == IN_A_LOOP, "the simulator steps what the replica drives, no less"


def test_every_part_that_runs_by_itself_is_known() -> None:
    """Whatever of the parts has a thread or a `start` is replaced, or has nothing to do here."""
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
