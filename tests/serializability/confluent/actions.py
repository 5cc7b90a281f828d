"""What a task does between two waits: texts in which $n is a number from 1 to 7, $m one from 0 to 5, and $v a name of its own.

A line of LINES is an action, and so is a paragraph of PARAGRAPHS.  The task is number `me`; it has `x`, `y`, `z`, an iterator `it`, a
generator `ctr`, a Shared of its own, `priv`, and the list that `log` appends to; `h` is what all share (shared.py).
"""

import re

# ---- Of the task's own: the result is always the same -----------------------------------------------------------------------

OWN_LINES = """\
await asyncio.sleep(0)
await asyncio.sleep(0.0001)
log(ctr.send($n))
log(ctr.throw(Problem($n)))
log(await asyncio.to_thread(pow, $n, 2))
log(await loop.run_in_executor(None, sum, [x, $n]))
x += $n; y += [x]; z[x % 5] = y[-1]
log(list(zip(it, range($n % 3))))
z.pop($n, None)
log(json.loads(json.dumps({'a': [x, $n], 'b': str(len(y))})))
log(io.StringIO('a b' * $n).read($n))
"""

OWN_PARAGRAPHS = """\
$v = loop.create_future()
loop.call_soon($v.set_result, $n)
log(await $v)

$v = loop.create_future()
loop.call_later(0.0001, $v.set_result, $n)
log(await $v)

$v = loop.create_future()
loop.call_soon_threadsafe($v.set_exception, Problem($n))
try:
    await $v
except Problem as e:
    log(e.n)

$v = []
for q in range($n): loop.call_soon($v.append, q)
await asyncio.sleep(0)
log($v)

async def $v():
    try:
        await asyncio.sleep(100)
    except asyncio.CancelledError:
        log('cancelled')
        raise
$vt = asyncio.create_task($v())
await asyncio.sleep(0)
$vt.cancel()
try:
    await $vt
except asyncio.CancelledError:
    log('seen')

try:
    async with asyncio.timeout(0.0002):
        try:
            await asyncio.sleep(100)
        finally:
            log('left')
except TimeoutError:
    log('timeout')

try:
    await asyncio.wait_for(asyncio.Event().wait(), 0.0002)
except TimeoutError:
    log('timeout')

VARIABLE.set($n)
await asyncio.sleep(0)
log(VARIABLE.get())

x, *$v, y[-1] = [x, 1, 2, $n]
log($v)

$v = asyncio.Barrier(2)
async def $vp(): await $v.wait(); log('past')
await asyncio.gather($vp(), $v.wait())
await asyncio.sleep(0)

$v = asyncio.Queue(1)
async def $vp():
    for q in range($n): await $v.put(q)
    $v.shutdown()
$vt = asyncio.create_task($vp())
try:
    while True:
        log(await $v.get())
except asyncio.QueueShutDown:
    log('shut')

$v = await asyncio.gather(*(asyncio.sleep(0, q) for q in range($n)))
log($v)

$v = [asyncio.create_task(asyncio.sleep(0.0001 * (q % 2), q)) for q in range($n)]
log(sorted([await q for q in asyncio.as_completed($v)]))

try:
    async with asyncio.TaskGroup() as tg:
        tg.create_task(asyncio.sleep(100))
        raise Problem($n)
except* Problem as e:
    log(len(e.exceptions))

async def $v():
    raise Problem($n)
try:
    async with asyncio.TaskGroup() as tg:
        tg.create_task($v()); tg.create_task(asyncio.sleep(100))
except* Problem as e:
    log([q.n for q in e.exceptions])

priv.n += $n; priv.d[$n] = 1; priv.s ^= {$n}; priv.heap.append($n); heapq.heapify(priv.heap)
log((priv.n, list(priv.d), sorted(priv.s), priv.heap))

priv.ba[$n] += 1; priv.mv[$n] += 2; priv.arr[0] += 1; priv.od[$n] = 1; priv.od.move_to_end($n, last=False)
log((bytes(priv.ba), list(priv.arr), list(priv.od)))

$v = pairs_awaited(3)
log(await anext($v))
await asyncio.sleep(0)
log(await anext($v))
await $v.aclose()

$v = h.cached($n)
log($v)

$v = [loop.create_future() for q in range(3)]
for q, f in enumerate($v): f.add_done_callback(lambda f, q=q: log(q))
for f in reversed($v): f.set_result(1)
await asyncio.sleep(0)
await asyncio.wait($v)

$v = loop.create_future()
for q in range(3): $v.add_done_callback(lambda f, q=q: log(q))
await asyncio.sleep(0)
for q in range(3, 5): $v.add_done_callback(lambda f, q=q: log((q, f.result())))
$v.set_result($n)
await asyncio.sleep(0)
await asyncio.wait([$v])

$v = asyncio.create_task(asyncio.sleep(0, $n))
$v.add_done_callback(y.append)
for q in range($m): $v.add_done_callback(lambda f, q=q: log(q))
log($v.remove_done_callback(y.append))
log(await $v)
await asyncio.sleep(0)

$v1, $v2 = socket.socketpair()
with $v1, $v2:
    $v1.setblocking(False); $v2.setblocking(False)
    await loop.sock_sendall($v1, b'abc' * $n)
    log(await loop.sock_recv($v2, 2))
    $v1.close()
    log(len(await loop.sock_recv($v2, 1)))
"""

