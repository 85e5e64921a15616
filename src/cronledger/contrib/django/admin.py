"""The ledger in Django's admin, to read. Django imports this module if the admin is installed."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest

from cronledger.contrib.django import models, options


class PageOfRows(ChangeList):
    """One page of a list. It reads the rows of this page and one more, and counts nothing.

    The history has millions of rows, and counting them would read each of them. So the number that
    the page shows reaches to the row after the page.
    """

    def get_queryset(self, request: HttpRequest, *arguments: Any) -> QuerySet:
        """Return the rows, with only the columns that the list shows."""
        shown = super().get_queryset(request, *arguments)
        return shown.only(*self.model_admin.list_display)

    def get_results(self, request: HttpRequest) -> None:
        """Read the page. Raises IncorrectLookupParameters if there is none of its number."""
        start = (self.page_num - 1) * self.list_per_page
        if start < 0:
            raise IncorrectLookupParameters
        rows = list(self.queryset[start : start + self.list_per_page + 1])
        if start > 0 and not rows:
            raise IncorrectLookupParameters
        self.result_list = rows[: self.list_per_page]
        self.result_count = start + len(rows)
        self.paginator = Paginator(range(self.result_count), self.list_per_page)
        self.multi_page = self.paginator.num_pages > 1
        self.full_result_count = None
        self.show_full_result_count = self.can_show_all = self.show_admin_actions = False


class ReadOnlyAdmin(admin.ModelAdmin):
    """Lists rows and shows them. Nobody may add, change or delete any."""

    actions = None
    list_per_page = 50
    sortable_by = ()

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return False."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False."""
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet:
        """Return the rows of the ledger, wherever the routers of the project lead."""
        return super().get_queryset(request).using(options.alias())

    def get_changelist(self, request: HttpRequest, **_: Any) -> type[PageOfRows]:
        """Return the class of the list."""
        return PageOfRows


class ListAdmin(ReadOnlyAdmin):
    """Lists rows that nothing identifies, so that they have no pages of their own."""

    list_display_links = None

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> None:
        """Return None: there is no such page."""
        return


@admin.register(models.Job)
class JobAdmin(ReadOnlyAdmin):
    """The definitions of jobs."""

    list_display = ("name", "schedule", "timezone", "queue", "handler", "source", "retired_at")
    list_filter = ("handler", "overlap", ("retired_at", admin.EmptyFieldListFilter))
    search_fields = ("name", "description")
    ordering = ("name",)


@admin.register(models.JobState)
class JobStateAdmin(ListAdmin):
    """The states of jobs, by scope."""

    list_display = (
        "job_name", "scope_id", "state", "schedule", "next_plan_time", "last_status",
        "last_plan_time", "consecutive_failures", "running", "pending",
    )  # fmt: skip
    list_filter = ("state", "last_status")
    search_fields = ("job_name", "scope_id")
    ordering = ("job_name", "scope_kind", "scope_id")


@admin.register(models.Execution)
class ExecutionAdmin(ReadOnlyAdmin):
    """The executions, the newest rows first."""

    list_display = (
        "id", "job_name", "scope_id", "plan_time", "status", "trigger", "attempt", "started_at",
        "duration_ms", "runner_id", "error_code",
    )  # fmt: skip
    list_filter = ("status", "trigger", "plan_time")
    search_fields = ("job_name",)
    search_help_text = "The id of an execution, or the full name of a job"
    ordering = ("-id",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet, search_term: str
    ) -> tuple[QuerySet, bool]:
        """Return the execution with this id, or those of this job, which an index finds."""
        term = search_term.strip()
        if term.isdecimal():
            return queryset.filter(id=term), False
        return (queryset.filter(job_name=term) if term else queryset), False


@admin.register(models.Skip)
class SkipAdmin(ListAdmin):
    """The plan_times that did not run, the latest first."""

    list_display = (
        "job_name", "scope_id", "reason", "count", "from_plan_time", "through_plan_time",
        "blocked_by",
    )  # fmt: skip
    list_filter = ("reason", "from_plan_time")
    search_fields = ("job_name__exact",)
    search_help_text = "The full name of a job"
    ordering = ("-from_plan_time", "job_name", "scope_kind", "scope_id")


@admin.register(models.Overdue)
class OverdueAdmin(ListAdmin):
    """What is due and has not started, the longest overdue first."""

    list_display = ("job_name", "scope_id", "plan_time", "overdue_for", "reason", "detail")
    search_fields = ("job_name", "reason")
    ordering = ("due_at", "job_name", "scope_kind", "scope_id")


@admin.register(models.Runner)
class RunnerAdmin(ReadOnlyAdmin):
    """The replicas and workers."""

    list_display = ("runner_id", "host", "state", "queues", "slots", "running", "heartbeat_at")
    list_filter = ("state",)
    search_fields = ("runner_id", "host")
    ordering = ("runner_id",)
