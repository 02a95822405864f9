import pytest

from elasticjob.rendezvous.wording import counted


@pytest.mark.parametrize(("number", "words"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes")])
def test_a_noun_agrees_with_its_number(number: int, words: str) -> None:
    assert counted(number, "node") == words
