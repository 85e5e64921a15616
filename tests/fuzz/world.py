"""The surroundings of one seed: a directory of odd files, and a ledger with odd rows."""

import os
import random
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from cronledger.sources import apply, toml

PASSWORD = "hunt er2:sy/ll%@ble"
"""Of the DSN. The server trusts its socket and does not ask for it."""
TOKEN = "5ec2e700-70ce-4000-8000"
"""The beginning of every lease_token that the rows below have."""

JOBS = """
[cronledger]
poll_interval = "1s"

[jobs.hourly]
schedule = "0 * * * *"
timezone = "Europe/Berlin"
command = ["true"]

[jobs.tenants]
schedule = "H 3 * * *"
scope_kind = "tenant"
scopes = ["acme", "globex"]
sql = "SELECT 1"

[jobs.every]
schedule = "@every 1s"
command = "true"
overlap = "allow"

[jobs.manual]
command = ["true"]
payload = {day = 1}

[jobs.external]
scope_kind = "tenant"
external = true
queue = "mail"
"""
APP = """
from cronledger import App
app = App("fuzzed")
text = "app"

@app.job("*/5 * * * *")
def work():
    return 1
"""
DEEP_APP = """
from cronledger import App
app = App("deep")
value = []
for _ in range(5000):
    value = [value]
app.job(name="deep", payload=value)(lambda payload: 1)
"""
CRONTAB = """\
SHELL=/bin/sh
MAILTO=root
CRON_TZ=Europe/Berlin
# m h dom mon dow command
*/5 * * * * true
17 3 * * 1 cd /tmp && true % with input
@reboot true
@daily true
61 * * * * true
30 2 29 2 * root true
"""
RUNNING = """
INSERT INTO cronledger.executions (job_name, scope_kind, scope_id, plan_time, status, trigger,
    revision, queue, due_at, attempt, max_attempts, next_attempt_at, runner_id, lease_token,
    heartbeat_at, stale_after, started_at, finished_at, duration_ms, error_code, error_msg, payload,
    result, output, attempts, watermark)
SELECT j.name, j.scope_kind, coalesce(j.scopes[1], 'global'), at, v.status, v.trigger, 1, j.queue,
    at, CASE v.status WHEN 'PENDING' THEN 0 ELSE 1 END, 3, CASE v.status WHEN 'PENDING' THEN at END,
    CASE WHEN v.status <> 'PENDING' THEN 'r1' END,
    CASE WHEN v.status <> 'PENDING' THEN v.token::uuid END,
    CASE WHEN v.status <> 'PENDING' THEN at END,
    CASE WHEN v.status <> 'PENDING' THEN at + interval '1 day' END,
    CASE WHEN v.status <> 'PENDING' THEN at END,
    CASE WHEN v.status NOT IN ('PENDING', 'RUNNING') THEN at END,
    CASE WHEN v.status NOT IN ('PENDING', 'RUNNING') THEN 9223372036854775807 END,
    CASE v.status WHEN 'FAILED' THEN 'handler_error' END,
    CASE v.status WHEN 'FAILED' THEN E'a\\x1b[2Jb\\u202e\\nlines' END,
    v.payload::jsonb, v.payload::jsonb, E'out\\x1b]0;title\\x07put\\n',
    jsonb_build_array(jsonb_build_object('attempt', 1, 'runner_id', 'r0', 'error_code', 'x',
        'lease_token', v.token,
        'started_at', at, 'ended_at', at, 'last_seen', at)),
    9223372036854775807
FROM cronledger.jobs j, (
    SELECT rows.*, '5ec2e700-70ce-4000-8000-' || lpad(n::text, 12, '0') AS token
    FROM (VALUES (1, 'SUCCESS', 'schedule', NULL), (2, 'FAILED', 'manual', '1e400'),
            (3, 'RUNNING', 'enqueue', '1e5000'),
            (4, 'PENDING', 'manual', repeat('[', 3000) || repeat(']', 3000)),
            (5, 'CANCELLED', 'backfill', repeat('[', 150) || repeat(']', 150)),
            (6, 'SUCCESS', 'manual', '"' || repeat('x', 1000000) || '"'),
            (7, 'SUCCESS', 'manual', '-0.000000000000000000000000000001e-300'))
        rows(n, status, trigger, payload)) v,
    LATERAL (SELECT date_trunc('second', cronledger.db_now()) - interval '1 h'
                    + interval '1 us' * v.n) t(at)
WHERE j.name = 'manual'
"""
# As an earlier version stored them, without today's checks.
ODD = """
ALTER TABLE cronledger.jobs DISABLE TRIGGER check_values;
ALTER TABLE cronledger.schedules DISABLE TRIGGER check_new_name;
INSERT INTO cronledger.jobs
    (name, schedule, timezone, handler, target, payload, scope_kind, scopes) VALUES
 ('odd deep', '0 * * * *', 'UTC', 'sql', '{"sql": "SELECT 1"}',
     (repeat('[', 3000) || repeat(']', 3000))::jsonb, 'global', NULL),
 ('odd number', '0 * * * *', 'UTC', 'sql', '{"sql": "SELECT 1"}',
     '[1e5000, 1e400]', 'global', NULL),
 ('odd payload', NULL, 'UTC', 'external', '{"any": ["thing"]}',
     to_jsonb(repeat('ä', 1000000)), 'global', NULL),
 ('odd target', '0 * * * *', 'UTC', 'http', '{"url": 5, "headers": [1]}', NULL, 'global', NULL),
 ('odd zone', '0 * * * *', '../../Mars', 'command', '{"command": "true"}', NULL, 'global', NULL),
 ('odd schedule', '61 * * * *', 'UTC', 'python', '{}', NULL, 'global', NULL),
 ('odd scopes', '0 * * * *', 'UTC', 'external', '{}', NULL, 't',
     ARRAY[['a', 'b'], ['', E'c\\x1b[2J']]);
UPDATE cronledger.jobs SET retry_backoff = '{NULL, -1 h}' WHERE name = 'odd target';
ALTER TABLE cronledger.jobs ENABLE TRIGGER check_values;
ALTER TABLE cronledger.schedules ENABLE TRIGGER check_new_name;
INSERT INTO cronledger.jobs
    (name, schedule, timezone, handler, paused_at, retired_at, starts_at, ends_at) VALUES
 ('paused', '* * * * *', 'UTC', 'external', cronledger.db_now(), NULL, NULL, NULL),
 ('retired', '* * * * *', 'America/St_Johns', 'external', NULL, cronledger.db_now(), NULL, NULL),
 ('unscheduled', NULL, 'UTC', 'external', NULL, NULL, NULL, NULL),
 ('two words', '* * * * * *', 'Pacific/Apia', 'external', NULL, NULL, '1000-01-01Z', '9998-12-31Z');
INSERT INTO cronledger.runners
    (id, host, pid, version, state, queues, slots, stale_after, diagnostics) VALUES
 (E'r\\x1b[2J1', 'h', 2147483647, '1', 'running', '{default,mail}', 5,
     cronledger.db_now() + '1 min', '{"a": [1e400]}'),
 ('r2', 'h', 1, '1', 'draining', '{}', 0, '9998-12-31Z', '{}');
INSERT INTO cronledger.skips (job_name, scope_kind, scope_id, from_plan_time, through_plan_time,
    count, reason, revision) VALUES
 ('hourly', 'global', 'global', '2026-01-01Z', '2026-02-01Z', 9223372036854775807, 'missed', 1);
INSERT INTO cronledger.queues (name, max_running) VALUES ('mail', 2147483647);
"""


