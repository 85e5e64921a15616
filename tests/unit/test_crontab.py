"""Crontabs as people have them, and what `import crontab` makes of each line."""

import importlib
import subprocess
import tomllib
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronledger.rules import cron
from cronledger.rules.model import Overlap
from cronledger.sources import toml
from cronledger.sources.crontab import (
    Format,
    Imported,
    ImportedJob,
    Note,
    Options,
    detect_format,
    read_crontab,
)
from cronledger.sources.crontab_mail import SENDER, Mail
from cronledger.sources.crontab_toml import convert
from cronledger.sources.crontab_words import job_name, split_percent
from cronledger.sources.imported import render
from tests.unit.support.imports import run_import

# The module: the package may bind its name to a command.
importing = importlib.import_module("cronledger.cli.importing")

DEBIAN = """\
# /etc/crontab: system-wide crontab
SHELL=/bin/sh
#PATH=/usr/local/sbin:/usr/local/bin:/sbin:/bin:/usr/sbin:/usr/bin

# Example of job definition:
# |  |  |  |  .---- day of week (0 - 6) (Sunday=0 or 7)
# *  *  *  *  * user-name command to be executed
17 *\t* * *\troot\tcd / && run-parts --report /etc/cron.hourly
25 6\t* * *\troot\ttest -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }
#
"""
SYSSTAT = """\
PATH=/usr/lib/sysstat:/usr/sbin:/usr/sbin:/usr/bin:/sbin:/bin

# Activity reports every 10 minutes everyday
5-55/10 * * * * root command -v debian-sa1 > /dev/null && debian-sa1 1 1

# Additional run at 23:59 to rotate the statistics file
59 23 * * * root command -v debian-sa1 > /dev/null && debian-sa1 60 2
"""


def read(
    text: str, format: Format = "user", *, file: str = "-", owner: str | None = None, **options: Any
) -> Imported:
    return read_crontab(text, file=file, format=format, owner=owner, options=Options(**options))


def only(text: str, format: Format = "user", **options: Any) -> ImportedJob:
    [job] = read(text, format, **options).jobs
    return job


def dropped(imported: Imported) -> list[Note]:
    return [note for note in imported.notes if note.kind == "dropped"]


def loaded(imported: Imported, options: Options | None = None) -> dict[str, dict[str, Any]]:
    """The jobs of the rendered file, each of them accepted by the reader of files."""
    text = render(convert([imported], options or Options()))
    tables: dict[str, dict[str, Any]] = tomllib.loads(text).get("jobs", {})
    assert not [problem for job in tables.items() for problem in toml.problems_of_table(*job)]
    return tables


def test_each_entry_of_a_real_crontab_becomes_a_job() -> None:
    assert detect_format(DEBIAN) == detect_format(SYSSTAT) == "system"
    imported = read(DEBIAN, "system", file="/etc/crontab")
    assert complete(imported)
    assert {name: table["schedule"] for name, table in loaded(imported).items()} == {
        "cd-run-parts-report-cron-hourly": "17 * * * *",
        "test-x-anacron-cd-run-parts-report-cron-daily": "25 6 * * *",
    }
    assert [job.text.endswith(str(job.command)) for job in imported.jobs] == [True, True]


def test_descriptions_are_the_comment_right_above_and_the_user() -> None:
    first, *_ = read(DEBIAN, "system").jobs
    assert first.description == "(cron user: root)"
    above = [job.description for job in read(SYSSTAT, "system").jobs]
    assert above == [
        "Activity reports every 10 minutes everyday (cron user: root)",
        "Additional run at 23:59 to rotate the statistics file (cron user: root)",
    ]
    assert only("# one\n# two\n* * * * * x").description == "one two"
    assert only("# old way:\n#0 5 * * * y\n* * * * * x").description is None
    assert only("# m h  dom mon dow   command\n# real\n* * * * * x").description == "real"


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("  A = b c  ", "A", "b c"),
        ('A="  b "  ', "A", "  b "),
        ("A='b \"c\"'", "A", 'b "c"'),
        ('"A"=b', "A", "b"),
        ("A=b'c' # no comment", "A", "b'c' # no comment"),
        ('A=""', "A", ""),
        ("A==b=c", "A", "=b=c"),
        *((line, "", "") for line in ('A="b" c', "A='b", "A b=c", "=b")),
    ],
)
def test_a_setting_is_read_with_the_quotes_of_cron_or_dropped_with_a_note(
    line: str, name: str, value: str
) -> None:
    imported = read(f"{line}\r\n0 1 * * * x\r\n")
    assert imported.jobs[0].env == ({name: value} if name else {})
    assert [(note.line, note.text) for note in dropped(imported)] == [(1, line)] * (not name)


