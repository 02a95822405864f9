"""docs/failures.md says what the operator does."""

from tests.unit.operator import failures_reference


def test_the_table_of_ends_is_what_the_operator_does() -> None:
    assert failures_reference.PAGE.read_text() == failures_reference.current(), (
        "run: python -m tests.unit.operator.failures_reference"
    )
