"""A job that is to run."""

from collections.abc import Iterable
from dataclasses import replace

from elasticjob.operator import constants
from elasticjob.operator.actions import Action, CreatePod, CreateService, Plan
from elasticjob.operator.model import ElasticJobSpec, Ledger
from elasticjob.operator.observed import Observed
from elasticjob.operator.plan.drafting import deletions, draft
from elasticjob.operator.plan.finished import wind_up
from elasticjob.operator.plan.orders import run_orders
from elasticjob.operator.plan.protection import protection
from elasticjob.operator.plan.protection import target as protection_target
from elasticjob.operator.pod_facts import PodFacts, read_pods
from elasticjob.operator.pods import build_pod, build_service, node_name
from elasticjob.operator.policies.accounting import NodeEnd, account, current_pods, enter_round, write_off
from elasticjob.operator.policies.budget import budget
from elasticjob.operator.policies.deadlines import Deadline, active_deadline, startup_deadline
from elasticjob.operator.policies.failure_rules import apply_rules
from elasticjob.operator.policies.node_trouble import Losses, lose_nodes
from elasticjob.operator.policies.obstacles import ApiProblem
from elasticjob.operator.policies.pod_end import EndKind
from elasticjob.operator.policies.replacement import Creations, creations
from elasticjob.operator.policies.sizing import choose_indexes
from elasticjob.operator.policies.spare_nodes import pods_wanted
from elasticjob.operator.policies.success import success
from elasticjob.operator.policies.verdict import Verdict
from elasticjob.operator.situation import Situation, Stage, moment
from elasticjob.rendezvous.orders import RunState


def plan_active(observed: Observed, spec: ElasticJobSpec) -> Plan:
    """Count what ended, find out whether the job is over, else bring its pods to what is wanted."""
    situation = _counted(observed, spec)
    deadlines = _deadlines(situation)
    verdict = _verdict(situation, deadlines)
    if verdict is not None:
        over = replace(situation, stage=Stage.FINISHED, verdict=verdict, completion_time=situation.stamp, problems=())
        return wind_up(over)
    return _keep_up(_sized(situation), deadlines)


def _counted(observed: Observed, spec: ElasticJobSpec) -> Situation:
    before = observed.job.status
    read = read_pods(observed.pods, spec.worker_container)
    blank = Situation(observed=observed, spec=spec, stage=Stage.ACTIVE, pods=read, ledger=before.ledger)
    pods = apply_rules(spec.failure_rules, _losses(blank).pods)
    formed = blank.view.round if blank.view else 0
    ledger, ends = account(enter_round(before.ledger, formed), pods, blank.stamp)
    return replace(blank, pods=pods, ledger=ledger, ends=ends, start_time=before.start_time or blank.stamp)


def _losses(situation: Situation) -> Losses:
    """Pods that are lost with their machine. Nobody is, while the rendezvous cannot tell whom it hears from."""
    if situation.view is None or situation.view.held:
        return Losses(pods=situation.pods)
    meeting = situation.spec.rendezvous
    window = float(meeting.keep_alive_interval * meeting.keep_alive_max_attempts)
    return lose_nodes(situation.pods, heard=situation.joined.keys(), window=window, now=situation.observed.now)


def _deadlines(situation: Situation) -> tuple[Deadline, Deadline]:
    spec, now = situation.spec, situation.observed.now
    started = moment(situation.start_time)
    formed = situation.ledger.round > situation.ledger.base_round
    return (
        active_deadline(spec.active_deadline, started=started, now=now),
        startup_deadline(spec.startup_deadline, started=started, now=now, formed=formed),
    )


def _verdict(situation: Situation, deadlines: tuple[Deadline, Deadline]) -> Verdict | None:
    """The first rule that pronounces the end."""
    return (
        _success(situation)
        or _failure_rule(situation)
        or _budget(situation)
        or _rendezvous_failure(situation)
        or deadlines[0].verdict
        or deadlines[1].verdict
        or _invalid_template(situation)
    )


def _success(situation: Situation) -> Verdict | None:
    group, rank_zero = situation.ledger.indexes, None
    view, before = situation.view, situation.before.rendezvous
    if view is not None and view.round > situation.ledger.base_round:
        group = frozenset(node.index for node in view.participants)
        rank_zero = next((node.index for node in view.participants if node.rank == 0), None)
    elif before.round > situation.ledger.base_round:
        group, rank_zero = before.members, before.rank_zero
    return success(
        situation.spec.success_policy, group=group, rank_zero=rank_zero, completed=situation.ledger.completed
    )


def _failure_rule(situation: Situation) -> Verdict | None:
    for one in situation.ends:
        if one.end.fails_job_by:
            message = f"by {one.end.fails_job_by}: {_told(situation, one)}"
            return Verdict(succeeded=False, reason=constants.REASON_FAILURE_RULE, message=message)
    return None


def _told(situation: Situation, one: NodeEnd) -> str:
    code = f" with exit code {one.end.exit_code}" if one.end.exit_code is not None else ""
    head = f"{node_name(situation.job.name, one.index)} ended{code} ({one.end.reason})"
    return f"{head}: {one.end.message}" if one.end.message else head


