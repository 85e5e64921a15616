"""Notes about command lines whose effect in an imported job is another one than under cron."""

import pytest

from cronledger.sources.crontab import Options, read_crontab


def messages(command: str) -> str:
    imported = read_crontab(
        f"@daily {command}\n", file="-", format="user", options=Options(current_user="root")
    )
    return "\n".join(f"{note.kind}: {note.message}" for note in imported.notes)


@pytest.mark.parametrize(
    ("command", "begins"),
    [
        ("serve &", "changed: &:"),
        ("serve > /var/log/serve.log 2>&1 &", "changed: &:"),
        ("a & b", "changed: &:"),
        ("nohup serve", "changed: nohup:"),
        ("/usr/bin/nohup serve &", "changed: &, nohup:"),
        ("cd /srv && setsid ./serve", "changed: setsid:"),
    ],
)
def test_a_command_that_leaves_processes_is_noted(command: str, begins: str) -> None:
    told = messages(command)
    assert told.startswith(begins)
    assert "ended when it exits" in told


@pytest.mark.parametrize(
    "command",
    ["a && b", "a 2>&1", "a >&2", "a & b & wait", "echo '&'", 'say "a & b"', r"a \& b", "nohups x"],
)
def test_a_command_that_leaves_no_process_has_no_such_note(command: str) -> None:
    assert "ended when it exits" not in messages(command)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("a >/dev/null", "info: standard output goes to /dev/null,"),
        ("a 1> /dev/null", "info: standard output goes to /dev/null,"),
        ("a > /dev/null 2>&1", "info: standard output and errors go to /dev/null,"),
        ("a &>/dev/null", "info: standard output and errors go to /dev/null,"),
        ("a >> /var/log/a.log 2>&1", "info: standard output and errors go to /var/log/a.log,"),
        ("a && b >>/var/log/b.log", "info: standard output goes to /var/log/b.log,"),
        ("{ a; b; } > /dev/null", "info: standard output goes to /dev/null,"),
        ("a > /dev/null && b", ""),
        ("a 2>/dev/null", ""),
        ("a 2>> /var/log/errors", ""),
        ("a >&2", ""),
        ("a > /tmp/x | b", ""),
        ("echo '>/dev/null'", ""),
    ],
)
def test_output_that_the_ledger_does_not_receive_is_noted(command: str, told: str) -> None:
    found = messages(command)
    assert found.startswith(told)
    assert ("does not keep it" in found) is bool(told)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("flock -n /run/lock/a a", "exits with 1, and so is FAILED"),
        ("/usr/bin/flock -xn /run/lock/a -c a", "exits with 1, and so is FAILED"),
        ("flock --nonblock /run/lock/a a", "exits with 1, and so is FAILED"),
        ("flock -n -E 0 /run/lock/a a", "is a SUCCESS"),
        ("flock -E 0 -n /run/lock/a a", "is a SUCCESS"),
        ("flock /run/lock/a a -n", ""),
        ("flock -w 10 /run/lock/a a", ""),
    ],
)
def test_a_lock_that_a_run_does_not_wait_for_is_noted(command: str, told: str) -> None:
    found = messages(command)
    assert told in found
    assert ('overlap = "skip"' in found) is bool(told)


def test_cron_tz_has_the_note_that_debian_ignores_it() -> None:
    imported = read_crontab(
        "CRON_TZ=Asia/Tokyo\n@daily x\n", file="-", format="user", options=Options()
    )
    [note] = imported.notes
    assert (note.line, note.kind) == (1, "info")
    assert "Debian's cron ignores CRON_TZ" in note.message
    assert imported.jobs[0].timezone == "Asia/Tokyo"