def test_shell_home_and_path_apply_to_the_command() -> None:
    job = only("SHELL=/bin/bash\nHOME=/srv/app\nPATH=/bin:$PATH\n@daily run")
    assert job.command == ("/bin/bash", "-c", "run")
    assert job.cwd == "/srv/app"
    assert job.env == {"SHELL": "/bin/bash", "HOME": "/srv/app", "PATH": "/bin:$PATH"}
    table = loaded(read("SHELL=/bin/bash\n@daily run"))["run"]
    assert table["command"] == ["/bin/bash", "-c", "run"]
    relative = read("HOME=app\n@daily run")
    assert relative.jobs[0].cwd is None
    assert not complete(relative)


def test_cron_tz_sets_the_time_zone_of_the_entries_after_it() -> None:
    text = "TZ=Asia/Tokyo\n0 1 * * * a\nCRON_TZ=Europe/Berlin\n0 2 * * * b\nCRON_TZ=\n0 3 * * * c"
    imported = read(text, timezone="America/New_York")
    zones = ["America/New_York", "Europe/Berlin", "America/New_York"]
    assert [job.timezone for job in imported.jobs] == zones
    assert {tuple(job.env.items()) for job in imported.jobs} == {(("TZ", "Asia/Tokyo"),)}
    assert [(note.line, note.kind) for note in imported.notes] == [(n, "info") for n in (1, 3, 5)]
    assert "Debian's cron ignores CRON_TZ" in imported.notes[1].message
    [note] = dropped(read("CRON_TZ=Europe/Berln\n0 2 * * * b"))
    assert note.line == 2
    assert "Europe/Berln" in note.message


def test_mailto_becomes_a_channel_of_the_jobs_after_it() -> None:
    mailed = read(
        "@daily a\nMAILTO=ops\n@daily b\n@daily c | mail $MAILTO\nMAILFROM=cron@example.org\n"
        'MAILTO=" ops@example.org, root , ops@example.org"\n@daily d\nMAILTO=""\n@daily e\n'
    )
    assert complete(mailed)
    assert [note.line for note in mailed.notes] == [2, 6]
    assert [job.mail for job in mailed.jobs] == [
        None, Mail(("ops@localhost",), SENDER), Mail(("ops@localhost",), SENDER),
        Mail(("ops@example.org", "root@localhost"), "cron@example.org"), None,
    ]  # fmt: skip
    assert [dict(job.env) for job in mailed.jobs] == [{}, {}, {"MAILTO": "ops"}, {}, {}]
    for wrong in ("$USER", "a b", "-f x@y; rm", "<ops@example.org>", "ops@"):
        omitted = read(f'MAILTO="{wrong}, ops"\nMAILFROM="{wrong}"\n@daily x')
        assert f"{wrong!r} is not an address; it is omitted" in omitted.notes[0].message
        assert omitted.jobs[0].mail == Mail(("ops@localhost",), SENDER)
        assert not complete(omitted)


def test_each_mailto_of_several_crontabs_is_one_channel(tmp_path: Path) -> None:
    texts = ("MAILTO=ops@example.org\n@daily a\n", "MAILTO=ops@example.org\n@daily b\nMAILTO=OPS@"
             "example.org\n@daily c\nMAILTO=\n@daily d\n")  # fmt: skip
    crontabs = [read(text, file=f"/etc/cron.d/{n}") for n, text in enumerate(texts)]
    text = render(convert(crontabs, Options()))
    document = tomllib.loads(text)
    assert document["channels"] == {
        "mail-ops-example-org": {"kind": "email", "to": ["ops@example.org"], "sender": SENDER},
        "mail-ops-example-org-2": {"kind": "email", "to": ["OPS@example.org"], "sender": SENDER},
    }
    assert {name: job.get("notify") for name, job in document["jobs"].items()} == {
        "0-a": "mail-ops-example-org", "1-b": "mail-ops-example-org",
        "1-c": "mail-ops-example-org-2", "1-d": None,
    }  # fmt: skip
    (tmp_path / "cronledger.toml").write_text(text)
    loaded = toml.load(tmp_path / "cronledger.toml")
    assert loaded.warnings == ()
    assert loaded.channels.keys() == document["channels"].keys()
    assert "Mail is sent when a job begins to fail" in " ".join(text.split("\n# "))


