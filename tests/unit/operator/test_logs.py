import json
import logging
import sys

from elasticjob.operator.logs import JsonFormatter, TextFormatter


def formatted(**values: object) -> dict[str, object]:
    record = logging.makeLogRecord(
        {"name": "elasticjob.x", "levelname": "INFO", "msg": "hello %s", "args": ("you",)} | values
    )
    entry: dict[str, object] = json.loads(JsonFormatter().format(record))
    return entry


def test_a_record_is_one_json_object() -> None:
    entry = formatted(created=0.5)
    assert entry["message"] == "hello you"
    assert entry["level"] == "INFO"
    assert entry["logger"] == "elasticjob.x"
    assert entry["time"] == "1970-01-01T00:00:00.500+00:00"


def test_extra_fields_become_fields() -> None:
    assert formatted(job="team/digits", epoch=7)["job"] == "team/digits"


def test_what_json_cannot_carry_becomes_text() -> None:
    assert formatted(thing={1})["thing"] == "{1}"


def test_an_exception_is_kept_with_its_trace() -> None:
    try:
        int("broken")
    except ValueError:
        entry = formatted(exc_info=sys.exc_info())
    assert "ValueError: invalid literal" in str(entry["error"])
    assert "\n" not in JsonFormatter().format(logging.makeLogRecord({"msg": "a\nb"}))


def test_people_find_the_extra_fields_after_the_message() -> None:
    record = logging.makeLogRecord({"msg": "state of a run", "job": "team/digits", "round": 3})
    assert TextFormatter("%(message)s").format(record) == "state of a run job=team/digits round=3"
