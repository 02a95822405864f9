"""The public interface has the names, signatures and messages of torch elastic."""

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import elasticjob.rendezvous as package
from elasticjob.rendezvous import api, dynamic_rendezvous, errors
from elasticjob.rendezvous.api import (
    RendezvousHandler,
    RendezvousHandlerRegistry,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousSettings,
    RendezvousStoreInfo,
    RendezvousTimeout,
)
from elasticjob.rendezvous.registry import get_rendezvous_handler
from elasticjob.rendezvous.store import InMemoryStore

TORCH_NAMES = {
    "RendezvousClosedError",
    "RendezvousConnectionError",
    "RendezvousError",
    "RendezvousGracefulExitError",
    "RendezvousHandler",
    "RendezvousHandlerCreator",
    "RendezvousHandlerRegistry",
    "RendezvousInfo",
    "RendezvousParameters",
    "RendezvousStateError",
    "RendezvousStoreInfo",
    "RendezvousTimeoutError",
    "rendezvous_handler_registry",
}


def test_the_names_of_torch_can_be_imported_from_the_same_places() -> None:
    assert set(package.__all__) == TORCH_NAMES
    assert set(api.__all__) >= TORCH_NAMES
    assert all(getattr(package, name) is getattr(api, name) for name in TORCH_NAMES)
    assert {"RendezvousBackend", "RendezvousTimeout", "RendezvousSettings"} <= set(dynamic_rendezvous.__all__)


def _shape(function: Callable[..., Any]) -> str:
    """A signature without its annotations."""
    signature = inspect.signature(function)
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (
            dynamic_rendezvous.DynamicRendezvousHandler.from_backend,
            "(run_id, store, backend, min_nodes, max_nodes, local_addr=None, timeout=None, "
            "keep_alive_interval=5, keep_alive_max_attempt=3)",
        ),
        (dynamic_rendezvous.create_handler, "(store, backend, params)"),
        (RendezvousTimeout, "(join=None, last_call=None, close=None, heartbeat=None)"),
        (
            RendezvousSettings,
            "(run_id, min_nodes, max_nodes, timeout, keep_alive_interval, keep_alive_max_attempt, "
            "cas_backoff_max_seconds=0.0)",
        ),
        (dynamic_rendezvous.RendezvousBackend.get_state, "(self)"),
        (dynamic_rendezvous.RendezvousBackend.set_state, "(self, state, token=None)"),
        (
            RendezvousParameters,
            "(backend, endpoint, run_id, min_nodes, max_nodes, local_addr=None, **kwargs)",
        ),
        (RendezvousParameters.get, "(self, key, default=None)"),
        (RendezvousParameters.get_as_bool, "(self, key, default=None)"),
        (RendezvousParameters.get_as_int, "(self, key, default=None)"),
        (RendezvousInfo, "(store, rank, world_size, bootstrap_store_info)"),
        (RendezvousStoreInfo, "(master_addr, master_port)"),
        (RendezvousStoreInfo.build, "(rank, store, local_addr=None, server_port=None)"),
        (RendezvousHandlerRegistry.register, "(self, backend, creator)"),
        (RendezvousHandlerRegistry.create_handler, "(self, params)"),
        (api.parse_rendezvous_endpoint, "(endpoint, default_port)"),
        (get_rendezvous_handler, "(params)"),
    ],
)
def test_signatures_are_those_of_torch(function: Callable[..., Any], shape: str) -> None:
    assert _shape(function) == shape


def test_the_errors_are_one_family() -> None:
    for name in TORCH_NAMES:
        if name.endswith("Error"):
            assert issubclass(getattr(errors, name), errors.RendezvousError)


def test_a_handler_does_not_share_its_store_unless_it_says_so() -> None:
    assert set(RendezvousHandler.__abstractmethods__) == {
        "get_backend",
        "get_run_id",
        "is_closed",
        "next_rendezvous",
        "num_nodes_waiting",
        "set_closed",
        "shutdown",
    }
    assert RendezvousHandler.use_agent_store.fget(object()) is False  # type: ignore[attr-defined]


