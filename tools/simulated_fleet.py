"""A simulation of several machines that serve one model: how long the requests of a trace would take.

The costs of steps are measured (`swiftkv bench --costs`), and the rules are the server's: answers have a token in every
step, and prompts get the rest of its time by the clock of src/serving/scheduler/step_clock.c, one after the other, the
shortest first and one time in four the oldest (turns.h). A machine knows the length of an answer when the request
begins, and so takes no more than its KV memory holds: nothing is preempted. The network is a link for each machine and
one for the store.

    replicas   every machine reads and answers; requests that begin alike go to the same one, while it is not much busier
               than the others
    store      the same without affinity: all machines share the blocks of prompts in a store
    readers    some machines only read prompts; their blocks go to the store and from there to the machine that answers
"""

import bisect
import csv
import datetime
import heapq
import json
import math
import pathlib
import random
from collections import OrderedDict, deque

DESIGNS = ("replicas", "store", "readers")
BLOCK_TOKENS = 512  # of a trace's hash_ids
PAGE_TOKENS = 64
AFFINITY_BLOCKS, AFFINITY_MOST = 2, 1.25  # a request's own machine may have this many times the others' requests
CHUNK_MIN, PIECE_MIN, OLDEST = 8, 32, 4  # as in compose.c and turns.h
ARRIVALS_MAX, TOKENS_MAX = 1 << 24, 1 << 24
BAD = (ValueError, KeyError, TypeError, OverflowError, RecursionError)  # of what a file holds
MASK = (1 << 64) - 1


class Refused(Exception):
    """A file or a number that cannot be used, in one line."""


def mix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
    return x ^ x >> 31


# ---- files ----


class Costs:
    """Milliseconds of a step; between the measured numbers of rows lie straight lines."""

    def __init__(self, path):
        try:
            data = json.loads(pathlib.Path(path).read_bytes())
        except (OSError, *BAD) as error:
            raise Refused(f"{path}: {error}") from error
        if not isinstance(data, dict):
            raise Refused(f"{path}: expected an object, as `swiftkv bench --costs` prints it")
        self.prompt = self.curve(path, data, "prompt_ms")  # rows that stop at layer l
        self.answer = self.curve(path, data, "answer_ms")  # rows that run all layers and the head
        numbers = ("prompt_context_us", "answer_context_us", "kv_bytes_per_token", "weight_bytes", "step_tokens")
        for key in numbers:
            value = data.get(key)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
                raise Refused(f"{path}: {key}: {value!r}, expected a number from 0 on")
        self.prompt_context_us, self.answer_context_us = data[numbers[0]], data[numbers[1]]  # of a row, for 1000 before it
        self.kv_bytes, self.step_tokens = data[numbers[2]], int(data[numbers[4]])
        if self.step_tokens < 1:
            raise Refused(f"{path}: step_tokens: {self.step_tokens}, expected a number above 0")

    @staticmethod
    def curve(path, data, key):
        try:
            points = [(float(rows), float(ms)) for rows, ms in data[key]]
            good = points and points[0][0] >= 1 and all(0 < ms < 1e7 for _, ms in points)
            good = good and all(a[0] < b[0] for a, b in zip(points, points[1:]))
        except BAD:
            good = False
        if not good:
            raise Refused(f"{path}: {key}: expected pairs [rows, milliseconds] with rising rows")
        return points

    @staticmethod
    def at(points, rows):
        if rows <= 0:
            return 0.0
        if len(points) == 1:
            return points[0][1] * rows / points[0][0]
        if rows <= points[0][0]:
            return points[0][1]
        i = min(max(bisect.bisect_left(points, (rows, 0.0)), 1), len(points) - 1)
        (x0, y0), (x1, y1) = points[i - 1], points[i]
        return y0 + (y1 - y0) / (x1 - x0) * (rows - x0)

    def step_ms(self, n_prompt, n_answer, prompt_reads, answer_reads):
        """All rows run the layers that prompts run; the further work of answers is theirs alone."""
        deep = self.at(self.answer, n_answer) - self.at(self.prompt, n_answer)
        return (self.at(self.prompt, n_prompt + n_answer) + max(deep, 0.0) + self.prompt_context_us * 1e-6 * prompt_reads
                + self.answer_context_us * 1e-6 * answer_reads)


