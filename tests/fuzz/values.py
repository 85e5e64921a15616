"""Pools of values: good ones, bad ones, and what breaks programs elsewhere."""

DEEP = 5_000

TEXTS = (
    "", " ", "x", "ä", "a" * 300, "a" * 100_000, "\udcff", "ä\udc80b", "\x1b[31mred", "a\nb",
    "a\tb", "\u202egnp.exe", "💣", "%s%d{}", "'; DROP TABLE cronledger.jobs; --", "--", "-",
    "-1", "\ufeffa", "null", "../x", "a:b", "{}", "\u2028", "٣", "hunter2", "*", "=", "--json",
    "true", "ＦＵＬＬ",
)  # fmt: skip
NAMES = (
    "hourly", "tenants", "manual", "external", "paused", "retired", "unscheduled", "every",
    "odd deep", "odd number", "odd target", "odd zone", "odd schedule", "odd payload",
    "odd scopes", "acme", "globex", "global", "tenant", "default", "mail", "nobody",
    "two words",
)  # fmt: skip
FUNCTIONS = (
    "fuzzed_app:app", "fuzzed_app:nothing", "fuzzed_app:text", "fuzzed_app", "fuzzed_exit:app",
    "fuzzed_error:app", "fuzzed_deep:app", "no_such_module:app", ":", "a:", ":a", "a.b.c:d.e",
    "fuzzed_app:app.jobs", "ä.ö:ü", "os:path",
)  # fmt: skip
INTEGERS = (
    "0", "1", "2", "3", "5", "10", "-1", str(2**31 - 1), str(2**31), str(2**63 - 1), str(2**63),
    str(-(2**63)), str(-(2**63) - 1), "9" * 20, "9" * 5000, "1.5", "1e3", "0x10", " 1", "１",
    "1_000", "+1", "none", "NaN",
)  # fmt: skip
UUIDS = (
    "00000000-0000-0000-0000-000000000000", "3fa85f64-5717-4562-b3fc-2c963f66afa6", "x",
    "3fa85f6457174562b3fc2c963f66afa6", "{3fa85f64-5717-4562-b3fc-2c963f66afa6}",
)  # fmt: skip
INSTANTS = (
    "0001-01-01", "0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00-14:00",
    "0999-12-31T23:59:59Z", "1000-01-01", "1582-10-10", "1900-01-01T00:00",
    "1969-12-31T23:59:59Z", "2026-03-29T02:30", "2026-10-25T02:30", "2026-11-22T03:00:00Z",
    "2026-11-22T03:00:00.000001+05:30", "2026-02-30", "2026-13-01", "2026-W47-7", "20261122",
    "20261122T030000Z", "9998-12-31T23:59:59Z", "9998-12-31T23:59:59-14:00", "9999-01-01",
    "9999-12-31", "9999-12-31T23:59:59.999999", "9999-12-31T23:59:59-23:59", "10000-01-01",
    "now", "today", "infinity", "-infinity", "03:00", "03:00:00", "00:00", "24:00", "23:59:60",
    "3:00", "03:00Z", "1700000000",
)  # fmt: skip
DURATIONS = (
    "0", "0s", "1us", "1ms", "1s", "90s", "5m", "1h", "1h30m", "1d", "2d", "1w", "90d",
    "36525d", "36526d", "99999w", "999999999d", "9999999999d", "-1d", "1.5h", "1", "PT1H",
    "P1D", "P1Y", "P1M", "1 h", "1h1h", "none", "9" * 30 + "s",
)  # fmt: skip
ZONES = (
    "UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia", "Mars/Base", "/etc/localtime",
    "utc", "../../../../etc/passwd", "Etc/GMT+12", "Asia/Kathmandu", "Africa/Monrovia",
    "posixrules", "Factory",
)  # fmt: skip
SPECS = (
    "* * * * *", "*/7 * * * *", "0 0 29 2 *", "0 0 30 2 *", "0 0 29 2 1", "H H * * *",
    "61 * * * *", "* * * * * *", "0 0 0 1 1 * 2030", "@hourly", "@every 90s", "@every 0s",
    "@every 99999w", "@reboot", "@every 1us", "@every 36525d", "@every", "@", "0 0 L * *",
    "0 0 * * 1#5", "1-60/2 * * * *", "0 0 1 1 *", "5-1 * * * *", "*/0 * * * *", "a b c d e",
    "* * * *", "\t* * * * *", "٣ * * * *", "0 2 * * *", "30 2 29 3 *", "* " * 130,
    ",".join(["1"] * 120) + " * * * *", "1,2,3-9/2 * * jan sun",
)  # fmt: skip
JSON = (
    "{}", '{"a": 1}', "null", "1", '"x"', "[]", "[", "{", "nul", "NaN", "Infinity", "1e400",
    "1e5000", "-0", "9" * 400, "9" * 5000, '"\\u0000"', '"\\ud800"', '{"\\u0000": 1}',
    "[" * 90 + "]" * 90, "[" * 101 + "]" * 101, "[" * 3000 + "]" * 3000, "[" * DEEP,
    '{"a":' * DEEP + "1" + "}" * DEEP, '"' + "x" * 65_534 + '"', '"' + "x" * 65_535 + '"',
    '"' + "ä" * 40_000 + '"', '{"a": 1, "a": 2}',
)  # fmt: skip