def test_random_delay_becomes_jitter_where_it_can() -> None:
    imported = read(
        "RANDOM_DELAY=30\n0 * * * * hourly\n*/30 * * * * often\nRANDOM_DELAY=0\n@daily d"
    )
    assert [job.jitter for job in imported.jobs] == ["30m", None, None]
    assert [(note.line, note.kind) for note in imported.notes] == [(3, "changed")]
    assert not complete(read("RANDOM_DELAY=some\n@daily d"))
    loaded(imported)


@pytest.mark.parametrize(
    ("entry", "command", "stdin"),
    [
        ("date +\\%F", "date +%F", ""), ("cat\\\\%", "cat\\%", ""), ("cat%", "cat", ""),
        ("cat%a%b", "cat", "a\nb\n"), ("cat%a%", "cat", "a\n"),
        ('cat % a\\%b%it\'s "q" $HOME `x` \\n', "cat ", ' a%b\nit\'s "q" $HOME `x` \\n\n'),
    ],
)  # fmt: skip
def test_a_percent_sign_begins_standard_input(entry: str, command: str, stdin: str) -> None:
    assert split_percent(entry) == (command, stdin.removesuffix("\n").split("\n") if stdin else [])
    imported = read(f"0 1 * * * {entry}")
    assert complete(imported)
    assert bool(imported.notes) == bool(stdin)
    [job] = imported.jobs
    if not stdin:
        assert job.command == command
        return
    assert isinstance(job.command, str)
    ran = subprocess.run(["/bin/sh", "-c", job.command], capture_output=True, check=True)
    assert ran.stdout.decode() == stdin


def test_percent_keeps_the_exit_status_and_the_whole_command() -> None:
    for entry, status, output in (
        ("0 1 * * * cd / && read line; echo $line in $PWD # end; exit 3%given", 0, b"given in /\n"),
        ("SHELL=/bin/bash\n0 1 * * * read -a w; echo ${w[1]}; exit 3%one two", 3, b"two\n"),
    ):
        command = str(only(entry).command)
        ran = subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=False)
        assert (ran.returncode, ran.stdout) == (status, output)


@pytest.mark.parametrize(
    ("written", "schedule"),
    [
        ("*/5  1-5,7\t1 jan-mar Mon", "*/5 1-5,7 1 jan-mar Mon"), ("0 0 * * 5-7", "0 0 * * 5-7"),
        ("0 0 * * 1-1", "0 0 * * 1"), ("5-5/2 * * * *", "5 * * * *"),
        ("~ * * * *", "H(0-59) * * * *"), ("0~29/10 * * * *", "H(0-29)/10 * * * *"),
        ("0 ~6 10~ * ~", "0 H(0-6) H(10-31) * H(0-6)"), ("7~7 * * * *", "7 * * * *"),
        ("@daily", "@daily"), ("@every_minute", "* * * * *"), ("@every_second", "@every 1s"),
        ("@600", "@every 600s"), ("-0 4 * * *", "0 4 * * *"),
    ],
)  # fmt: skip
def test_a_schedule_of_cron_is_translated(written: str, schedule: str) -> None:
    imported = read(f" \t{written}\t command --flag")
    [job] = imported.jobs
    assert (job.schedule, job.command) == (schedule, "command --flag")
    cron.parse(job.schedule, timezone=job.timezone, job=job.name)
    assert complete(imported)
    translated = "~" in written or "@6" in written or written.startswith("-")
    assert bool(imported.notes) == translated


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("@reboot start", "HOST=FILE"), ("@noon x", "@hourly"), ("@0 x", "shorter than a second"),
        ("* * 31 2 * x", "never occurs"), ("5/15 * * * * x", "5-59/15"),
        ("0 22-2 * * * x", "22-23,0-2"), ("0 0 * * fri-sun x", "fri-6,0-sun"),
        ("0,~ * * * * x", "split"), ("30~10 * * * * x", "descending"), ("H * * * * x", "'H'"),
        ("* * * * mon#1 x", "'mon#1'"), ("* * * * * %text", "no command"),
        ("* * * *", "five time fields"), ("* * * * * a\0b", "NUL"),
        ("* * * * * a\udcffb", "UTF-8"), ("* * * * \xa0* x", "not valid in cron"),
    ],
)  # fmt: skip
def test_a_line_that_is_not_imported_has_a_note(line: str, said: str) -> None:
    imported = read(f"\n{line}\r\n* * * * * fine")
    [note] = imported.notes
    assert (note.line, note.text, note.kind) == (2, line, "dropped")
    assert said in note.message
    assert [job.line for job in imported.jobs] == [3]
    text = render(convert([imported], Options()))
    assert f"not imported: {note.message}" in text
    assert list(tomllib.loads(text)["jobs"]) == ["fine"]


