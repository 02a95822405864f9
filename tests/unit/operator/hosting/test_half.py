from elasticjob.operator.hosting.half import HostSwitch
from elasticjob.rendezvous.orders import RunOrders, RunState, RunView
from tests.unit.operator.fakes import FakeHost

ORDERS = RunOrders(run_id="r", namespace="n", job="j", min_nodes=1, max_nodes=1, expected=frozenset(), nodes={})


def test_without_a_host_orders_are_dropped_and_nothing_is_seen() -> None:
    switch = HostSwitch()
    switch.apply(ORDERS)
    switch.forget("r")
    switch.erase(ORDERS)
    assert switch.view("r") is None


def test_everything_reaches_the_host_that_runs() -> None:
    switch, host = HostSwitch(), FakeHost()
    host.views["r"] = RunView(run_id="r", epoch=1, round=1, state=RunState.FORMED)
    switch.connect(host)
    switch.apply(ORDERS)
    assert host.orders == {"r": ORDERS}
    assert switch.view("r") is host.views["r"]
    switch.forget("r")
    assert host.forgotten == ["r"]
    switch.erase(ORDERS)
    assert host.erased == ["r"]


def test_a_host_that_ended_gets_nothing_more() -> None:
    switch, host = HostSwitch(), FakeHost()
    switch.connect(host)
    switch.connect(None)
    switch.apply(ORDERS)
    assert host.orders == {}