# ---- Of what all share: whatever the order, all of them together come to the same --------------------------------------------

SHARED_LINES = """\
$v = dict(h.counter); $v[$m] = $v.get($m, 0) + $n; h.counter.clear(); h.counter.update($v)
for q in list(h.d): h.d[q] = h.d.pop(q)
h.taken2.append(next(h.sit))
h.taken2 += [next(h.sit), next(h.sit)]
h.taken2.extend(q for _, q in zip(range($n), h.sit))
h.got3.append(next(h.walk))
h.err.args = (*h.err.args, $n)
h.err.add_note('$n')
await changed_by_generator(h, $n)
log(await yielded_list($n))
await asyncio.to_thread(changed_under_lock, h, $n)
changed_under_lock(h, $n)
h.tasks.add($v := asyncio.create_task(asyncio.sleep(0, $n))); $v.add_done_callback(h.tasks.discard); $v = await $v; h.n += $v
async for $v in pairs_awaited($n): h.n += $v[1]
$v = len([q async for q in pairs_awaited($n) if q[0] % 2]); h.n += $v
for $v in h.tree.setdefault(9, {(9, 9)}).copy(): h.n += $v[0]
h.memo = functools.reduce(lambda a, b: a + b, range($n), 0); h.n += h.fcache($n)
h.objs[$m].n += $n; h.objs[$m], h.objs[0] = h.objs[0], h.objs[$m]
h.text = ''.join([*h.text, '$n'])
h.lines.write('$n ')
h.num = Fraction(h.num) + Fraction(1, $n)
h.dec += decimal.Decimal('0.$n')
h.bits |= 1 << $n + $m * 8
h.od2.setdefault($m, []).append($n); h.od2.move_to_end($m)
h.bump($n)
h.n += $n
h.slots.a += $n; h.slots.b -= 1
h.hooks.n += $n
h.hooks.k$m = getattr(h.hooks, 'k$m', 0) + $n
h.data.n += $n; h.data.items.append(($n, me)); h.data.seen += 1
h.d[$m] = h.d.get($m, 0) + $n
h.dd[$m].append($n)
h.counter[$m] += $n
h.counter.update([$m, $n])
h.od[(me, $m)] = $n; h.od.move_to_end((me, $m))
h.od.pop((me, $m), None)
h.s.add((me, $n))
h.s.discard((me, $n))
h.s ^= {(me, $m)}
h.l.append((me, $n))
h.l += [(me, $m), (me, $n)]
h.dq.append((me, $n))
h.dq.rotate($n); h.dq.appendleft((me, $m))
heapq.heappush(h.heap, ($n, me))
h.ba[$m] = (h.ba[$m] + $n) % 256
h.arr[$m] += $n
h.mv[$m] += $n
h.chain['k$m'] = h.chain.get('k$m', 0) + $n
h.add($n)
h.colors[Color($m % 3 + 1)] += $n
shared.COUNT += 1
Total.per[$m] = Total.per.get($m, 0) + $n
Total.total += $n
h.taken.append(next(h.ids))
h.taken += itertools.islice(h.ids, $n)
await h.work.put((me, $m)); h.got.append(h.work.get_nowait())
h.prio.put_nowait(($n, me)); await asyncio.sleep(0); h.got.append(await h.prio.get())
h.stream.write(f'{me}$n ')
h.tree.setdefault($m, set()).add((me, $n))
h.str += '$n'
$v = Slots(); h.keep.append($v); h.weak[(me, $n, len(L))] = $v
await asyncio.to_thread(lambda: None); h.n += $n
h.d[$m] = operator.add(h.d.setdefault($m, 0), $n)
setattr(h.data, 'n', getattr(h.data, 'n') + $n)
vars(h.ns)['n'] += $n
h.l.sort(); h.l.insert(0, (me, $n))
h.l.append((me, $n)); h.l.reverse(); h.l.extend(q for q in [(me, 0)])
h.s.update((me, q) for q in range($n))
h.s.difference_update({(me, q) for q in range($m)})
h.dd[$m] += [$n]; h.dd = h.dd.copy()
h.d = {**h.d, $m: h.d.get($m, 0) + $n}; h.view = h.d.keys(); h.views = h.d.items()
h.d |= {$m: h.d.get($m, 0) + $n}
"""