def as_user(user: str, command: str) -> tuple[str, ...]:
    return ("runuser", "-u", user, "--", "/bin/sh", "-c", command)


def test_an_entry_of_another_user_is_noted_or_switches_to_it() -> None:
    text = "@daily www-data sweep\n@daily root tidy\n@daily ops:staff/batch heap"
    imported = read(f"{text}\n@daily www-data again", "system", current_user="root")
    assert [(note.line, note.kind) for note in imported.notes] == [(1, "changed"), (3, "changed")]
    users = [f"(cron user: {user})" for user in ("www-data", "root", "ops")]
    assert [job.description for job in imported.jobs[:3]] == users
    switched = read(text, "system", as_user=True)
    assert complete(switched)
    assert switched.jobs[0].command == as_user("www-data", "sweep")
    assert switched.jobs[0].env == {"LOGNAME": "www-data"}
    assert switched.jobs[1].command == "tidy"
    job = only("HOME=/srv\n@daily jo x", "system", as_user=True)
    assert job.command == (*as_user("jo", "x")[:4], "env", "HOME=/srv", "/bin/sh", "-c", "x")
    spool = read("@daily x", owner="alice")
    assert not complete(spool)
    assert complete(read("@daily x", owner="alice", current_user="alice"))
    [note] = dropped(read("0 5 * * * /usr/bin/backup now", "system"))
    assert "--user" in note.message


@pytest.mark.parametrize(
    ("text", "known", "format"),
    [
        ("0 5 * * * root x", [], "system"),
        ("0 5 * * * alice x", [], "user"),
        ("0 5 * * * alice x", ["alice"], "system"),
        ("0 5 * * * backup now", ["backup"], "user"),
        ("0 5 * * * root x\n0 5 * * * y z", [], "user"),
        ("0 5 * * * backup now\n@daily\troot\ty", ["backup"], "system"),
        ("# m h dom mon dow user command\n0 5 * * * alice x", [], "system"),
        ("# m h  dom mon dow   command\n0 5 * * * root x", [], "user"),
        ("", [], "user"),
    ],
)
def test_the_format_is_detected_by_known_users(text: str, known: list[str], format: Format) -> None:
    assert detect_format(text, known) == format


@pytest.mark.parametrize(
    ("file", "command", "name"),
    [
        ("-", "/usr/local/bin/backup.sh --full", "backup-sh-full"),
        ("-", "echo 'unbalanced", "echo-unbalanced"),
        ("-", "'%'", "job"),
        ("/etc/cron.d/e2scrub_all", "/sbin/e2scrub_all -A -r", "e2scrub-all-a-r"),
        ("alice.cron", "x" * 100, ("alice-" + "x" * 100)[:48]),
    ],
)
def test_a_job_is_named_after_its_file_and_command(file: str, command: str, name: str) -> None:
    assert job_name(file, command) == name
    assert job_name(file, command, {name, f"{name}-2"}) == f"{name}-3"
    again = read_crontab("@daily x", file="-", format="user", options=Options(), taken=("x", "x-3"))
    assert again.jobs[0].name == "x-2"


def test_imported_jobs_have_the_policies_and_flags_of_cron() -> None:
    plain = loaded(read("@daily x"))["x"]
    assert plain["catch_up"] == "skip"
    assert plain["overlap"] == "skip"
    assert plain["run_timeout"] == "none"
    flags = read("@daily -n -q quiet\n@daily -s once\n@daily -x other")
    assert [job.command for job in flags.jobs] == ["quiet", "once", "-x other"]
    faithful = loaded(flags, Options(faithful=True)).values()
    assert [table["overlap"] for table in faithful] == ["allow", "skip", "allow"]
    assert {table["run_timeout"] for table in faithful} == {"none"}
    header = "".join(convert([read("@daily x")], Options()).header)
    assert "--faithful" in header