class World:
    """`files` are relative to every `cwd`; `ids` are of executions; `bad_urls` reach no ledger."""

    def __init__(self, scratch: Path, url: str, bare_url: str, rng: random.Random) -> None:
        self.scratch = scratch
        self._rng = rng
        self._home = scratch / "here"
        self._home.mkdir()
        self.url = _with_password(url)
        self.bad_urls = _bad_urls(url, bare_url)
        self._make_files()
        self.files = sorted(x.name for x in self._home.iterdir())
        self.files += ["missing.toml", "-", "", "a\udcff.toml", "/dev/stdin"]
        self.stdins = [
            Path("/dev/null"),
            Path("/dev/zero"),
            self._home / "crontab",
            self._home / "random.toml",
        ]
        self._fill(url)
        self.ids = [str(n) for n in range(1, 9)]

    def cwd(self) -> Path:
        """Return a working directory: one with all files, or one that is odd in itself."""
        kind = self._rng.choices(("here", "deleted", "b\udcff", "own"), (90, 2, 3, 5))[0]
        if kind == "here":
            return self._home
        place = self.scratch / kind
        place.mkdir(exist_ok=True)
        if kind == "own":  # with a cronledger.toml that every command reads
            chosen = self._rng.choice(sorted(self._home.glob("*.toml")))
            settings = place / "cronledger.toml"
            settings.unlink(missing_ok=True)
            settings.symlink_to(chosen)
        return place

    def _make_files(self) -> None:
        here, rng = self._home, self._rng
        deep, dotted = "[" * 5000 + "]" * 5000, ".".join("a" * 5000)
        job = '[jobs.x]\ncommand = ["true"]\n'
        texts = {
            "good.toml": JOBS, "crontab": CRONTAB, "empty.toml": "", "fuzzed_app.py": APP,
            "fuzzed_deep.py": DEEP_APP, "fuzzed_exit.py": "raise SystemExit(0)",
            "fuzzed_error.py": "raise ValueError('a\\x1b[2J')",
            "deep.toml": f"{job}payload = {deep}\n", "deepest.toml": f"a = {deep}",
            "dotted.toml": f"{job}payload.{dotted} = 1\n", "tables.toml": f"[jobs.{dotted}]\n",
            "dotted_settings.toml": f"cronledger.{dotted} = 1",
            "levels.toml": f"{job}payload = {'[' * 150}{']' * 150}\n",
            "types.toml": "cronledger = 1\ndefaults = [1]\njobs = 2026-01-01\n",
            "years.toml": f"{job}starts_at = 0001-01-01T00:00:00+14:00\n"
            "ends_at = 9999-12-31T23:59:59-14:00\n",
            "numbers.toml": f"{job}max_running = {'9' * 400}\nretry_jitter = nan\npayload = inf\n",
            "digits.toml": f"{job}payload = {'9' * 5000}\n",
            "names.toml": '[jobs."a\\u001b[2J\\nb"]\nexternal = true\n[jobs.""]\nexternal = true\n',
            "url.toml": '[cronledger]\ndatabase_url = "postgresql://u:hunt%er2@h/d"\n',
            "surrogate.toml": f'{job}description = "\\ud800"\n',
            "nul.toml": f'{job}payload = "\\u0000"\n',
            "policies.toml": f'{job}schedule = "@every 1s"\njitter = "99999w"\n'
            'scopes = [["a"], 1]\ncwd = "x"\n',
            "many.toml": "".join(f"[jobs.j{n}]\nexternal = true\n" for n in range(300)),
        }  # fmt: skip
        for name, text in texts.items():
            (here / name).write_text(text, encoding="utf-8")
        (here / "bom.toml").write_bytes(b"\xef\xbb\xbf" + JOBS.encode())
        (here / "latin1.toml").write_bytes(JOBS.replace("true", "tr\xfce").encode("latin-1"))
        (here / "random.toml").write_bytes(rng.randbytes(500))
        (here / "crontab.bytes").write_bytes(CRONTAB.encode().replace(b"true", b"tr\xff\x00ue"))
        for name, text in (("mutated.toml", JOBS), ("mutated.crontab", CRONTAB)):
            (here / name).write_bytes(_mutated(text.encode(), rng))
        with (here / "huge.toml").open("wb") as file:
            file.truncate(300 * 1024 * 1024)
        (here / "directory.toml").mkdir()
        os.mkfifo(here / "fifo.toml")
        for name, target in {
            "endless.toml": "/dev/zero", "full.toml": "/dev/full", "loop.toml": "loop.toml",
            "terminal.toml": "/dev/tty", "crontabs": ".", "memory.toml": "/proc/self/mem",
        }.items():  # fmt: skip
            (here / name).symlink_to(target)

    def _fill(self, url: str) -> None:
        jobs = toml.load(self._home / "good.toml").jobs
        apply.apply(url, jobs, source="good")
        with psycopg.connect(url, autocommit=True) as c:
            c.execute(RUNNING.encode())
            c.execute(ODD.encode())