SHARED_PARAGRAPHS = """\
$v = sum(h.d.values()) + sum(len(q) for q in h.dd.values())
for q in range(200): $v += q & 1
h.d[$m] = h.d.get($m, 0) + $n

$v = h.n
for q in range(300): $v += q & 0
h.n = $v + $n

$v = list(h.l); $v.append((me, $n))
for q in range(100): $v[-1]
h.l = $v

$v = h.pd; k = [q for q in $v if $v[q] > 0][$m % 2]; $v[k] -= 1; $v['a'] += 1
if sum($v.values()) != 60: h.bad.append('pd2')

h.purses = [q + (i == $m) - (i == 0) for i, q in enumerate(h.purses)]
if sum(h.purses) != 60: h.bad.append('purses2')

h.taken.append(next(h.ids)); h.taken.append(next(h.ids))
if h.taken[-1] != h.taken[-2] + 1: h.bad.append('ids')

h.total = h.sgen.send($n)
h.ssum += $n
if h.total != h.ssum: h.bad.append(('sgen', h.total, h.ssum))

try: h.sgen.throw(Problem($n))
except StopIteration: h.bad.append('stop')
h.ssum -= $n

async with h.lock:
    h.got2.append(await anext(h.sagen))

$v = h.ctx.run(lambda: (h.var.set(h.var.get() + $n), h.var.get())[1])
h.varsum += $n
if $v != h.varsum: h.bad.append('ctx')

try:
    raise h.err
except Problem as e:
    e.n += $n

h.tq.put_nowait((me, $n))
h.tgot.append(await h.tq.get())

with (await h.tlock.acquire()):
    if h.tin: h.bad.append('tin')
    h.tin += 1
    await asyncio.sleep(0)
    h.tin -= 1

$v = loop.create_future()
IOLoop.current().add_callback($v.set_result, $n)
log(await $v)

$v = locks.Event()
IOLoop.current().call_later(0.0001, $v.set)
await $v.wait(timeout=datetime.timedelta(seconds=60))

async with h.cond:
    h.ready[$m] = h.ready.get($m, 0) + 1
    h.cond.notify($n)
    await asyncio.sleep(0)

$v = await h.pool.get()
try:
    if $v in h.out: h.bad.append('pool')
    h.out.add($v); await asyncio.sleep(0); h.out.remove($v)
finally:
    h.pool.put_nowait($v)

$v = asyncio.gather(*[changed_with_problems(h, $n) for q in range($m)], return_exceptions=True)
log(sum(1 for q in await $v if isinstance(q, Problem)))

h.slots.b, h.slots.a = h.slots.b - $n, h.slots.a + $n
if h.slots.a < 0: h.bad.append('slots')

with contextlib.suppress(KeyError): del h.d2[$m]
h.d2[$m] = 1

if (me, $n) in h.s: h.s.remove((me, $n))
else: h.s.add((me, $n))

$v = h.purses; $v[$m] -= $n; $v[($m + $n) % 6] += $n
if sum($v) != 60: h.bad.append('purses')

h.pd['abcdef'[$m]] -= $n; h.pd['abcdef'[($m + $n) % 6]] += $n
if sum(h.pd.values()) != 60: h.bad.append('pd')

async with h.lock:
    if h.inside: h.bad.append('inside')
    h.inside += 1
    $v = h.data.n
    await asyncio.sleep(0)
    h.inside -= 1

async with h.lock:
    $v = h.nested['a']['b'][0]
    h.inside += 1
    await asyncio.sleep(0.0001)
    if h.inside != 1: h.bad.append('inside')
    h.inside -= 1

async with h.sem:
    await asyncio.sleep(0)
    if h.sem._value >= 2: h.bad.append('sem')

with h.rlock:
    h.ns.n += $n

h.work.put_nowait((me, $n))
h.got.append(await h.work.get())

async with h.cond:
    h.called.append($n)
    h.cond.notify_all()
async with h.cond:
    await h.cond.wait_for(lambda: $n in h.called)
    h.called.remove($n)

$v = h.free.pop()
await asyncio.sleep(0)
h.free.append($v)

$v = list(h.view); $v2 = len(h.view)
if len($v) != $v2: h.bad.append('view')

for $v in list(h.views):
    if h.d[$v[0]] != $v[1]: h.bad.append('views')

loop.call_soon(h.bump, $n)
await asyncio.sleep(0)

$v = loop.create_future()
def $vc(): h.d[$m] = h.d.get($m, 0) + $n; $v.set_result(1)
loop.call_later(0.0001, $vc)
await $v

async def $v(): h.counter[$m] += 1; await asyncio.sleep(0); h.counter[$m] += 1
await asyncio.gather($v(), $v(), $v())
"""


def split(lines, paragraphs):
    return lines.splitlines() + paragraphs.rstrip().split("\n\n")


OWN, SHARED = split(OWN_LINES, OWN_PARAGRAPHS), split(SHARED_LINES, SHARED_PARAGRAPHS)

#: what does not wait
AT_ONCE = [action for action in SHARED if not re.search(r"\b(await|async)\b", action)]

#: what is sent, and what is done with what is received, `GOT`
SENT = "$n", "[$n, 'a']", "x", "len(y)", "next(it, 0)", "{'k': $n}"
RECEIVED = split("""\
log(('got', GOT))
log([next(it, 0), *y[-2:], GOT, next(it, 0)])
""", """\
y.append(GOT)
log(y[-1])

x = len(str(GOT))
log(x)

z['$v'] = [next(it, 0), GOT, next(it, 0)]
log(z['$v'])
""")
