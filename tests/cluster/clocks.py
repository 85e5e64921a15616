"""Replicas whose clock is wrong: libfaketime, preloaded into the process."""

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path


def library() -> Path | None:
    """libfaketime's shared object, from the pip package of that name."""
    spec = importlib.util.find_spec("libfaketime") if sys.platform == "linux" else None
    roots = (spec.submodule_search_locations if spec is not None else None) or []
    return next((x for root in roots for x in Path(root).glob("**/libfaketime.so.1")), None)


class FakeClock:
    """What a process of `environ` sees is `seconds` beside the truth; CLOCK_MONOTONIC is not."""

    def __init__(self, file: Path, seconds: float) -> None:
        found = library()
        assert found is not None, "there is no libfaketime: pip install libfaketime"
        self._library = found
        self._file = file
        self.jump(seconds)

    @property
    def environ(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
            "NO_FAKE_STAT": "1",
        }

    def jump(self, seconds: float) -> None:
        """Within a second the clock is `seconds` beside the truth."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds:+.0f}\n")
        fresh.replace(self._file)


def forget(pids: Iterable[int]) -> None:
    """What libfaketime left of processes that were killed."""
    for pid in pids:
        for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
            (Path("/dev/shm") / name).unlink(missing_ok=True)
