"""docs/howto/django.md: a reader's project, made by Django's own commands."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from django import VERSION

from tests.cli.support.daemon import Run
from tests.db.support.django_process import database
from tests.db.support.whole_replica import Whole
from tests.docs.support.pages import ROOT, blocks
from tests.processes import clean_environ

PAGE = ROOT / "docs" / "howto" / "django.md"


class Project:
    """A Django project in a directory, and its `manage.py`."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.environment = {**clean_environ(), "PYTHONPATH": str(directory)}
        self.call("-m", "django", "startproject", "mysite", ".")
        (directory / "shop").mkdir()
        (directory / "shop" / "__init__.py").touch()
        self.add("mysite/settings.py", f"DATABASES = {{'default': {database(url)!r}}}\n")
        for block in blocks(PAGE):
            assert block.remark or block.language == "sh", block
            if block.remark.startswith("file: "):
                self.add(block.remark.removeprefix("file: "), block.text)
        if VERSION < (6, 0):
            self.add("mysite/settings.py", "INSTALLED_APPS += ['django_tasks']\n")

    def add(self, file: str, text: str) -> None:
        if VERSION < (6, 0):
            text = text.replace("from django.tasks", "from django_tasks")
        with (self.directory / file).open("a") as to:
            to.write(text)

    def manage(self, *arguments: str, status: int = 0) -> str:
        return self.call("manage.py", *arguments, status=status)

    def call(self, *arguments: str, status: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.directory, env=self.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path, database_url: str) -> Project:
    return Project(tmp_path, database_url)


BUY = "from shop.views import buy; print(buy(None, 'ann').content.decode())"


@pytest.mark.slow
async def test_the_project_of_the_documentation_runs(project: Project, whole: Whole) -> None:
    checked = json.loads(project.manage("cronledger", "check", "--format", "json"))
    scheduled = {"expire_carts", "count_carts", "shop.tasks.remind"}
    assert {job["job"] for job in checked["jobs"]} >= scheduled
    whole.rows("CREATE TABLE shop_cart (id bigserial, owner text, expires_at timestamptz)")
    whole.rows("INSERT INTO shop_cart (expires_at) VALUES ('-infinity'), ('infinity')")
    manage = (sys.executable, "manage.py", "cronledger")
    run = Run(project.directory, project.environment, "run", program=manage)
    try:
        run.until_event("runner_started")
        expired, counted, reminded = [
            await whole.run(job) for job in ("expire_carts", "count_carts", "shop.tasks.remind")
        ]
        bought = project.manage("shell", "-v", "0", "-c", BUY)
        receipt = await whole.end(int(json.loads(bought)["receipt"]))
    finally:
        run.signal(signal.SIGTERM)
    assert run.end() == 0
    assert (expired["status"], expired["result"]) == ("SUCCESS", 1)
    assert counted["result"].startswith("1 carts at ")
    assert reminded["result"] == "reminded after 7 days"
    assert receipt["result"] == "receipt of cart 3"
    (source,) = whole.rows("SELECT DISTINCT source FROM cronledger.jobs")
    assert source == {"source": "mysite"}
    assert project.manage("cronledger", "jobs", "apply") == "unchanged: 4\n"


@pytest.mark.slow
def test_the_tests_of_the_documentation_run_with_the_runner_of_django_and_with_pytest(
    project: Project, database_url: str
) -> None:
    project.environment["CRONLEDGER_DATABASE_URL"] = "postgresql://127.0.0.1:1/of_the_reader"
    for options in (("--keepdb",), ("--parallel", "2", "--noinput")):
        ran = project.manage("test", *options)
        assert re.search(r"Ran 2 tests in .*\n\nOK\n", ran), ran
    project.environment["CRONLEDGER_TEST_DATABASE_URL"] = database_url
    assert "3 passed" in project.call("-m", "pytest", "shop/tests.py", "test_carts.py")


@pytest.mark.slow
def test_what_no_replica_can_use_is_named_with_a_remedy(project: Project) -> None:
    sqlite = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}}
    project.add("mysite/settings.py", f"DATABASES = {sqlite!r}\n")
    refused = project.manage("cronledger", "run", status=2)
    assert "DATABASES['default'].ENGINE = \"django.db.backends.sqlite3\"" in refused
    assert "set CRONLEDGER_DATABASE_URL" in refused
    assert "cronledger.E001" in project.manage("check", status=1)
    project.add("shop/jobs.py", "\nraise LookupError('shop is closed')\n")
    broken = project.manage("cronledger", "check", status=2)
    assert "LookupError: shop is closed" in broken
    assert 'shop/jobs.py", line' in broken
    project.add("mysite/settings.py", "CRONLEDGER = {'NAM': 'x', 'MIDDLEWARE': 'shop.y'}\n")
    refused = project.manage("check", status=1)
    assert "CRONLEDGER['NAM']" in refused and "did you mean `NAME`" in refused
    assert "CRONLEDGER['NAME']: is not set" in refused
    assert "CRONLEDGER['MIDDLEWARE']" in refused
