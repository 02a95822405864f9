from elasticjob.operator.mirror.event_book import BURST, NOTE_LIMIT, EventBook, EventWrite, cut, event_body
from elasticjob.operator.ports import ObjectReference, Occurrence
from tests.unit.operator.fakes import START, FakeClock, job_reference, occurrence


def enter(book: EventBook, clock: FakeClock, what: Occurrence) -> EventWrite | bool:
    return book.enter(what, now=clock.now(), wall=clock.wall())


def written(outcome: EventWrite | bool) -> EventWrite:
    assert isinstance(outcome, EventWrite)
    return outcome


def test_the_first_occurrence_creates_an_event_about_the_job() -> None:
    write = written(enter(EventBook(instance="pod-1"), FakeClock(), occurrence("Scaled")))
    assert write.create
    assert write.body["regarding"]["uid"] == "job-uid"
    assert write.body["eventTime"] == "2026-05-01T12:00:00.250000Z"
    assert write.body["type"] == "Normal"
    assert write.name.startswith("digits.")


def test_repeats_become_a_series_that_is_written_ever_less_often() -> None:
    book, clock = EventBook(instance="i"), FakeClock()
    first = written(enter(book, clock, occurrence()))
    writes = []
    for _ in range(600):
        clock.advance(1)
        outcome = enter(book, clock, occurrence())
        if isinstance(outcome, EventWrite):
            writes.append(outcome)
    assert {write.name for write in writes} == {first.name}
    assert writes[0].body["series"]["count"] == 2
    assert [write.body["series"]["count"] for write in writes] == [2, 12, 32, 72, 152, 312]


def test_a_series_that_was_silent_for_long_begins_anew() -> None:
    book, clock = EventBook(instance="i"), FakeClock()
    enter(book, clock, occurrence())
    clock.advance(361)
    assert written(enter(book, clock, occurrence())).create


def test_another_note_or_another_job_is_another_event() -> None:
    book, clock = EventBook(instance="i"), FakeClock()
    for what in (occurrence(note="a"), occurrence(note="b"), occurrence(note="a", job=job_reference("other"))):
        assert written(enter(book, clock, what)).create


def test_a_flood_of_normal_events_of_one_job_is_cut_off() -> None:
    book, clock = EventBook(instance="i"), FakeClock()
    outcomes = [enter(book, clock, occurrence(note=str(number))) for number in range(1000)]
    assert sum(outcome is not False for outcome in outcomes) == BURST
    assert written(enter(book, clock, occurrence(job=job_reference("other")))).create


def test_after_a_flood_the_limit_opens_slowly() -> None:
    book, clock = EventBook(instance="i"), FakeClock()
    for number in range(BURST):
        enter(book, clock, occurrence(note=str(number)))
    assert enter(book, clock, occurrence(note="over")) is False
    clock.advance(5)
    assert written(enter(book, clock, occurrence(note="later"))).create
    assert enter(book, clock, occurrence(note="over again")) is False


def test_a_warning_passes_after_a_flood_of_normal_events() -> None:
    book, clock = EventBook(instance="i"), FakeClock()
    for number in range(1000):
        enter(book, clock, occurrence(note=str(number)))
    assert written(enter(book, clock, occurrence("JobFailed", warning=True))).create


def test_the_first_warning_of_a_reason_passes_even_after_a_flood_of_warnings() -> None:
    book, clock = EventBook(instance="i"), FakeClock()
    outcomes = [enter(book, clock, occurrence("NodeLost", note=str(n), warning=True)) for n in range(1000)]
    assert sum(outcome is not False for outcome in outcomes) == BURST
    assert written(enter(book, clock, occurrence("JobFailed", warning=True))).create


def test_an_event_that_was_not_stored_is_created_again() -> None:
    book, clock = EventBook(instance="i"), FakeClock()
    enter(book, clock, occurrence())
    book.forget(occurrence())
    assert written(enter(book, clock, occurrence())).create


def test_a_note_is_cut_to_bytes_at_the_border_of_a_character() -> None:
    note = event_body(occurrence(note="é" * 1000), wall=START, instance="i")["note"]
    assert len(note.encode()) <= NOTE_LIMIT
    assert note.startswith("ééé")
    assert note.endswith("é…")


def test_a_note_with_a_lone_surrogate_can_be_sent() -> None:
    assert cut("a\ud800b", 100) == "a?b"


def test_the_related_pod_is_named_and_an_unknown_uid_is_left_out() -> None:
    pod = ObjectReference(api_version="v1", kind="Pod", namespace="team", name="digits-0-0", uid="")
    what = Occurrence(regarding=job_reference(), reason="R", action="A", note="n", related=pod)
    assert event_body(what, wall=START, instance="i")["related"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "team",
        "name": "digits-0-0",
    }