@pytest.mark.parametrize(("schedule", "lease"), [("5 * * * *", "10m"), ("*/5 3 * * *", None)])
def test_a_job_that_fires_at_most_once_an_hour_survives_a_restart_of_the_database(
    schedule: str, lease: str | None
) -> None:
    assert loaded(read(f"{schedule} x"))["x"].get("stale_timeout") == lease


FIELDS = st.lists(
    st.sampled_from(["*", "0", "5-9", "*/7", "1,2", "~", "mon", "L", "99", "3/4", "-", "#"]),
    max_size=7,
).map(" ".join)
SCHEDULES = st.sampled_from(
    ["@daily", "@90", "@reboot", "0 5 * * *", "*/5 * 1-7 * mon", "~ 3 * * *"]
)
COMMANDS = st.text("ab%\\'\" $|&;(){}<>-\t\0\x7f\r\udcff", max_size=20)
ENTRIES = st.tuples(FIELDS | SCHEDULES, COMMANDS).map(" ".join)
COMMENTS = st.text("ab \0\x1b\t", max_size=8).map(lambda text: f" # {text}")
SETTINGS = st.sampled_from([
    "SHELL=/bin/bash", "SHELL=", "HOME = '/srv'", "MAILTO=a,b@c.d", "MAILTO=", "MAILFROM=x$",
    "RANDOM_DELAY=30", 'X="\\ \u0080"', "CRON_TZ=Asia/Tokyo", "CRON_TZ=no/where", "HOME=x", "A.b=1",
])  # fmt: skip


@settings(max_examples=80)
@given(
    lines=st.lists(
        st.tuples(st.just("entry"), ENTRIES)
        | st.tuples(st.just("comment"), COMMENTS)
        | st.tuples(st.just("setting"), SETTINGS),
        max_size=12,
    ),
    format=st.sampled_from(["user", "system"]),
    as_user=st.booleans(),
    newline=st.sampled_from(["\n", "\r\n"]),
)
def test_every_entry_becomes_one_job_or_one_dropped_note(
    lines: list[tuple[str, str]], format: Format, as_user: bool, newline: str
) -> None:
    imported = read(newline.join(line for _, line in lines), format, as_user=as_user)
    entries = [
        number
        for number, (kind, line) in enumerate(lines, 1)
        if kind == "entry" and line.strip(" \t\r") and not line.lstrip(" \t").startswith("#")
    ]
    told = [job.line for job in imported.jobs] + [note.line for note in dropped(imported)]
    assert [line for line in sorted(told) if lines[line - 1][1].strip(" \t\r")] == entries
    assert list(loaded(imported)) == [job.name for job in imported.jobs]


def complete(imported: Imported) -> bool:
    return convert([imported], Options()).complete


@pytest.mark.parametrize(
    ("command", "begins", "contains"),
    [
        ("serve &", "changed: &:", "ended when it exits"),
        ("/usr/bin/nohup serve &", "changed: &, nohup:", "ended when it exits"),
        ("cd /srv && setsid ./serve", "changed: setsid:", "ended when it exits"),
        ("a &>/dev/null", "info: standard output and errors go to /dev/null,", "does not keep it"),
        (
            "a >> /var/log/a.log 2>&1",
            "info: standard output and errors go to /var/log/a.log,",
            "does not keep it",
        ),
        ("{ a; b; } > /dev/null", "info: standard output goes to /dev/null,", "does not keep it"),
        ("flock -n /run/lock/a a", "info: flock -n:", "exits with 1, and so is FAILED"),
        ("flock -xn /run/lock/a -c a", "info: flock -n:", 'overlap = "skip"'),
        ("flock -n -E 0 /run/lock/a a", "info: flock -n:", "is a SUCCESS"),
    ],
)
def test_a_command_that_behaves_differently_is_noted(
    command: str, begins: str, contains: str
) -> None:
    [note] = read(f"@daily {command}\n", current_user="root").notes
    assert f"{note.kind}: {note.message}".startswith(begins)
    assert contains in note.message


@pytest.mark.parametrize(
    "command",
    [
        "a 2>&1", "a & b & wait", 'say "a & b"', r"a \& b", "nohups x", "a > /dev/null && b",
        "a 2>/dev/null", "a > /tmp/x | b", "echo '>/dev/null'", "flock /run/lock/a a -n",
        "flock -w 10 /run/lock/a a",
    ],
)  # fmt: skip
def test_a_command_that_behaves_as_under_cron_has_no_note(command: str) -> None:
    assert read(f"@daily {command}\n", current_user="root").notes == ()