def read_trace(path):
    """[(seconds after the first, prompt tokens, answer tokens, hash_ids)] of Azure's CSV or Mooncake's JSON lines."""
    rows, number = [], 0
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip() or (not rows and line.startswith("TIMESTAMP,")):
                    continue
                rows.append(json_row(line) if line.lstrip().startswith("{") else csv_row(line))
                at, n_prompt, n_answer, _ = rows[-1]
                if not (math.isfinite(at) and 0 <= n_prompt <= TOKENS_MAX and 0 <= n_answer <= TOKENS_MAX):
                    raise ValueError("a time or a number of tokens is out of range")
                if at < rows[max(len(rows) - 2, 0)][0]:
                    raise ValueError("the time goes backwards")
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from error
    except BAD as error:
        raise Refused(f"{path}: line {number}: {error or 'expected a request of a trace'}") from error
    if not rows:
        raise Refused(f"{path}: no requests")
    return [(at - rows[0][0], max(n_prompt, 1), max(n_answer, 1), ids) for at, n_prompt, n_answer, ids in rows]


def json_row(line):
    row = json.loads(line)
    ids = [int(i) & MASK for i in row.get("hash_ids", [])]
    return float(row["timestamp"]) * 1e-3, int(row["input_length"]), int(row["output_length"]), ids


def csv_row(line):
    time, n_prompt, n_answer = next(csv.reader([line]))[:3]
    whole, _, part = time.partition(".")
    at = datetime.datetime.strptime(whole, "%Y-%m-%d %H:%M:%S").replace(tzinfo=datetime.timezone.utc)
    return at.timestamp() + float("0." + (part or "0")), int(n_prompt), int(n_answer), []


def arrivals(trace, rate, seconds, seed):
    """[(at, row, copy)] in order: as many copies of the trace as come closest to the rate, each begun at another place,
    stretched to the rate. The trace goes round: after its last request comes the first."""
    span = trace[-1][0]
    own_rate = len(trace) / span if span > 0 else rate
    copies = max(1, math.floor(rate / own_rate + 0.5)) if rate else 1
    scale = copies * own_rate / rate if rate else 1
    if copies * len(trace) * min(1, seconds / (span * scale + 1e-9)) > ARRIVALS_MAX:
        raise Refused(f"more than {ARRIVALS_MAX} requests")
    draw = random.Random(seed)
    begins = [0.0] + [draw.random() * span for _ in range(copies - 1)]
    all_of = []
    for copy, begin in enumerate(begins):
        for i, row in enumerate(trace):
            at = (row[0] - begin if row[0] >= begin else row[0] - begin + span) * scale
            if at < seconds:
                all_of.append((at, copy, i))
    return sorted(all_of)


# ---- a machine ----


class Blocks:
    """The blocks of prompts that a memory has; the least recently used leave when there are too many."""

    def __init__(self, most):
        self.most, self.names = most, OrderedDict()

    def find(self, names):
        """How many are there, counted from the first; they become the newest."""
        n = 0
        for name in names:
            if name not in self.names:
                break
            self.names.move_to_end(name)
            n += 1
        return n

    def add(self, names):
        for name in names if self.most > 0 else ():
            self.names[name] = None
            self.names.move_to_end(name)
            self.trim(self.most)

    def trim(self, most):
        while len(self.names) > most:
            self.names.popitem(last=False)


