"""The environment of the worker container: what is added, and how it meets what the user wrote. Pure.

One rule decides: the names in `RESERVED` belong to the operator and are refused at admission, all others belong to the
user and arrive unchanged. `PYTHONPATH` alone is shared: the library goes in front of the user's value. Ours come first
in the list, so that the user's values may refer to them (`$(ELASTICJOB_NODE_INDEX)`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from elasticjob.operator import constants
from elasticjob.operator.model import ElasticJob, ElasticJobSpec
from elasticjob.rendezvous import environment as names
from elasticjob.rendezvous.endpoint import ServerEndpoint

PYTHONPATH = "PYTHONPATH"
USER_PYTHONPATH = "ELASTICJOB_USER_PYTHONPATH"
"""Holds the user's PYTHONPATH while that comes from a ConfigMap, a Secret or a field and so cannot be written out."""

UNLIMITED_RESTARTS = "1000000"
"""torchrun counts restarts too. The budget is the job's, kept by the operator, so torchrun's must never run out."""

RESERVED = (
    "PET_RDZV_BACKEND",
    "PET_RDZV_ENDPOINT",
    "PET_RDZV_ID",
    "PET_RDZV_CONF",
    "PET_NNODES",
    "PET_NPROC_PER_NODE",
    "PET_MAX_RESTARTS",
    "PET_LOCAL_ADDR",
    "PET_STANDALONE",
    "PET_NODE_RANK",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
)
"""Refused in the user's worker container, together with every name that begins with `ELASTICJOB_`."""

Variable = Mapping[str, Any]


def worker_environment(
    job: ElasticJob, spec: ElasticJobSpec, endpoint: ServerEndpoint, *, index: int, tls: bool
) -> list[Variable]:
    """What the operator adds, in order."""
    return [
        *_identity(job, spec, endpoint, index, tls),
        *_torchrun(job, spec, endpoint),
    ]


def merged(ours: Sequence[Variable], users: Sequence[Variable], *, inject: bool) -> list[Variable]:
    """Ours, then the user's with the library in PYTHONPATH. No name occurs twice unless the user wrote it twice."""
    reserved = {variable["name"] for variable in ours}
    kept = [variable for variable in users if variable.get("name") not in reserved]
    return [*ours, *(_with_library(kept) if inject else kept)]


def _identity(job: ElasticJob, spec: ElasticJobSpec, endpoint: ServerEndpoint, index: int, tls: bool) -> list[Variable]:
    ca_file = [_value(names.CA_FILE, f"{constants.IDENTITY_PATH}/ca.crt")] if tls else []
    return [
        _value(names.ENDPOINT, str(endpoint)),
        _value(names.RUN_ID, job.uid),
        _value(names.NODE_INDEX, str(index)),
        _field(names.POD_NAME, "metadata.name"),
        _field(names.POD_UID, "metadata.uid"),
        _field(names.POD_IP, "status.podIP"),
        _value(names.TOKEN_FILE, f"{constants.IDENTITY_PATH}/token"),
        *ca_file,
        _value(names.ROUND_FILE, f"{constants.ROUND_PATH}/number"),
        _value(names.MIN_NODES, str(spec.min_nodes)),
        _value(names.MAX_NODES, str(spec.max_nodes)),
        _value(names.NPROC_PER_NODE, spec.nproc_per_node),
    ]


def _torchrun(job: ElasticJob, spec: ElasticJobSpec, endpoint: ServerEndpoint) -> list[Variable]:
    return [
        _value("PET_RDZV_BACKEND", "elasticjob"),
        _value("PET_RDZV_ENDPOINT", endpoint.authority),
        _value("PET_RDZV_ID", job.uid),
        _value("PET_RDZV_CONF", _rendezvous_conf(spec)),
        _value("PET_NNODES", f"{spec.min_nodes}:{spec.max_nodes}"),
        _value("PET_NPROC_PER_NODE", spec.nproc_per_node),
        _value("PET_MAX_RESTARTS", UNLIMITED_RESTARTS),
        _value("PET_LOCAL_ADDR", f"$({names.POD_IP})"),
        _value("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"),
    ]


def _rendezvous_conf(spec: ElasticJobSpec) -> str:
    """The time-outs under torch's names; those of the hosted rendezvous itself reach it by another way."""
    times = spec.rendezvous
    return (
        f"join_timeout={times.join_timeout},last_call_timeout={times.last_call_timeout}"
        f",close_timeout={times.close_timeout},heartbeat_timeout={times.heartbeat_timeout}"
        f",keep_alive_interval={times.keep_alive_interval},keep_alive_max_attempt={times.keep_alive_max_attempts}"
    )


def _with_library(users: Sequence[Variable]) -> list[Variable]:
    result: list[Variable] = []
    found = False
    for variable in users:
        if variable.get("name") != PYTHONPATH:
            result.append(variable)
            continue
        found = True
        result.extend(_joined(variable))
    return result if found else [*result, _value(PYTHONPATH, constants.LIBRARY_PATH)]


def _joined(variable: Variable) -> list[Variable]:
    if "valueFrom" in variable:
        source = {**variable, "name": USER_PYTHONPATH}
        return [source, _value(PYTHONPATH, f"{constants.LIBRARY_PATH}:$({USER_PYTHONPATH})")]
    users = variable.get("value") or ""
    return [_value(PYTHONPATH, f"{constants.LIBRARY_PATH}:{users}" if users else constants.LIBRARY_PATH)]


def _value(name: str, value: str) -> Variable:
    return {"name": name, "value": value}


def _field(name: str, path: str) -> Variable:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
