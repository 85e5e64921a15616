"""F100: the id of the boot of this host, and the time since then."""

from pathlib import Path

import pytest

from cronledger.engine.maintenance import boot
from cronledger.engine.maintenance.boot import boot_of


def test_the_boot_is_that_of_the_kernel_or_the_start_with_an_id(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own, kernel = boot_of("mine"), boot_of(None)
    assert own is not None and kernel is not None
    assert own.id == "mine"
    assert len(kernel.id) == 36
    assert own.uptime <= own.uptime < kernel.uptime <= kernel.uptime
    monkeypatch.setattr(boot, "_KERNEL", tmp_path / "boot_id")
    assert boot_of(None) is None
