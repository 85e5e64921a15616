"""Events: what the components of a runner report. `runtime.reactions` lists who reacts to each."""

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Event(Generic[P]):
    """An event of one component, which emits it by a call. Without reactions, nothing happens.

    The reactions run in their order, in the thread that emits the event.
    """

    def __init__(self) -> None:
        self.reactions: tuple[Callable[P, object], ...] = ()

    def then(self, *reactions: Callable[P, object]) -> None:
        """Set the reactions to this event."""
        self.reactions = reactions

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for reaction in self.reactions:
            reaction(*args, **kwargs)
