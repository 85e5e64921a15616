"""An installed app of Django, for tests in the process of the test."""