class Clock:
    """How many prompt tokens fit into a step: src/serving/scheduler/step_clock.c, whose comments explain it."""

    def __init__(self, step_ms):
        self.target, self.aim, self.base, self.share, self.slope = step_ms * 1e6, 0.85, 0.0, 0.0, 0.0
        self.n_learnt, self.before, self.ns, self.variance, self.covariance = 0, 0.0, 0.0, 0.0, 0.0

    def room(self, n_answers):
        if self.share <= 0:
            return 32 * 1e6
        return max((self.target * self.aim if n_answers else 150e6) - self.base * n_answers, 0.0)

    def fit(self, ns, n_seen):
        share = self.share or 1e6
        square, first = share * self.slope / 2, share * (1 + self.slope * n_seen)
        n = min(int(2 * ns / (first + math.sqrt(first * first + 4 * square * ns))), 1 << 20)
        return n - n % 16 if n >= 64 else n

    def cost(self, n, n_before):
        return (self.share or 1e6) * (n + self.slope * n_before)

    def learn(self, n_answers, n, n_before, ns):
        if n == 0:
            self.base = self.mix(self.base, ns / n_answers) if n_answers else self.base
            return
        planned = self.base * n_answers + self.cost(n, n_before)
        if n_answers and planned >= 0.9 * self.aim * self.target:
            self.aim = min(1.0, max(0.7, self.aim + 0.02 * (0.005 - (ns > self.target))))
        rest = max(ns - self.base * n_answers, ns / 8)
        if n >= 16:
            self.learn_slope(n_before / n, rest / n)
        self.share = self.mix(self.share, rest / (n + self.slope * n_before))

    @staticmethod
    def mix(mean, value):
        return mean + 0.3 * (value - mean) if mean > 0 else value

    def learn_slope(self, before, token_ns):
        part = max(1 / (self.n_learnt + 1), 0.05)
        far, longer = before - self.before, token_ns - self.ns
        self.n_learnt += 1
        self.before += part * far
        self.ns += part * longer
        self.variance = (1 - part) * (self.variance + part * far * far)
        self.covariance = (1 - part) * (self.covariance + part * far * longer)
        if self.variance < 64 * 64:
            return
        rise = self.covariance / self.variance
        slope = min(rise / max(self.ns - rise * self.before, self.ns / 8), 1 / 64) if rise > 0 else 0.0
        self.share *= (1 + self.slope * self.before) / (1 + slope * self.before)
        self.slope = slope


class Request:
    """n_until: the prompt tokens that a machine is to read; a reader leaves the rest to the one that answers."""

    __slots__ = ("at", "first", "n_prompt", "n_output", "n_seen", "n_until", "n_found", "names", "reader", "machine", "n")

    def __init__(self, at, n_prompt, n_output, names):
        self.at, self.n_prompt, self.n_output, self.names = at, n_prompt, n_output, names
        self.n_seen, self.n_until, self.reader, self.n = 0, n_prompt, None, 0

    def needs(self):
        return self.n_until + (self.n_output if self.n_until == self.n_prompt else 0)

    def left(self):
        return self.n_until - self.n_seen


