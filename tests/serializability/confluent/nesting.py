"""What actions stand in.  Each of them is done once, in their order, whatever they stand in.

Letters after $ are as in actions.py, and $w another name of its own, $c how many actions there are, $i an iterable with at least so
many items, and $a an asynchronous one with just so many.  A line with one of these words alone stands for the actions:

    BODY        all of them
    CASES       each in a branch of its own, by the number $w, from 0
    BETWEEN     each followed by a step of the generator $w
    FUNCTIONS   each in a coroutine of its own, whose names are those of EXPRESSIONS

and AWAITED is an expression that awaits the coroutine $v.
"""

BLOCKS = """\
$w = -1
for $v in $i:
    $w += 1
    log(('item', shown($v)))
    CASES

$w = -1
for $v in $i:
    $w += 1
    log(shown($v))
    CASES

$w = -1
async for $v in $a:
    $w += 1
    log(('item', $v))
    CASES

$w = -1
while $w < $c:
    $w += 1
    CASES
else:
    log('else')

def $v(x=x):
    kept = [x]
    for q in $i:
        kept.append((yield (shown(q), len(kept))))
$w = $v()
log(next($w))
BETWEEN
$w.close()

with Manager(log, $c, True) as $v:
    BODY
    raise Problem($c)

async with Manager(log, $c) as $v:
    BODY

with managed(log, $c) as $v:
    BODY
    log(VARIABLE.get())
    raise Problem($c)

with managed(log, $c) as $v:
    BODY

async with managed_awaited(log, $c):
    BODY

$v = contextlib.AsyncExitStack()
async with $v:
    $v.enter_context(Manager(log, 1)); $v.callback(log, 'popped')
    await $v.enter_async_context(Manager(log, 2))
    BODY

try:
    raise Problem($c)
except Problem as $v:
    $v.n += 1; $w = $v
    BODY
    log((sys.exception() is $w, $v.n))
finally:
    log('finally')

try:
    BODY
    $v = [][$c]
except IndexError as e:
    log(str(e))
finally:
    log(('finally', $c))

try:
    try:
        raise Problem($c)
    finally:
        BODY
except Problem as e:
    log(('passed on', e.n, e.__context__))

try:
    raise ExceptionGroup('g', [Problem($c), ValueError($c), ExceptionGroup('i', [Problem(2)])])
except* Problem as $v:
    log([str(e) for e in $v.exceptions])
    BODY
except* ValueError as $v:
    log(str($v.exceptions[0]))

async def $v(x=x, y=y, it=it):
    BODY
    return len(y)
log(AWAITED is not None)

async def $v(x=x, y=y, it=it):
    BODY
    return len(y)
AWAITED

async def $v(x=x, y=y, it=it):
    BODY
async with asyncio.TaskGroup() as $w:
    $w.create_task($v())
    h.n += 1

async def $v(x=x, y=y, it=it):
    BODY
$w = contextvars.copy_context()
$w.run(VARIABLE.set, $c + 40)
await asyncio.create_task($v(), context=$w)
log(($w[VARIABLE], VARIABLE.get()))

async def $v(x=x, y=y, it=it):
    BODY
async def $w():
    try:
        return await $v()
    finally:
        await asyncio.sleep(0)
        log('done')
await $w()

async with asyncio.timeout(100):
    BODY

$v, $w = $c, y
match [$v, Point(x, $w), {'k': x, 'r': 1}]:
    case [int(q0), Point(x=p, y=[*rest]), {'k': kk, **more}] if q0:
        BODY
        log((q0, p, len(rest), kk, more))

$v = loop.create_future()
$v.add_done_callback(lambda f: log(('callback', f.result())))
BODY
$v.set_result($c)
await $v
await asyncio.sleep(0)

if (x := x + $c) and z.setdefault($c, x):
    BODY

FUNCTIONS
EXPRESSION

FUNCTIONS
EXPRESSION

FUNCTIONS
EXPRESSION""".split("\n\n")

#: in place of AWAITED
AWAITED = """\
await $v()
await Awaitable($v())
await awaited_by_generator($v())
await asyncio.wait_for($v(), 100)
await asyncio.shield($v())
await asyncio.create_task($v())
await asyncio.gather($v(), asyncio.sleep(0))
(await asyncio.wait([asyncio.create_task($v())]))[0].pop().result()
await asyncio.ensure_future($v())
await asyncio.Task($v(), loop=loop, eager_start=True)
""".splitlines()

#: in place of EXPRESSION: how it begins, what it has for each coroutine $v, how it ends
EXPRESSIONS = [
    ("log([await f() for f in [", "$v, ", "]])"),
    ("log({await f(): [next(it, 0)] for f in [", "$v, ", "]})"),
    ("log([(i, q) for f in [", "$v, ", "] if await f() async for i in pairs_awaited(2) for q in pairs(2)])"),
    ("log([next(it, 0), *[1, 2], ", "await $v(), *pairs(2), next(it, 0), ", "])"),
    ("log({'a': next(it, 0), **{'b': 2}, ", "'$v': await $v(), **{'$v!': next(it, 0)}, ", "})"),
    ("log((lambda *a, **k: (a, k))(next(it, 0), *[3], ", "await $v(), ", "*pairs(1), k=next(it, 0), **{'q': 1}))"),
    ("y[-1] = 0; y[-1] ", "+= await $v(); y[-1] ", "+= 1; log(y[-1])"),
    ("log(f'{next(it, 0)}", "-{await $v()}-{next(it, 0):>3}", "')"),
    ("log(sorted({next(it, 0), *[100, 200], ", "await $v(), next(it, 0), ", "}))"),
]
