"""What many callers are told at once is encoded once, and in a form that every client of HTTP reads."""

import gzip
import json

import pytest

from elasticjob.operator.server.answers import FormedAnswers, Gzipped
from elasticjob.rendezvous.protocol import JoinFormed, Member, join_answer_from_json


def formed(nodes: int, *, round: int = 3, rank: int = 0) -> JoinFormed:
    members = (Member(rank=i, index=i, pod=f"digits-{i}-0", address=f"digits-{i}.digits.a.svc") for i in range(nodes))
    return JoinFormed(round=round, rank=rank, members=tuple(members))


@pytest.mark.parametrize("takes_gzip", [False, True])
@pytest.mark.parametrize("nodes", [1, 2, 100, 1000])
def test_each_member_is_told_its_own_rank_and_all_members(nodes: int, takes_gzip: bool) -> None:
    answers, answer = FormedAnswers(), formed(nodes)
    for rank in (0, nodes - 1):
        told = JoinFormed(round=3, rank=rank, members=answer.members)
        encoded = answers.encode(told, gzip=takes_gzip)
        plain = gzip.decompress(encoded.content) if isinstance(encoded, Gzipped) else encoded
        assert join_answer_from_json(json.loads(plain)) == told
        assert json.loads(plain)["worldSize"] == nodes


def test_many_members_take_a_fraction_of_their_bytes() -> None:
    answers, answer = FormedAnswers(), formed(1000)
    compressed, plain = answers.encode(answer, gzip=True), answers.encode(answer, gzip=False)
    assert isinstance(compressed, Gzipped)
    assert isinstance(plain, bytes)
    assert len(compressed.content) < len(plain) / 5


def test_few_members_are_not_worth_it() -> None:
    assert isinstance(FormedAnswers().encode(formed(3), gzip=True), bytes)


def test_rounds_of_equal_members_do_not_mix() -> None:
    answers = FormedAnswers()
    for round in range(1, 200):
        encoded = answers.encode(formed(2, round=round), gzip=False)
        assert isinstance(encoded, bytes)
        assert json.loads(encoded)["round"] == round