def _mutated(data: bytes, rng: random.Random) -> bytes:
    text = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(text))
        match rng.randrange(3):
            case 0:
                text[at] = rng.randrange(256)
            case 1:
                del text[at : at + rng.randint(1, 20)]
            case _:
                text[at:at] = text[at : at + rng.randint(1, 40)]
    return bytes(text)


def _with_password(url: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}password={quote(PASSWORD, safe='')}"


def _bad_urls(url: str, bare_url: str) -> list[str]:
    known = conninfo_to_dict(url)
    host = str(known.get("host") or "/nowhere")
    secret = quote(PASSWORD, safe="")
    return [
        _with_password(bare_url),
        f"postgresql://u:{secret}@127.0.0.1:1/x",
        f"postgresql://u:{PASSWORD}@127.0.0.1:1/x",
        f"postgresql:///no_such_database?host={quote(host, safe='')}&password={secret}",
        f"host=127.0.0.1 port=1 password='{PASSWORD}' options='-c a=b'",
        f"host=127.0.0.1 port=1 password={PASSWORD}",
        f"postgresql://u:{secret}@127.0.0.1:99999/x",
        f"postgresql://u:{secret}@127.0.0.1:1/x?sslmode=perhaps",
        f"postgresql://u:{secret}@127.0.0.1:1/x?connect_timeout=soon",
        f"postgresql://u:{secret}@127.0.0.1:1/x?target_session_attrs=any&gssencmode=disable",
        f"postgresql://u:{secret}\udcff@127.0.0.1:1/x",
        f"postgresql://u:{secret}@[::1/x",
        f"mysql://u:{PASSWORD}@h/x",
        PASSWORD,
        "postgresql://",
        "service=no_such_service",
        f"{url}{'&' if '?' in url else '?'}options=-c%20search_path%3Dx",
    ]
