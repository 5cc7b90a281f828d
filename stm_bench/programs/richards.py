"""Richards: an operating system in which six tasks of different priority pass packets (after Martin Richards, 1981).

A worker fills packets and gives them to two handlers in turn; a handler hands each character of a packet to its device;
an idle task releases the devices in a pseudo-random order.  How often a packet was queued and a task held is known.
"""

from collections import deque

ROUNDS = 5

IDLE_STEPS = 1000
QUEUED, HELD = 2322, 928  # for so many steps of the idle task
PACKET_SIZE = 4
WORK, DEVICE = "work", "device"


class Packet:
    """Work for a handler, or one character for a device; `address`: the task it goes to, then that it came from."""

    def __init__(self, address, kind):
        self.address = address
        self.kind = kind
        self.position = 0
        self.characters = [0] * PACKET_SIZE


class Task:
    """A task control block; subclasses say what a step does.

    A step returns the task that the scheduler looks at next.
    """

    def __init__(self, scheduler, name, priority, packets=(), waiting=True):
        self.scheduler = scheduler
        self.name = name
        self.priority = priority
        self.packets = deque(packets)
        self.waiting = waiting
        self.held = False
        self.below = None  # the task of the next lower priority
        scheduler.insert(self)

    @property
    def blocked(self):
        return self.held or (self.waiting and not self.packets)

    def resume(self):
        if self.waiting:
            self.waiting = False
            return self.step(self.packets.popleft())
        return self.step(None)

    def step(self, packet):
        raise NotImplementedError

    def receive(self, packet, sender):
        """Takes a packet; runs before the sender only if it was idle and is more urgent."""
        urgent = not self.packets and self.priority > sender.priority
        self.packets.append(packet)
        return self if urgent else sender


class Idle(Task):
    def __init__(self, scheduler, steps):
        super().__init__(scheduler, "idle", 0, waiting=False)
        self.steps = steps
        self.bits = 1

    def step(self, packet):
        self.steps -= 1
        if self.steps == 0:
            return self.scheduler.hold()
        odd = self.bits & 1
        self.bits >>= 1
        if odd:
            self.bits ^= 0xD008
            return self.scheduler.release("device B")
        return self.scheduler.release("device A")


class Worker(Task):
    def __init__(self, scheduler):
        super().__init__(scheduler, "worker", 1000, [Packet("worker", WORK) for _ in range(2)])
        self.customer = "handler A"
        self.letter = 0

    def step(self, packet):
        if packet is None:
            return self.scheduler.wait()
        self.customer = "handler B" if self.customer == "handler A" else "handler A"
        packet.address = self.customer
        packet.position = 0
        for i in range(PACKET_SIZE):
            self.letter = self.letter % 26 + 1
            packet.characters[i] = ord("A") + self.letter - 1
        return self.scheduler.send(packet)


class Handler(Task):
    def __init__(self, scheduler, name, priority, device):
        super().__init__(scheduler, name, priority, [Packet(device, DEVICE) for _ in range(3)])
        self.work = deque()
        self.idle_packets = deque()

    def step(self, packet):
        if packet is not None:
            (self.work if packet.kind == WORK else self.idle_packets).append(packet)
        if self.work:
            work = self.work[0]
            if work.position >= PACKET_SIZE:
                return self.scheduler.send(self.work.popleft())
            if self.idle_packets:
                carrier = self.idle_packets.popleft()
                carrier.position = work.characters[work.position]
                work.position += 1
                return self.scheduler.send(carrier)
        return self.scheduler.wait()


class Device(Task):
    def __init__(self, scheduler, name, priority):
        super().__init__(scheduler, name, priority)
        self.pending = None

    def step(self, packet):
        if packet is not None:
            self.pending = packet
            return self.scheduler.hold()
        if self.pending is None:
            return self.scheduler.wait()
        packet, self.pending = self.pending, None
        return self.scheduler.send(packet)


class Scheduler:
    def __init__(self):
        self.tasks = {}
        self.first = None  # the most urgent task
        self.current = None
        self.queued = 0
        self.held = 0

    def insert(self, task):
        """Tasks are made in the order of rising priority."""
        self.tasks[task.name] = task
        task.below = self.first
        self.first = task

    def run(self):
        task = self.first
        while task is not None:
            if task.blocked:
                task = task.below
            else:
                self.current = task
                task = task.resume()

    def hold(self):
        self.held += 1
        self.current.held = True
        return self.current.below

    def wait(self):
        self.current.waiting = True
        return self.current

    def release(self, name):
        task = self.tasks[name]
        task.held = False
        return task if task.priority > self.current.priority else self.current

    def send(self, packet):
        receiver = self.tasks[packet.address]
        packet.address = self.current.name
        self.queued += 1
        return receiver.receive(packet, self.current)


def simulate():
    scheduler = Scheduler()
    Idle(scheduler, IDLE_STEPS)
    Worker(scheduler)
    Handler(scheduler, "handler A", 2000, "device A")
    Handler(scheduler, "handler B", 3000, "device B")
    Device(scheduler, "device A", 4000)
    Device(scheduler, "device B", 5000)
    scheduler.run()
    return scheduler.queued, scheduler.held


def run(n):
    checksum = 0
    for _ in range(n):
        queued, held = simulate()
        checksum += queued * 1000 + held
    return checksum
