"""Random asyncio programs whose results do not depend on the order of their steps: on every loop they come out as on upstream's.

Such a program has a few tasks.  What a task does alone has one result whatever others do; a channel has one sender and one
receiver; and what tasks share is changed by steps that commute, and looked at as a whole when all is over (or by what must hold at
any time).  And now and then a first attempt does something else, which stops the loop or closes a channel, and is rolled back.

    actions.py    what a task does with what is its own, and with what all share
    nesting.py    what actions stand in: loops, context managers, handlers of exceptions, tasks, half-built expressions
    channels.py   ways from one task to another
    rehearsed.py  what is done by an attempt that is rolled back
    suspended.py  what is left in the middle while its task waits: iterators, generators, context managers
    shared.py     what all tasks share
    generator.py  makes a program of all that
    run.py        runs programs and prints what comes out
"""