def _budget(situation: Situation) -> Verdict | None:
    failed = [one for one in situation.ends if one.end.kind is EndKind.FAILED]
    in_place = situation.view.cause if situation.view and situation.view.failed else ""
    last = _told(situation, failed[-1]) if failed else in_place
    in_view = situation.view.worker_failures if situation.view else 0
    return budget(
        max_restarts=situation.spec.max_restarts,
        pod_failures=situation.ledger.failures,
        worker_failures=max(in_view, situation.before.rendezvous.worker_failures),
        last=last,
    )


def _rendezvous_failure(situation: Situation) -> Verdict | None:
    view = situation.heard
    if view is None or not (view.failed or view.state is RunState.CLOSED):
        return None
    message = view.failed or view.cause or "the rendezvous is closed"
    return Verdict(succeeded=False, reason=constants.REASON_RENDEZVOUS_FAILED, message=message)


def _invalid_template(situation: Situation) -> Verdict | None:
    for problem in _open_problems(situation):
        if problem.permanent and problem.target.startswith("Pod/"):
            return Verdict(succeeded=False, reason=constants.REASON_INVALID_TEMPLATE, message=problem.message)
    return None


def _sized(situation: Situation) -> Situation:
    """Choose the nodes. One that is to leave is written off at once: whatever its pod does is on nobody's account."""
    ledger = situation.ledger
    ready = {node.index for node in situation.joined.values()}
    marked = {index for index, pod in situation.current.items() if pod.leaves_first}
    wanted = pods_wanted(size=situation.spec.size, spares=situation.spec.spares)
    chosen = choose_indexes(ledger.indexes, wanted, ready=ready, completed=ledger.completed, marked=marked)
    if chosen == ledger.indexes:
        return situation
    resizes = ledger.resizes + (1 if ledger.indexes else 0)
    smaller = write_off(ledger, ledger.indexes - chosen)
    return replace(situation, ledger=replace(smaller, indexes=chosen, resizes=resizes))


def _keep_up(situation: Situation, deadlines: tuple[Deadline, Deadline]) -> Plan:
    situation = replace(situation, problems=_open_problems(situation))
    wanted = _creations(situation)
    actions: tuple[Action, ...] = (
        *_service(situation),
        *deletions(_past(situation.ledger, situation.pods), "Replaced"),
        *_created(situation, wanted),
        # Last: a budget that is refused must keep no pod from being created.
        *protection(situation),
    )
    delays = (
        wanted.seconds_left,
        _losses(situation).seconds_left,
        *(deadline.seconds_left for deadline in deadlines),
        *_pauses(situation),
    )
    return draft(situation, actions=actions, orders=run_orders(situation), delays=delays)


def _past(ledger: Ledger, pods: Iterable[PodFacts]) -> Iterable[PodFacts]:
    """Pods of attempts that are over, and of nodes that the job does not have."""
    current = current_pods(ledger, pods)
    return (pod for pod in pods if pod.index not in ledger.indexes or current.get(pod.index) is not pod)


def _open_problems(situation: Situation) -> tuple[ApiProblem, ...]:
    """Refused calls that are still wanted: of missing pods and the Service, and deletions of pods that exist."""
    ledger, job = situation.ledger, situation.job.name
    missing = ledger.unfinished - situation.current.keys()
    targets = {situation.target(index) for index in missing}
    targets.update(f"Pod/{pod.name}" for pod in situation.pods)
    targets.add(protection_target(situation))
    if not situation.observed.service:
        targets.add(f"Service/{job}")
    return tuple(problem for problem in situation.observed.problems if problem.target in targets)


def _pauses(situation: Situation) -> Iterable[float]:
    """Seconds until refused calls may be made again. Nothing else may wake the job by then: what was in the way may be
    gone since before the refusal was noted."""
    left = (problem.retry_at - situation.observed.clock for problem in situation.problems)
    return (seconds for seconds in left if seconds > 0)


def _creations(situation: Situation) -> Creations:
    refused = (problem for problem in situation.problems if problem.target.startswith("Pod/"))
    return creations(
        situation.ledger,
        present=situation.current.keys(),
        problems=refused,
        charged_at=moment(situation.ledger.charged_at),
        now=situation.observed.now,
        clock=situation.observed.clock,
    )


def _service(situation: Situation) -> Iterable[Action]:
    if not situation.observed.service and not situation.is_refused(f"Service/{situation.job.name}"):
        yield CreateService(body=build_service(situation.job))


def _created(situation: Situation, wanted: Creations) -> Iterable[Action]:
    for index in wanted.indexes:
        attempt = situation.ledger.ended.get(index, 0)
        body = build_pod(
            situation.job,
            situation.spec,
            situation.observed.facts,
            index=index,
            attempt=attempt,
            avoid=situation.ledger.suspects if attempt else (),
        )
        yield CreatePod(index=index, attempt=attempt, body=body)
