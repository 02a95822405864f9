"""Thousands of schedules of the hosted rendezvous in virtual time.

Each seed is one schedule of kills, pauses, partitions, restarts, second agents in a pod, lost and doubled calls,
take-overs by leaders whose clocks differ, and orders, and then quiet.
What must hold is checked at each write and each answer in the world; here, that everything comes to rest. A failure
names its seed: `ELASTICJOB_SIMULATION_FIRST=<seed> ELASTICJOB_SIMULATION_SEEDS=1` runs that one alone.
"""

import os
import random
from collections.abc import Callable
from functools import partial

import pytest

from elasticjob.rendezvous.orders import CloseReason, NodePhase

from .hosted_world import Faults, World

FIRST = int(os.environ.get("ELASTICJOB_SIMULATION_FIRST", "0"))
SEEDS = int(os.environ.get("ELASTICJOB_SIMULATION_SEEDS", "2000"))
CHUNKS = 8
ACTIONS = (
    *("delete", "drain", "fail", "crash", "restart agent", "pause agent", "worker fails", "resize", "burst"),
    *("cut off", "double agent", "double agent", "overreach"),
    *("restart leader", "split leaders", "pause leader", "store fails", "store works"),
)


def disturb(world: World, plan: random.Random) -> None:
    """One thing happens."""
    alive = [
        agent for uid, agent in world.agents.items() if world.pods[uid].phase is NodePhase.ALIVE and not agent.is_dead
    ]
    action = plan.choice(ACTIONS)
    if action == "restart leader":
        world.restart_leader()
    elif action == "split leaders":
        world.split_leaders(plan.uniform(1, 40))
    elif action == "pause leader":
        world.pause(world.leaders[0], plan.uniform(1, 40))
    elif action == "resize":
        world.resize(plan.randint(world.min_nodes, world.max_nodes))
    elif action in ("store fails", "store works"):
        world.cell.fault_rate = plan.uniform(0.1, 0.7) if action == "store fails" else 0.0
    elif action == "burst":
        for agent in plan.sample(alive, len(alive) // 2):
            world.delete(agent.pod.uid)
    elif alive:
        strike(world, plan, action, plan.choice(alive).pod.uid)


def strike(world: World, plan: random.Random, action: str, uid: str) -> None:
    """One thing happens to one pod."""
    agent = world.agents[uid]
    strikes: dict[str, Callable[[], None]] = {
        "delete": lambda: world.delete(uid),
        "drain": lambda: world.drain(uid),
        "fail": lambda: world.fail_pod(uid),
        "crash": lambda: world.crash_silently(uid, for_good=plan.random() < 0.3),
        "restart agent": lambda: world.restart_agent(uid),
        "pause agent": lambda: world.pause(agent, plan.uniform(1, 60)),
        "cut off": lambda: world.cut_off(agent, plan.uniform(10, 60)),
        "double agent": lambda: world.double_agent(uid, plan.randint(1, 20)),
        "overreach": agent.overreach,
        "worker fails": lambda: agent.run(agent.fail),
    }
    strikes[action]()


def make_world(seed: int, plan: random.Random) -> World:
    min_nodes = plan.randint(1, 3)
    max_nodes = min_nodes + plan.randint(0, 4)
    rate = plan.choice((0.0, 0.02, 0.1, 0.3))
    return World(
        seed=seed,
        wanted=plan.randint(min_nodes, max_nodes),
        min_nodes=min_nodes,
        max_nodes=max_nodes,
        faults=Faults(lost_call=rate, lost_answer=rate, double_call=rate, slow_pods=plan.choice((0.5, 3.0, 20.0))),
    )


def play(seed: int) -> World:
    """Run one schedule until it is quiet, and check that it came to rest."""
    plan = random.Random(f"plan {seed}")
    world = make_world(seed, plan)
    for _ in range(plan.randint(2, 12)):
        world.run(plan.expovariate(1 / plan.choice((0.5, 5.0, 20.0))))
        disturb(world, plan)
    if plan.random() < 0.3:
        finish(world, plan)
    if plan.random() < 0.3:
        world.order_close(plan.choice(list(CloseReason)))
    world.quiet()
    world.run(400)
    world.check_settled()
    if world.agents and plan.random() < 0.3:
        world.crash_silently(plan.choice(sorted(world.agents)), for_good=True)
        world.run(200)
        world.check_settled()
    rounds = len(world.cell.rounds)
    world.run(100)
    assert len(world.cell.rounds) == rounds, "rounds go on forming although nothing happens"
    return world


def finish(world: World, plan: random.Random) -> None:
    """Members of the newest round succeed one after the other."""
    world.run(60)
    for agent in [agent for agent in world.agents.values() if agent.is_training]:
        if plan.random() < 0.7:
            world.run(plan.uniform(0, 1))
            agent.run(partial(world.succeed, agent))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_schedule_comes_to_rest_and_keeps_the_invariants(chunk: int) -> None:
    for seed in range(FIRST + chunk, FIRST + SEEDS, CHUNKS):
        try:
            play(seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def test_a_schedule_without_faults_costs_one_write_for_each_round() -> None:
    world = World(seed=2, wanted=4, min_nodes=2, max_nodes=6)
    world.run(60)
    assert [state.complete for state in world.cell.history] == [False, True]
    world.delete("2-1")
    world.run(60)
    assert len(world.cell.history) == 3
    assert {agent.round for agent in world.agents.values()} == {2}
