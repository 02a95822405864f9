import asyncio

from elasticjob.operator.waiting import happens


async def test_an_event_that_comes_in_time_is_told() -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_soon(event.set)
    assert await happens(event, within=30.0)


async def test_an_event_that_does_not_come_is_told_too() -> None:
    assert not await happens(asyncio.Event(), within=0.01)


async def test_a_task_that_was_cancelled_can_wait_while_it_puts_things_in_order() -> None:
    told: list[bool] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.append(await happens(asyncio.Event(), within=0.01))

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (told, task.cancelled()) == ([False], True)


async def test_to_be_cancelled_while_waiting_leaves_nothing_behind() -> None:
    event = asyncio.Event()
    task = asyncio.create_task(happens(event, within=30.0))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
