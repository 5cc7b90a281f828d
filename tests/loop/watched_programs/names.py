"""Prints the names of tasks, and what context variables are in them."""

import asyncio
import contextvars

request = contextvars.ContextVar("request", default="none")


async def tell(what):
    before = request.get()
    request.set(what)
    await asyncio.sleep(0)
    return asyncio.current_task().get_name(), before, request.get()


async def main():
    loop = asyncio.get_running_loop()
    print(asyncio.current_task().get_name())
    request.set("main")
    other = contextvars.copy_context()
    other.run(request.set, "other")
    tasks = [
        asyncio.create_task(tell("a")), asyncio.create_task(tell("b"), name="named"), loop.create_task(tell("c")),
        asyncio.create_task(tell("d"), context=other), asyncio.ensure_future(tell("e")),
    ]
    print(*await asyncio.gather(*tasks, tell("f")), sep="\n")
    print(sorted(task.get_name() for task in asyncio.all_tasks()))
    print(other[request], request.get())
    tasks[0].set_name("renamed")
    print(tasks[0].get_name(), tasks[0].get_context()[request])
    seen = []
    done = loop.create_future()
    loop.call_soon(lambda: seen.append(request.get()))
    loop.call_soon(lambda: seen.append(request.get()), context=other)
    loop.call_later(0.001, lambda: done.set_result(request.get()), context=other)
    print(await done, seen, await asyncio.to_thread(request.get))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(tell("g"), name="grouped")
    print(task.result(), request.get())


asyncio.run(main())
