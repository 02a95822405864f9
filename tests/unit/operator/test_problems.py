from elasticjob.operator.cache import JobKey
from elasticjob.operator.errors import Forbidden, Unavailable
from elasticjob.operator.problems import LIFETIME, Problems

KEY = JobKey("team", "digits")
QUOTA = Forbidden("exceeded quota", status=403, reason="Forbidden")


def test_a_refusal_is_news_once_and_counted_after() -> None:
    problems = Problems()
    assert problems.note(KEY, "Pod/a", QUOTA, now=1)
    assert not problems.note(KEY, "Pod/a", QUOTA, now=5)
    (problem,) = problems.of(KEY, now=5)
    assert (problem.message, problem.status, problem.count, problem.at) == ("exceeded quota", 403, 2, 5)


def test_other_words_are_news() -> None:
    problems = Problems()
    problems.note(KEY, "Pod/a", QUOTA, now=1)
    assert problems.note(KEY, "Pod/a", Unavailable("no answer"), now=2)


def test_a_success_solves_the_problem_and_is_news() -> None:
    problems = Problems()
    problems.note(KEY, "Pod/a", QUOTA, now=1)
    assert problems.solve(KEY, "Pod/a")
    assert not problems.solve(KEY, "Pod/a")
    assert problems.of(KEY, now=1) == ()


def test_a_call_that_is_not_made_any_more_is_no_problem_after_a_while() -> None:
    problems = Problems()
    problems.note(KEY, "Pod/a", QUOTA, now=1)
    assert problems.of(KEY, now=1 + LIFETIME)
    assert problems.of(KEY, now=2 + LIFETIME) == ()


def test_jobs_do_not_share_problems() -> None:
    problems = Problems()
    problems.note(KEY, "Pod/a", QUOTA, now=1)
    assert problems.of(JobKey("team", "other"), now=1) == ()
    problems.forget(KEY)
    assert problems.of(KEY, now=1) == ()
