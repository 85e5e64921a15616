"""`import celery --tables`: the rows that django_celery_beat itself wrote."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tomlkit
from click.testing import CliRunner, Result
from psycopg.conninfo import conninfo_to_dict

from cronledger.cli import main
from tests.cli.support.results import refused
from tests.db.support.engine import Ledger

WRITES = """
import json, sys
import django
from django.conf import settings
given = json.loads(sys.argv[1])
settings.configure(
    INSTALLED_APPS=["django_celery_beat"], USE_TZ=True,
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": given["dbname"],
                           "USER": given.get("user", ""), "HOST": given.get("host", ""),
                           "PORT": given.get("port", ""), "PASSWORD": given.get("password", "")}})
django.setup()
from django.core.management import call_command
call_command("migrate", "django_celery_beat", verbosity=0)
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask
six = CrontabSchedule.objects.create(minute="0", hour="6", day_of_week="mon-fri",
                                     timezone="Europe/Berlin")
often = IntervalSchedule.objects.create(every=90, period="seconds")
PeriodicTask.objects.create(name="A report", task="shop.report", crontab=six, args='["eu"]',
                            queue="reports", priority=3, expire_seconds=600)
PeriodicTask.objects.create(name="sync", task="shop.sync", interval=often)
PeriodicTask.objects.create(name="off", task="shop.sync", interval=often, enabled=False)
PeriodicTask.objects.create(name="once", task="shop.sync", interval=often, one_off=True)
"""


@pytest.mark.long
def test_the_rows_of_django_celery_beat_become_jobs_F116(ledger: Ledger, tmp_path: Path) -> None:
    def run() -> Result:
        given = ["import", "celery", "importlib:app", "--tables", ledger.url]
        return CliRunner().invoke(main, given, catch_exceptions=False)

    refused(run(), "django_celery_beat_periodictask", "name the database of the Django project")
    place = json.dumps(conninfo_to_dict(ledger.url))
    subprocess.run([sys.executable, "-c", WRITES, place], check=True, cwd=tmp_path, timeout=120)
    said = run()
    assert said.exit_code == 1, said.output
    jobs = tomlkit.parse(said.stdout).unwrap()["jobs"]
    report = jobs.pop("a-report")
    assert (report["schedule"], report["timezone"]) == ("0 6 * * 1-5", "Europe/Berlin")
    assert report["payload"] == {
        "app": "importlib:app", "task": "shop.report", "args": ["eu"],
        "options": {"queue": "reports", "priority": 3, "expires": 600},
    }  # fmt: skip
    assert [(name, x["schedule"]) for name, x in jobs.items()] == [("sync", "@every 90s")]
    for words in ("off: not imported: the task is disabled", "once: not imported: the task runs"):
        assert words in said.stderr
