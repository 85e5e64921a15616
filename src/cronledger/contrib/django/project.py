"""The jobs of all installed apps: the source `cronledger.contrib.django.project:app`.

Its import sets Django up, unless that was done, and imports the module `jobs` of each installed
app that has one.
"""

import django
from django.apps import apps
from django.utils.module_loading import autodiscover_modules

if not apps.ready:
    django.setup()

from cronledger.contrib.django.jobs import app

__all__ = ["app"]

autodiscover_modules("jobs")
