"""The simulator finds deliberate mistakes. The quick ones here; all of them in `make mutations`."""

import pytest

from tests.marks import first_fast
from tests.simulation.mutations import MUTATIONS, Mutation, hunt
from tests.simulation.support.backend import Database
from tests.simulation.support.mistakes.mutating import function, statement
from tests.simulation.support.mistakes.text_anchors import AnchorError

pytestmark = pytest.mark.tools

FEW_SEEDS = 100
QUICK = [mutation for mutation in MUTATIONS if mutation.quick]


@pytest.mark.timeout(1800)  # a busy machine is slow
@pytest.mark.parametrize("mutation", first_fast(QUICK), ids=lambda mutation: mutation.name)
def test_a_mistake_is_found(simulated: Database, mutation: Mutation) -> None:
    assert hunt(mutation, simulated, FEW_SEEDS) is not None


def test_a_mutation_without_its_anchor_fails(simulated: Database) -> None:
    with pytest.raises(AnchorError), statement("next_due", ("no such text", "")):
        pass
    with pytest.raises(AnchorError), function(simulated, "cancel", ("no such text", "")):
        pass
    with pytest.raises(AnchorError, match="never sent"), statement("next_due"):
        pass
