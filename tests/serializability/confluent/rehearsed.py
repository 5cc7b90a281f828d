"""What a first attempt does that is rolled back: of all this nothing is left, so programs do what they do without.

A line of LINES, and a paragraph of PARAGRAPHS, is an action, as in actions.py; none of them waits.  On upstream's loop there are no attempts.
"""

import sys

if "tornado.stm" in sys.modules:
    from tornado.stm import core

    rehearse = core.rehearse

    @core.trusted
    def give_up():
        raise core.Abort

else:

    def rehearse():
        return False

    def give_up():
        raise AssertionError("nothing is rehearsed here")


LINES = """\
asyncio.current_task().cancel()
for q in asyncio.all_tasks(): q.cancel()
asyncio.current_task().add_done_callback(log)
asyncio.current_task().set_name('never')
asyncio.current_task().uncancel()
loop.stop()
loop.call_soon(log, 'never')
loop.call_soon_threadsafe(log, 'never')
loop.call_later(0, log, 'never'); loop.call_later(0.0001, log, 'never').cancel()
loop.call_at(loop.time(), loop.stop)
loop.run_in_executor(None, log, 'never')
loop.create_task(asyncio.sleep(0)).add_done_callback(log)
loop.create_future().set_exception(Problem($n))
loop.set_exception_handler(None); loop.call_exception_handler({'message': 'never'})
loop.set_task_factory(asyncio.eager_task_factory)
loop.set_debug(True)
IOLoop.current().add_callback(log, 'never')
threading.Thread(target=log, args=('never',)).start()
asyncio.timeout($n).reschedule(0)
print('never')
VARIABLE.set('never')
x, y[:], it = 'never', [], None
z.clear(); log(next(it)); L.clear()
log(list(it)); log(ctr.send($n)); ctr.close()
priv.__dict__.clear()
h.__dict__.clear()
h.__class__ = Problem
h.lock._locked = not h.lock._locked
h.sem.release(); h.cond._lock._locked = False
h.work.put_nowait('never'); h.work.shutdown(immediate=True)
h.prio.put_nowait((0, 'never')); h.prio.shutdown()
h.pool.get_nowait(); h.tq.put_nowait('never'); h.tq.get_nowait()
h.sgen.close(); h.sit.__next__(); next(h.ids); next(h.walk); h.walk.close()
h.rlock.acquire(); h.thread_lock.acquire()
h.err.args = ('never',); h.err.__notes__ = ['never']; h.err.__traceback__ = None
h.ctx.run(h.var.set, 'never')
h.stream.seek(0); h.stream.truncate(); h.lines.close()
h.mv[:] = array.array('l', [9] * 8); h.ba.clear(); h.arr.append(1)
h.mv.release()
h.cached($n); h.cached.cache_clear(); h.fcache.cache_clear()
h.d.clear(); h.od.clear(); h.s.clear(); h.l.clear(); h.dq.clear(); h.weak.clear(); h.keep.clear()
del h.slots.a; del h.data.n; h.ns.__dict__.clear()
shared.COUNT = 'never'; Total.total = 'never'; Total.per = None; del Total.per
Total.__init__ = log; Shared.bump = log; shared.Shared = None; Color.RED._value_ = 9
decimal.getcontext().prec = 3
sys.modules['never'] = sys; sys.path.append('never')
warnings.warn('never')
logging.getLogger('never').error('never')
functools.singledispatch(log).register(int, print)
json.JSONEncoder.default = log
"""

PARAGRAPHS = """\
try:
    raise h.err from Problem($n)
except Problem:
    log(sys.exc_info())

q = loop.create_future()
q.add_done_callback(log); q.set_result(1); q.add_done_callback(log)

q = asyncio.create_task(asyncio.sleep(0))
q.cancel(); q.cancel('never')

async def q(): log('never')
asyncio.create_task(q(), eager_start=True)

q = asyncio.gather(asyncio.sleep(0), loop.create_future())
q.cancel(); log(q)

q = socket.socketpair()
q[0].setblocking(False); q[0].send(b'never'); loop.add_reader(q[1], log); q[1].close()
"""

#: what is done to a channel: a method of it, with a number
CHANNELS = ["if ways: ways[$n % len(ways)].upset($m)"] * 15
