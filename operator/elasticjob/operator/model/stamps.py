"""Time stamps of the status: RFC 3339 in UTC with whole seconds, as the API writes `metav1.Time`."""

from datetime import datetime, timezone

_LAST_YEAR = 9900
"""Later stamps are refused: durations of the API, up to 68 years, are added to those that are accepted."""


def format_time(moment: datetime) -> str:
    """The stamp of a moment. The fraction of the second is dropped."""
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """The moment of a stamp, UTC-aware.

    Raises:
        ValueError: The text is no stamp with a time zone, or a moment that is out of range.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"time stamp {text!r} has no time zone")
    try:
        utc = moment.astimezone(timezone.utc)
    except OverflowError as error:
        raise ValueError(f"time stamp {text!r} is out of range") from error
    if utc.year > _LAST_YEAR:
        raise ValueError(f"time stamp {text!r} is out of range: the last year is {_LAST_YEAR}")
    return utc