class Machine:
    def __init__(self, costs, options, block_tokens):
        self.costs, self.o, self.block_tokens = costs, options, block_tokens
        self.clock, self.cache = Clock(options.step_ms), Blocks(options.kv_tokens // block_tokens)
        self.queue, self.prompts, self.answers = deque(), [], []  # answers: a heap by their last step
        self.answer_reads = self.busy = 0.0
        self.kv_used = self.n_steps = self.n_composed = self.n_requests = self.n_put = 0
        self.in_step = False

    def begin(self):
        """Begins a step; the seconds that it takes, 0 where there is nothing to do."""
        while (self.queue and len(self.prompts) + len(self.answers) < self.o.max_running
               and self.kv_used + self.queue[0].needs() <= self.o.kv_tokens):
            self.kv_used += self.queue[0].needs()
            self.prompts.append(self.queue.popleft())
        self.cache.trim((self.o.kv_tokens - self.kv_used) // self.block_tokens)
        if not self.prompts and not self.answers:
            return 0.0
        self.n_composed += 1
        n_prompt, n_ended, reads, work, before = self.add_prompts()
        n_answers = len(self.answers)
        # The last row of a prompt runs all layers.
        ms = self.costs.step_ms(n_prompt - n_ended, n_answers + n_ended, reads, self.answer_reads)
        self.busy += ms * 1e-3
        self.in_step = True
        self.clock.learn(n_answers, work, before, int(ms * 1e6))
        return ms * 1e-3

    def next_prompt(self):
        waiting = (r for r in self.prompts if r.n == 0)
        return next(waiting, None) if self.n_composed % OLDEST == 0 else min(waiting, key=Request.left, default=None)

    def add_prompts(self):
        n_free, ns, first = self.costs.step_tokens - len(self.answers), self.clock.room(len(self.answers)), True
        n_prompt = n_ended = work = 0
        reads = before = 0.0
        while n_free > 0:
            r = self.next_prompt()
            if r is None:
                break
            n = self.clock.fit(ns, r.n_seen)
            n = min(max(n, CHUNK_MIN) if first else n, r.left(), n_free)
            if n == 0 or (not first and n < r.left() and n < PIECE_MIN):
                break
            n_before = n * (r.n_seen + n / 2)
            r.n = n
            n_free -= n
            ns = max(ns - self.clock.cost(n, n_before), 0.0)
            work, before, first = work + n, before + n_before, False
            n_prompt, reads, n_ended = n_prompt + n, reads + n * r.n_seen, n_ended + (n == r.left())
        return n_prompt, n_ended, reads, work, before

    def end(self, fleet):
        """Ends the step, and tells the fleet which prompts were read and which answers ended."""
        self.in_step = False
        self.n_steps += 1
        self.answer_reads += len(self.answers)
        while self.answers and self.answers[0][0] <= self.n_steps:
            r = heapq.heappop(self.answers)[2]
            self.answer_reads -= r.n_prompt + r.n_output - 1
            self.leave(r, r.needs())
            fleet.on_end(self, r)
        read, self.prompts = self.prompts, []
        for r in read:
            if r.n > 0:
                r.n_seen += r.n
                fleet.on_read(self, r, r.n)
                r.n = 0
            if r.left() > 0:
                self.prompts.append(r)
            else:
                self.end_prompt(fleet, r)

    def end_prompt(self, fleet, r):
        needs = r.needs()
        if not fleet.on_first(self, r):
            self.leave(r, needs)
        elif r.n_output <= 1:
            self.leave(r, needs)
            fleet.on_end(self, r)
        else:
            self.answer_reads += r.n_prompt
            self.n_put += 1
            heapq.heappush(self.answers, (self.n_steps + r.n_output - 1, self.n_put, r))

    def leave(self, r, needs):
        self.kv_used -= needs
        self.cache.add(r.names)


# ---- all of them ----


class Wire:
    """One transfer after the other, as fast as its bytes go."""

    def __init__(self, gbs):
        self.gbs, self.free, self.busy = gbs, 0.0, 0.0

    def send(self, at, n_bytes):
        takes = n_bytes / (self.gbs * 1e9)
        self.free = max(self.free, at) + takes
        self.busy += takes
        return self.free


class Fleet:
    """One run: `run` returns its figures. options: those of tools/simulate.py."""

    def __init__(self, costs, trace, options, design, n_machines, n_readers=0):
        if design == "readers" and not 1 <= n_readers < n_machines:
            raise Refused("readers: at least one, and fewer than machines")
        if options.max_running > costs.step_tokens:
            raise Refused("--max-running: more answers than a step has tokens")
        self.costs, self.trace, self.o, self.design = costs, trace, options, design
        self.block_tokens = self.scaled(BLOCK_TOKENS)
        self.machines = [Machine(costs, options, self.block_tokens) for _ in range(n_machines)]
        self.n_answerers = n_machines - n_readers  # readers come after them
        self.links = [Wire(options.link_gbs) for _ in range(n_machines)]
        self.store_link = Wire(options.store_gbs)
        self.store = Blocks(int(min(options.store_gb * 1e9 / max(1, costs.kv_bytes * self.block_tokens), 1e9)))
        self.events, self.n_planned, self.now = [], 0, 0.0
        self.ttft, self.tpot, self.e2el = [], [], []
        self.n_good = self.n_bad = self.n_refused = self.n_requests = 0
        self.n_prompt_tokens = self.n_found_tokens = 0

    def scaled(self, n):
        return min(max(math.floor(n * self.o.length_scale + 0.5), 1), 10**9)

    # -- where a request goes --

    def least_busy(self, first, n, turn):
        return min(((turn + k) % n + first for k in range(n)), key=lambda i: self.machines[i].n_requests)

    def by_affinity(self, r, turn):
        """Rendezvous hashing of how a prompt begins."""
        n = self.n_answerers
        if not r.names:
            return self.least_busy(0, n, turn)
        name = r.names[min(len(r.names), AFFINITY_BLOCKS) - 1]
        best = max(range(n), key=lambda i: mix64(name + i & MASK))
        most = AFFINITY_MOST * (sum(m.n_requests for m in self.machines[:n]) + 1) / n + 1
        return best if self.machines[best].n_requests < most else self.least_busy(0, n, turn)

    def plan(self, at, machine, request=None):
        """A step ends, or a request's blocks have arrived."""
        heapq.heappush(self.events, (at, self.n_planned, machine, request))
        self.n_planned += 1

    def wake(self, i):
        takes = 0.0 if self.machines[i].in_step else self.machines[i].begin()
        if takes > 0:
            self.plan(self.now + takes, i)

    def enter(self, i, r):
        self.machines[i].queue.append(r)
        self.wake(i)

    def move_blocks(self, i, tokens):
        """When blocks have gone between a machine and the store."""
        n_bytes = tokens * self.costs.kv_bytes
        through = max(self.links[i].send(self.now, n_bytes), self.store_link.send(self.now, n_bytes))
        return through + self.o.latency_ms * 1e-3

    def arrive(self, r, turn):
        shares = self.design != "replicas"
        r.machine = self.least_busy(0, self.n_answerers, turn) if shares else self.by_affinity(r, turn)
        machine = self.machines[r.machine]
        machine.n_requests += 1
        own, stored = machine.cache.find(r.names), self.store.find(r.names) if shares else 0
        own, stored = (min(n * self.block_tokens, r.n_prompt - 1) for n in (own, stored))
        r.n_found = r.n_seen = max(own, stored)
        self.n_found_tokens += r.n_found
        self.n_prompt_tokens += r.n_prompt
        reader_end = (r.n_prompt - 1) // PAGE_TOKENS * PAGE_TOKENS  # the other machine computes the rest
        if self.design == "readers" and r.n_prompt - r.n_found > self.o.read_above and reader_end > r.n_found:
            r.reader = self.least_busy(self.n_answerers, len(self.machines) - self.n_answerers, turn)
            self.machines[r.reader].n_requests += 1
            r.n_until = reader_end
            self.plan(self.move_blocks(r.reader, r.n_found) if r.n_found else self.now, r.reader, r)
        elif stored > own:
            self.plan(self.move_blocks(r.machine, stored - own), r.machine, r)
        else:
            self.enter(r.machine, r)

    # -- the news of steps --

    def on_read(self, machine, r, n):
        """A reader sends blocks as they come."""
        i = self.at(machine, r)
        if i >= self.n_answerers:
            self.move_blocks(i, n)
            self.links[r.machine].send(self.now, n * self.costs.kv_bytes)

    def at(self, machine, r):
        return r.machine if self.machines[r.machine] is machine else r.reader

    def on_first(self, machine, r):
        """A prompt is read. False: the request leaves the machine, which was a reader."""
        if self.at(machine, r) >= self.n_answerers:
            machine.n_requests -= 1
            ready = max(self.store_link.free, self.links[r.machine].free, self.now)
            r.n_until = r.n_prompt
            self.plan(ready + 2 * self.o.latency_ms * 1e-3, r.machine, r)
            return False
        r.first = self.now
        if self.design != "replicas":
            if r.reader is None:
                self.move_blocks(r.machine, r.n_prompt - r.n_found)
            self.store.add(r.names)
        return True

    def on_end(self, machine, r):
        machine.n_requests -= 1
        values = {"ttft": (r.first - r.at) * 1e3, "e2el": (self.now - r.at) * 1e3,
                  "tpot": (self.now - r.first) * 1e3 / (r.n_output - 1) if r.n_output > 1 else 0.0}
        good = all(values[key] <= most for key, most in self.o.goals.items())
        self.n_good += good
        self.n_bad += not good
        self.ttft.append(values["ttft"])
        self.e2el.append(values["e2el"])
        if r.n_output > 1:
            self.tpot.append(values["tpot"])

    # -- the run --

    def happen(self):
        self.now, _, i, r = heapq.heappop(self.events)
        if r is not None:
            self.enter(i, r)
            return
        self.machines[i].end(self)
        self.wake(i)

    def run(self, rate=0.0, bad_share_most=1.0):
        """The figures at a rate of requests, or at the trace's own; the run stops early when a larger share of the
        requests misses the goals."""
        coming = arrivals(self.trace, rate, self.o.duration or math.inf, self.o.seed)
        most_bad = bad_share_most * len(coming)
        for i, (at, copy, row) in enumerate(coming):
            if self.n_bad + self.n_refused > most_bad:
                break
            while self.events and self.events[0][0] <= at:
                self.happen()
            self.now = at
            _, n_prompt, n_output, ids = self.trace[row]
            names = [mix64(mix64((id + 1) & MASK) + copy & MASK) for id in ids]  # of other users in each copy
            r = Request(at, self.scaled(n_prompt), self.scaled(n_output), names)
            self.n_requests += 1
            if r.needs() > self.o.kv_tokens:
                self.n_refused += 1
            else:
                self.arrive(r, mix64(i))
        while self.events and self.n_bad + self.n_refused <= most_bad:
            self.happen()
        return self.summary((len(coming) - 1) / max(1e-3, coming[-1][0]) if len(coming) > 1 else 0.0)

    def summary(self, rate):
        seconds, n = max(self.now, 1e-9), self.n_answerers
        busy = [m.busy / seconds for m in self.machines]
        out = {"request_rate": rate, "requests": self.n_requests, "good": self.n_good, "refused": self.n_refused}
        for key, values in (("ttft", self.ttft), ("tpot", self.tpot), ("e2el", self.e2el)):
            values.sort()
            out[f"mean_{key}_ms"] = sum(values) / len(values) if values else 0.0
            for name, share in (("median", 0.5), ("p90", 0.9), ("p99", 0.99)):
                out[f"{name}_{key}_ms"] = percentile(values, share)
        out["cached_share"] = self.n_found_tokens / max(self.n_prompt_tokens, 1)
        out["answering_busy"] = sum(busy[:n]) / n
        out["reading_busy"] = sum(busy[n:]) / max(len(busy) - n, 1)
        out["store_network"] = self.store_link.busy / seconds
        out["machine_network"] = max(wire.busy for wire in self.links) / seconds
        return out


def percentile(values, share):
    """Of sorted values, with straight lines between them."""
    if not values:
        return 0.0
    place = share * (len(values) - 1)
    low = int(place)
    return values[low] + (values[min(low + 1, len(values) - 1)] - values[low]) * (place - low)