def test_time_outs_have_the_defaults_of_torch() -> None:
    timeout = RendezvousTimeout()
    assert timeout.join == timedelta(seconds=600)
    assert timeout.last_call == timedelta(seconds=30)
    assert timeout.close == timedelta(seconds=30)
    assert timeout.heartbeat == timedelta(seconds=5)


@pytest.mark.parametrize("name", ["join", "last_call", "close", "heartbeat"])
@pytest.mark.parametrize("seconds", [0, -1])
def test_a_time_out_must_be_positive(name: str, seconds: int) -> None:
    with pytest.raises(ValueError, match=rf"^The {name} timeout \({timedelta(seconds=seconds)}\) must be positive\.$"):
        RendezvousTimeout(**{name: timedelta(seconds=seconds)})


def test_time_outs_can_be_set() -> None:
    timeout = RendezvousTimeout(*(timedelta(seconds=seconds) for seconds in (50, 60, 70, 80)))
    assert (timeout.join.seconds, timeout.last_call.seconds, timeout.close.seconds) == (50, 60, 70)
    assert repr(timeout).endswith("heartbeat=datetime.timedelta(seconds=80))")


def _settings(**changes: Any) -> RendezvousSettings:
    fields: dict[str, Any] = {
        "run_id": "run",
        "min_nodes": 1,
        "max_nodes": 2,
        "timeout": RendezvousTimeout(),
        "keep_alive_interval": timedelta(seconds=5),
        "keep_alive_max_attempt": 3,
    }
    return RendezvousSettings(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"run_id": ""}, "The run id must be a non-empty string."),
        ({"run_id": " \n"}, "The run id must be a non-empty string."),
        ({"min_nodes": 0}, r"The minimum number of nodes \(0\) must be greater than zero."),
        (
            {"min_nodes": 3},
            r"The maximum number of nodes \(2\) must be greater than or equal to the minimum number of nodes \(3\).",
        ),
        ({"keep_alive_interval": timedelta(0)}, r"keep-alive interval \(0:00:00\)"),
        ({"keep_alive_max_attempt": 0}, r"attempts \(0\)"),
        ({"cas_backoff_max_seconds": -1.0}, r"\(-1.0\)"),
        ({"cas_backoff_max_seconds": float("nan")}, r"\(nan\)"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _settings(**changes)


def test_a_node_is_given_up_after_so_many_intervals() -> None:
    assert _settings(keep_alive_interval=timedelta(seconds=2), keep_alive_max_attempt=4).expiry == 8


def _params(**config: Any) -> RendezvousParameters:
    return RendezvousParameters("memory", "here", "run", 3, 6, **config)


def test_parameters_keep_what_they_are_given() -> None:
    params = _params(local_addr="10.0.0.1", colour="red")
    assert (params.backend, params.endpoint, params.run_id) == ("memory", "here", "run")
    assert (params.min_nodes, params.max_nodes, params.local_addr) == (3, 6, "10.0.0.1")
    assert params.config == {"colour": "red"}
    assert params.get("colour") == "red"
    assert params.get("shape") is None
    assert params.get("shape", "round") == "round"


@pytest.mark.parametrize("backend", [None, ""])
def test_parameters_need_the_name_of_a_backend(backend: Any) -> None:
    with pytest.raises(ValueError, match="non-empty"):
        RendezvousParameters(backend, "", "run", 1, 1)


@pytest.mark.parametrize(("minimum", "maximum", "culprit"), [(0, 1, 0), (-5, 1, -5), (3, 2, 2)])
def test_parameters_refuse_numbers_of_nodes_that_cannot_be(minimum: int, maximum: int, culprit: int) -> None:
    with pytest.raises(ValueError, match=rf"number of rendezvous nodes \({culprit}\)"):
        RendezvousParameters("memory", "", "run", minimum, maximum)


@pytest.mark.parametrize("value", ["1", "True", "tRue", "T", "t", "yEs", "Y", 1, True])
def test_an_option_can_be_true(value: object) -> None:
    assert _params(option=value).get_as_bool("option") is True


@pytest.mark.parametrize("value", ["0", "False", "faLse", "F", "f", "nO", "N", 0, False])
def test_an_option_can_be_false(value: object) -> None:
    assert _params(option=value).get_as_bool("option") is False


@pytest.mark.parametrize("value", ["01", "Flse", "", "4", "truefalse", 2, -1, 1.0, []])
def test_an_option_can_be_no_truth_value(value: object) -> None:
    with pytest.raises(ValueError, match="'option' does not represent a valid boolean value"):
        _params(option=value).get_as_bool("option")


@pytest.mark.parametrize("value", ["0", "-10", " 4 ", 0, -4, 3])
def test_an_option_can_be_a_whole_number(value: Any) -> None:
    assert _params(option=value).get_as_int("option") == int(value)


@pytest.mark.parametrize("value", ["a", "3b", "", [], float("inf"), float("nan")])
def test_an_option_can_be_no_whole_number(value: object) -> None:
    with pytest.raises(ValueError, match="'option' does not represent a valid integer value"):
        _params(option=value).get_as_int("option")


def test_an_option_that_is_not_given_has_the_default() -> None:
    assert _params().get_as_bool("option") is None
    assert _params().get_as_bool("option", default=True) is True
    assert _params().get_as_int("option") is None
    assert _params().get_as_int("option", default=5) == 5


class _Handler(RendezvousHandler):
    def __init__(self, params: RendezvousParameters) -> None:
        self.params = params

    def get_backend(self) -> str:
        return "mine"

    def next_rendezvous(self) -> RendezvousInfo:
        raise NotImplementedError

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """Nothing to close."""

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self.params.run_id

    def shutdown(self) -> bool:
        return True


def test_a_registered_creator_makes_the_handler() -> None:
    registry, params = RendezvousHandlerRegistry(), RendezvousParameters("mine", "", "run", 1, 1)
    registry.register("mine", _Handler)
    registry.register("mine", _Handler)
    handler = registry.create_handler(params)
    assert isinstance(handler, _Handler)
    assert handler.params is params


def test_a_name_cannot_be_registered_for_two() -> None:
    registry = RendezvousHandlerRegistry()
    registry.register("mine", _Handler)
    with pytest.raises(ValueError, match="'mine' cannot be registered"):
        registry.register("mine", lambda params: _Handler(params))
    with pytest.raises(ValueError, match="non-empty"):
        registry.register("", _Handler)


def test_a_name_that_nobody_registered_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'mine' is not registered. Did you forget to call `register`\?"):
        RendezvousHandlerRegistry().create_handler(RendezvousParameters("mine", "", "run", 1, 1))
    with pytest.raises(ValueError, match="'nobody' is not registered"):
        get_rendezvous_handler(RendezvousParameters("nobody", "", "run", 1, 1))


def test_a_handler_for_another_backend_is_refused() -> None:
    registry = RendezvousHandlerRegistry()
    registry.register("yours", _Handler)
    with pytest.raises(RuntimeError, match="'mine' does not match the requested backend 'yours'"):
        registry.create_handler(RendezvousParameters("yours", "", "run", 1, 1))


def test_the_global_registry_knows_the_state_backends() -> None:
    handler = get_rendezvous_handler(RendezvousParameters("memory", "here", "registered", 1, 2))
    assert isinstance(handler, dynamic_rendezvous.DynamicRendezvousHandler)
    assert handler.get_backend() == "memory"


def test_rank_0_tells_the_others_where_to_meet() -> None:
    store = InMemoryStore()
    told = RendezvousStoreInfo.build(0, store, local_addr="fd00::1")
    assert told.master_addr == "fd00::1"
    assert 0 < told.master_port < 65536
    assert RendezvousStoreInfo.build(1, store) == told
    assert RendezvousStoreInfo.build(0, store, "host", 29500) == RendezvousStoreInfo("host", 29500)


def test_who_waits_in_vain_for_rank_0_is_told() -> None:
    with pytest.raises(LookupError, match="MASTER_ADDR"):
        RendezvousStoreInfo.build(1, InMemoryStore(timedelta(milliseconds=1)))