run = partial(run_import, "crontab")


def test_command_reads_directories_as_cron_does(tmp_path: Path) -> None:
    folder = tmp_path / "etc" / "cron.d"
    folder.mkdir(parents=True)
    (folder / "sysstat").write_text(SYSSTAT)
    entries = "@daily nobody-here x\n@reboot nobody-here y\n@daily nobody-here z\n"
    (folder / "custom").write_text(entries)
    (folder / "custom.dpkg-old").write_text("@daily root old\n")
    (folder / ".placeholder").write_text("# nothing\n")
    result = run(folder, "--timezone", "Europe/Berlin")
    assert result.exit_code == 1
    tables = tomllib.loads(result.stdout)["jobs"]
    assert [name.partition("-")[0] for name in tables] == ["custom"] * 2 + ["sysstat"] * 2
    assert {table["timezone"] for table in tables.values()} == {"Europe/Berlin"}
    told = f"{folder / 'custom'}:1: cron runs the entries of nobody-here as"
    assert result.stderr.count(told) == result.stderr.count("cron runs the entries") == 1
    assert f"{folder / 'custom.dpkg-old'}: skipped" in result.stderr
    assert f"{folder / 'sysstat'}: 2 jobs, read in system format" in result.stderr
    assert result.stderr.endswith("2 sources: 4 jobs, 1 entry not imported\n")


@pytest.mark.parametrize(
    ("folder", "options"),
    [("var/spool/cron", []), ("backup/crontabs", []), ("backup/tabs", []), ("web1", ["--user"])],
)
def test_the_file_name_in_a_spool_directory_is_the_user(
    tmp_path: Path, folder: str, options: list[str]
) -> None:
    spool = tmp_path / folder
    spool.mkdir(parents=True)
    (spool / "jo.doe").write_text("@daily root ~/x\n")
    told = run(spool, *options)
    assert f"{spool / 'jo.doe'}:1: cron runs the entries of jo.doe as this user" in told.stderr
    assert tomllib.loads(told.stdout)["jobs"]["jo-root-x"]["command"] == "root ~/x"
    switched = run(spool, *options, "--as-user")
    assert switched.exit_code == 0
    table = tomllib.loads(switched.stdout)["jobs"]["jo-root-x"]
    assert table["command"] == [*as_user("jo.doe", "root ~/x")]


def test_a_known_user_is_the_owner_of_its_file_in_any_directory(tmp_path: Path) -> None:
    (tmp_path / "nobody").write_text("@daily x\n")
    (tmp_path / "certbot").write_text("@daily root y\n")
    tables = tomllib.loads(run(tmp_path, "--as-user").stdout)["jobs"]
    assert tables["nobody-x"]["command"][:3] == ["runuser", "-u", "nobody"]
    assert tables["certbot-y"]["command"] == "y"


def test_crontab_user_names_the_user_of_files_that_name_none(tmp_path: Path) -> None:
    (spool := tmp_path / "crontabs").mkdir()
    (spool / "ann").write_text("@daily x\n")
    (tmp_path / "etc").mkdir()
    (system := tmp_path / "etc" / "crontab").write_text("@daily www-data z\n")
    both = run(spool, "-", system, "--crontab-user", "jo", "--as-user", stdin="@daily y\n")
    tables = tomllib.loads(both.stdout)["jobs"]
    assert [tables[name]["command"][2] for name in ("ann-x", "y", "z")] == ["ann", "jo", "www-data"]
    for wrong in (["--system"], ["--crontab-user", " "]):
        assert run("-", "--crontab-user", "jo", *wrong, stdin="@daily x").exit_code == 2


def test_as_user_is_refused_where_no_user_is_known(tmp_path: Path) -> None:
    (mine := tmp_path / "mine").write_text("@daily x\n")
    for file in ("-", mine):
        refused = run(file, "--as-user", stdin="@daily x\n")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert f"--as-user: the user of FILE '{file}' is unknown" in refused.stderr
        assert "--crontab-user" in refused.stderr
    assert run("-", "--as-user", stdin="# no entries\n").exit_code == 0


