"""Calendars as files and Apps declare them: `[calendars.NAME]`, `App(calendars={…})`.

`sources.calendars` writes a declaration out as dates, because this module reads no files and knows
no holidays.
"""

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from cronledger.rules.field_types import Whole
from cronledger.rules.limits import NAME_PATTERN
from cronledger.rules.names import problem_of
from cronledger.rules.problems import ConfigurationError, Problem, RefusedError, problems_of, shown

Weekday = Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
WEEKDAYS: tuple[str, ...] = get_args(Weekday)
"""The names of the days in the order of `date.weekday()`."""
LONGEST_NAME = 200
"""Most characters of the name of a calendar, or of an excluded day."""
ENDS_SOON = timedelta(days=90)
"""How long before its end `check` and `doctor` warn about a calendar that a job uses."""
_AS_DATE = {"type": "string", "format": "date"}


def _date(value: object) -> object:
    # pydantic would read a number as seconds since 1970.
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        if isinstance(value, str):
            return date.fromisoformat(value)
    except ValueError:
        pass
    raise RefusedError(f"{shown(value)} is not a date", "write it like 2027-12-24")


def _listed(value: object) -> object:
    return [value] if isinstance(value, str | Path) else value


def _dates(value: object) -> object:
    """Return the dates of a list as a table without names."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, list | tuple | set):
        return dict.fromkeys(map(_date, value))
    raise RefusedError("is neither a list nor a table", "put it in brackets: [2027-12-24]")


def _day_name(value: object) -> object:
    if isinstance(value, str) and (problem_of(value) or not 1 <= len(value) <= LONGEST_NAME):
        raise RefusedError("is not a name of a day", "use 1 to 200 printable characters")
    return value


DayName = Annotated[str, BeforeValidator(_day_name)]
Dates = Annotated[
    dict[Annotated[date, BeforeValidator(_date)], DayName | None],
    BeforeValidator(_dates),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": _AS_DATE},
                {
                    "type": "object",
                    "propertyNames": _AS_DATE,
                    "additionalProperties": {"type": "string", "pattern": NAME_PATTERN},
                },
            ]
        }
    ),
]
"""Dates, each with the name of the day, or None."""
Code = Annotated[str, Field(min_length=1, max_length=100)]
Codes = Annotated[tuple[Code, ...], BeforeValidator(_listed)]
Files = Annotated[tuple[Path, ...], BeforeValidator(_listed)]


class CalendarSpec(BaseModel):
    """A calendar: the days on which its jobs do not fire.

    `weekend`, `holidays`, `ics` and `exclude` each add days, and `include` removes days from them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    weekend: tuple[Weekday, ...] = Field(
        (), description='Excluded days of the week, such as `["Saturday", "Sunday"]`.'
    )
    holidays: Codes = Field(
        (),
        description="Public holidays of a country or of a part of it (ISO 3166), such as `DE`, "
        "`DE-BY` or `US-NY`, or of a market, such as `XECB` or `XNYS`; one code, or a list. Needs "
        "the extra `calendars`, whose library `holidays` lists the codes.",
    )
    ics: Files = Field(
        (),
        description="iCalendar file with all-day events, each of which is excluded; one path, or a "
        "list. Paths are relative to the directory of the file. Needs the extra `calendars`.",
    )
    exclude: Dates = Field(
        default_factory=dict,
        description="More excluded dates: a list such as `[2027-12-24]`, or a table with names "
        'such as `{ 2027-12-24 = "Company holiday" }`.',
    )
    include: Dates = Field(
        default_factory=dict,
        description="Dates that are not excluded although `weekend`, `holidays` or `ics` exclude "
        "them, written like `exclude`.",
    )
    through: Annotated[Whole, Field(ge=1000, le=9998)] | None = Field(
        None,
        description="Last year of the calendar. By default five years after the current one. After "
        "it, jobs that use the calendar do not fire, because nobody knows which days are excluded.",
    )

    @field_validator("weekend")
    @classmethod
    def _has_working_days(cls, weekend: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(weekend)) == len(WEEKDAYS):
            raise RefusedError("excludes every day", "leave the working days out")
        return weekend

    @field_validator("include")
    @classmethod
    def _is_not_excluded(
        cls, include: dict[date, str | None], info: ValidationInfo
    ) -> dict[date, str | None]:
        if both := sorted(include.keys() & info.data.get("exclude", {}).keys()):
            raise RefusedError(f"{both[0]} is also in exclude", "remove it from one of them")
        return include

    def definition(self) -> dict[str, Any]:
        """Return the declaration as JSON for the ledger: of an iCalendar file only the name.

        The path may differ between hosts, on which the calendar is nevertheless the same.
        """
        written = self.model_dump(mode="json", exclude_defaults=True)
        if self.ics:
            written["ics"] = [path.name for path in self.ics]
        return written


def read(
    name: str, declared: object, where: str | None = None, directory: Path | None = None
) -> CalendarSpec:
    """Return a calendar, given as such or as the values of a table.

    `directory`: where relative paths begin. None: they are refused. Raises ConfigurationError.
    """
    table = f"calendars.{name}"

    def refused(field: str, value: str | None, message: str, remedy: str) -> ConfigurationError:
        found = Problem(where=where, field=field, value=value, message=message, remedy=remedy)
        return ConfigurationError([found])

    if (problem := name_problem(name)) is not None:
        raise refused(table, None, problem, "use 1 to 200 printable characters")
    if not isinstance(declared, Mapping | CalendarSpec):
        remedy = 'write it like [calendars.de], with holidays = "DE"'
        raise refused(table, None, "is not a table", remedy)
    try:
        spec = CalendarSpec.model_validate(declared)
    except ValidationError as error:
        raise ConfigurationError(
            problems_of(error, where=where, known=CalendarSpec.model_fields, prefix=f"{table}.")
        ) from None
    if directory is not None:
        return spec.model_copy(update={"ics": tuple(directory / path for path in spec.ics)})
    if relative := [path for path in spec.ics if not path.is_absolute()]:
        value = shown(str(relative[0]))
        remedy = f"write it like Path(__file__).with_name({relative[0].name!r})"
        raise refused(f"{table}.ics", value, "is not an absolute path", remedy)
    return spec


def name_problem(name: str) -> str | None:
    """Return why this cannot be the name of a calendar, or None."""
    if not 1 <= len(name) <= LONGEST_NAME:
        return "is empty" if not name else f"is longer than {LONGEST_NAME} characters"
    return problem_of(name)