def test_command_reads_standard_input_and_can_be_told_the_format() -> None:
    found = run("-", stdin=b"\xef\xbb\xbf@daily root x\r\n")
    assert (found.exit_code, tomllib.loads(found.stdout)["jobs"]["x"]["command"]) == (0, "x")
    forced = run("-", "--user", stdin="@daily root x\n")
    assert tomllib.loads(forced.stdout)["jobs"]["root-x"]["command"] == "root x"
    forced = run("-", "--system", "--as-user", stdin="@daily jo x\n")
    assert tomllib.loads(forced.stdout)["jobs"]["x"]["command"][:3] == ["runuser", "-u", "jo"]


def test_command_reports_lines_that_it_left_out() -> None:
    result = run("-", stdin="MAILTO=me\n@reboot x\n* * * * * caf\xe9\n".encode("latin-1"))
    assert result.exit_code == 1
    assert "-:1: mail is sent only when a job begins to fail" in result.stderr
    assert "-:2: not imported: @reboot runs the job on each host that boots" in result.stderr
    assert "\n    @reboot x\n" in result.stderr
    assert "-:3: not imported: contains a NUL or is not UTF-8" in result.stderr
    assert result.stderr.endswith("-: 0 jobs, 2 entries not imported, read in user format\n")
    assert "jobs" not in tomllib.loads(result.stdout)


def test_command_warns_about_values_that_are_probably_secrets() -> None:
    crontab = "DB_PASSWORD=hunter2\nA=b\n@daily curl https://u:hunter2@h/x\n@daily curl u:$P@h\n"
    result = run("-", stdin=crontab)
    assert result.exit_code == 0
    noted = [line.partition(": ")[0] for line in result.stderr.splitlines()]
    assert noted == ["-:1", "-:3", "-"]
    assert "hunter2" not in result.stderr
    assert "DB_PASSWORD is probably a secret" in result.stderr


def test_command_writes_a_file_and_overwrites_none(tmp_path: Path) -> None:
    output = tmp_path / "cronledger.toml"
    entries = f"{SYSSTAT}SHELL=/bin/bash\nHOME=/srv\nRANDOM_DELAY=5\n~ 4 * * * root cat%in\n"
    assert run("-", "-o", output, stdin=entries).exit_code == 0
    written = output.read_text()
    report, _, cat = toml.load(output).jobs
    assert report.target["env"]["PATH"].startswith("/usr/lib/sysstat:")
    assert report.target["command"].startswith("command -v debian-sa1")
    assert (cat.schedule, cat.jitter) == ("H(0-59) 4 * * *", timedelta(minutes=5))
    assert (cat.target["cwd"], cat.overlap) == ("/srv", Overlap.SKIP)
    refused = run("-", "-o", output, stdin="@daily y")
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert output.read_text() == written
    assert output.stat().st_mode & 0o777 == 0o600
    output.chmod(0o644)
    assert run("-", "-o", output, "--force", stdin="@reboot y").exit_code == 1
    assert output.stat().st_mode & 0o777 == 0o600
    assert "@reboot y" in output.read_text()


def test_wrong_arguments_of_the_command_are_refused(tmp_path: Path) -> None:
    missing = run(tmp_path / "none")
    assert missing.exit_code == 2
    assert str(tmp_path / "none") in missing.stderr
    zone = run("-", "--timezone", "Europe/Berln", stdin="@daily x")
    assert zone.exit_code == 2
    assert "Europe/Berlin" in zone.stderr


@pytest.mark.parametrize(
    ("link", "file", "zone"),
    [
        ("../usr/share/zoneinfo/Asia/Tokyo", "Europe/Berlin\n", "Asia/Tokyo"),
        ("/elsewhere/zone", "Europe/Berlin\n", "Europe/Berlin"),
        ("/elsewhere/zone", "nonsense", "UTC"),
    ],
)
def test_command_finds_the_zone_of_this_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str, file: str, zone: str
) -> None:
    (tmp_path / "localtime").symlink_to(link)
    (tmp_path / "timezone").write_text(file)
    monkeypatch.setattr(importing, "LOCALTIME", tmp_path / "localtime")
    monkeypatch.setattr(importing, "TIMEZONE", tmp_path / "timezone")
    result = run("-", stdin="@daily x")
    assert result.exit_code == 0
    assert tomllib.loads(result.stdout)["jobs"]["x"]["timezone"] == zone
    assert ("is unknown" in result.stderr) == (zone == "UTC")
