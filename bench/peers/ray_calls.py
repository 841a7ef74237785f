#!/usr/bin/env python3
"""Measures Ray's actors on one machine: what `ray microbenchmark` measures of them, with the same
bodies and batches, and also latencies, starts and memory of actors, and large objects. Prints
key=value lines. Each figure is the median of its repeats, whose values are in NAME_repeats.

    build/peers/ray/bin/python bench/peers/ray_calls.py [--repeats N] [--seconds S]
                                                        [--only WORD,...] [--default]

Ray is configured for speed: no dashboard, no log forwarding, no task events, and for large objects
a store whose memory is touched beforehand. --default leaves out the last two. Ray's files are in
its own folder in /tmp, which the script removes at its end. While it runs, Ray listens on the
machine's address: do not run it on a machine that strangers can reach.
"""
import argparse
import os
import shutil
import signal
import statistics
import tempfile
import time

# Set before the import of Ray, which would otherwise send usage statistics.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

begin = time.perf_counter()
import ray  # noqa: E402

IMPORT_SECONDS = time.perf_counter() - begin
import numpy as np  # noqa: E402

DEADLINE = 120  # seconds, for every wait
BATCH = 1000  # calls in flight in the pipelined cases, as in Ray's benchmark
LARGE = 64 << 20


@ray.remote(num_cpus=0)
class Actor:
    def small_value(self):
        return b"ok"

    def echo(self, payload):
        return payload

    def read(self, array):
        return int(array[0])

    def pid(self):
        return os.getpid()


@ray.remote(num_cpus=0)
class AsyncActor:
    async def small_value(self):
        return b"ok"


@ray.remote(num_cpus=0)
class Caller:
    """A caller of the n:n case: calls the actors in turn."""

    def call(self, actors, count):
        ray.get([actors[i % len(actors)].small_value.remote() for i in range(count)], timeout=DEADLINE)


@ray.remote
def caller_task(actors, count):
    ray.get([actors[i % len(actors)].small_value.remote() for i in range(count)], timeout=DEADLINE)


def tell(line):
    print(line, file=results, flush=True)


def say(name, values, digits=1):
    tell(f"{name}={statistics.median(values):.{digits}f}")
    tell(f"{name}_repeats={','.join(f'{v:.{digits}f}' for v in values)}")


def get(refs):
    return ray.get(refs, timeout=DEADLINE)


def rates(run, operations):
    """Operations per second of each repeat, after an unmeasured repeat of half the length."""
    values = []
    for repeat in range(-1, options.repeats):
        seconds = options.seconds if repeat >= 0 else options.seconds / 2
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            run()
            count += 1
        if repeat >= 0:
            values.append(operations * count / (time.perf_counter() - start))
    return values


def free(actors):
    """Ends actors and waits until their processes have ended."""
    pids = get([a.pid.remote() for a in actors])
    for actor in actors:
        ray.kill(actor)
    wait_gone(pids)


def wait_gone(pids):
    deadline = time.monotonic() + DEADLINE
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)


# --- Measuring ------------------------------------------------------------------------------------


def init():
    """From ray.init to an actor's first answer. The first repeat has a cold page cache."""
    started, answered = [], []
    for _ in range(options.repeats):
        start = time.perf_counter()
        start_ray()
        started.append(time.perf_counter() - start)
        get(Actor.remote().small_value.remote())
        answered.append(time.perf_counter() - start)
        ray.shutdown()
    say("init_s", started, 3)
    say("init_to_first_answer_s", answered, 3)


def sync():
    """1:1, one call at a time."""
    actor = Actor.remote()
    say("sync_calls_per_s", rates(lambda: get(actor.small_value.remote()), 1))
    payload, p50, p99, p999 = bytes(64), [], [], []
    for _ in range(options.repeats):
        times = []
        for _ in range(3000):
            start = time.perf_counter_ns()
            get(actor.echo.remote(payload))
            times.append((time.perf_counter_ns() - start) / 1e3)
        times.sort()
        p50.append(times[len(times) // 2])
        p99.append(times[len(times) * 99 // 100])
        p999.append(times[len(times) * 999 // 1000])
    say("sync_64_bytes_p50_us", p50)
    say("sync_64_bytes_p99_us", p99)
    say("sync_64_bytes_p999_us", p999)
    ray.kill(actor)


def pipelined():
    """1:1, 1,000 calls in flight, for Ray's three kinds of actors."""
    for name, actor in [
        ("async_calls_per_s", Actor.remote()),
        ("async_concurrent_calls_per_s", Actor.options(max_concurrency=16).remote()),
        ("async_actor_calls_per_s", AsyncActor.remote()),
    ]:
        say(name, rates(lambda a=actor: get([a.small_value.remote() for _ in range(BATCH)]), BATCH))
        ray.kill(actor)


def many():
    """n:n: two actors call two actors; then, as Ray does, four tasks call cores / 2 actors."""
    actors = [Actor.remote() for _ in range(2)]
    callers = [Caller.remote() for _ in range(2)]
    say("n_n_2x2_calls_per_s", rates(lambda: get([c.call.remote(actors, BATCH) for c in callers]), 2 * BATCH))
    for actor in actors + callers:
        ray.kill(actor)
    actors = [Actor.remote() for _ in range(max(1, os.cpu_count() // 2))]
    say("n_n_as_ray_calls_per_s", rates(lambda: get([caller_task.remote(actors, 5000) for _ in range(4)]), 4 * 5000))
    for actor in actors:
        ray.kill(actor)


def start():
    """Starts actors, at once and one after another, until each has answered."""
    together, one_by_one, created = [], [], 16
    for repeat in range(-1, options.repeats):
        begin_ = time.perf_counter()
        actors = [Actor.remote() for _ in range(created)]
        get([a.small_value.remote() for a in actors])
        taken = time.perf_counter() - begin_
        free(actors)
        actors, begin_ = [], time.perf_counter()
        for _ in range(4):
            actors.append(Actor.remote())
            get(actors[-1].small_value.remote())
        each = (time.perf_counter() - begin_) / 4
        free(actors)
        if repeat >= 0:
            together.append(created / taken)
            one_by_one.append(each * 1e3)
    say("actors_started_per_s", together, 2)
    say("actor_start_ms", one_by_one)


def memory():
    """Proportional and private set sizes: of an idle actor's process, and of Ray without actors."""
    count, repeats = 4, {"pss": [], "private": [], "without": []}
    for _ in range(options.repeats):
        time.sleep(1)
        repeats["without"].append(sum(set_size(p)[0] for p in descendants(os.getpid())))
        actors = [Actor.remote() for _ in range(count)]
        pids = get([a.pid.remote() for a in actors])
        time.sleep(1)
        sizes = [set_size(p) for p in pids]
        repeats["pss"].append(sum(s[0] for s in sizes) / count)
        repeats["private"].append(sum(s[1] for s in sizes) / count)
        free(actors)
    say("idle_actor_pss_mib", repeats["pss"])
    say("idle_actor_private_mib", repeats["private"])
    say("ray_processes_pss_mib", repeats["without"])


def large():
    """64 MiB into the object store, and out of it here and in an actor, without a copy."""
    array, actor, count = np.ones(LARGE, dtype=np.uint8), Actor.remote(), 10
    put, local, remote, through = [], [], [], []
    for repeat in range(-1, options.repeats):
        puts, locals_, remotes, throughs = [], [], [], []
        for _ in range(count):
            a = time.perf_counter()
            ref = ray.put(array)
            b = time.perf_counter()
            value = get(ref)
            c = time.perf_counter()
            get(actor.read.remote(ref))
            d = time.perf_counter()
            assert value[-1] == 1
            del ref, value
            puts.append(b - a)
            locals_.append(c - b)
            remotes.append(d - c)
            throughs.append(d - c + b - a)
        if repeat >= 0:
            put.append(LARGE / statistics.median(puts) / 1e9)
            local.append(statistics.median(locals_) * 1e6)
            remote.append(statistics.median(remotes) * 1e6)
            through.append(statistics.median(throughs) * 1e3)
    say("put_64_mib_gb_per_s", put, 2)
    say("get_64_mib_us", local)
    say("get_64_mib_in_actor_us", remote)
    say("put_and_get_64_mib_in_actor_ms", through, 2)
    ray.kill(actor)


# --- Processes ------------------------------------------------------------------------------------


def set_size(pid):
    """Proportional and private MiB of a process; zero if it has ended or may not be read."""
    fields = {}
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            for line in file:
                words = line.split()
                if words[-1] == "kB":
                    fields[words[0]] = int(words[1]) / 1024
    except OSError:
        return 0.0, 0.0
    return fields.get("Pss:", 0.0), fields.get("Private_Clean:", 0.0) + fields.get("Private_Dirty:", 0.0)


def descendants(pid):
    found, waiting = [], [pid]
    while waiting:
        parent = waiting.pop()
        try:
            threads = os.listdir(f"/proc/{parent}/task")
        except OSError:
            continue
        for thread in threads:
            try:
                with open(f"/proc/{parent}/task/{thread}/children", encoding="ascii") as file:
                    children = [int(word) for word in file.read().split()]
            except OSError:
                continue
            found += children
            waiting += children
    return found


def start_ray(settings=None, **arguments):
    tuned = {} if options.default else {"task_events_report_interval_ms": 0, "enable_timeline": False, **(settings or {})}
    ray.init(
        address="local",
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        _temp_dir=folder,
        _system_config=tuned,
        **arguments,
    )


PARTS = {f.__name__: f for f in (init, sync, pipelined, many, start, memory, large)}

parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
parser.add_argument("--repeats", type=int, default=5)
parser.add_argument("--seconds", type=float, default=2.0, help="of each repeat of a rate")
parser.add_argument("--only", default=",".join(PARTS), help="some of: " + ",".join(PARTS))
parser.add_argument("--default", action="store_true", help="task events and store as Ray comes")

if __name__ == "__main__":
    options = parser.parse_args()
    parts = options.only.split(",")
    if options.repeats < 1 or not set(parts) <= set(PARTS):
        parser.error(f"--only takes some of {','.join(PARTS)}; --repeats at least 1")
    signal.alarm(1800)  # ends the script if it hangs
    folder = tempfile.mkdtemp(prefix="ray.", dir="/tmp")  # paths of sockets must be short
    results = os.fdopen(os.dup(1), "w")  # results only: Ray prints warnings to fd 1
    os.dup2(2, 1)
    tell(f"ray_version={ray.__version__}\ncores={os.cpu_count()}\nload_before={os.getloadavg()[0]:.2f}\nimport_s={IMPORT_SECONDS:.3f}")
    try:
        for part in PARTS:
            if part not in parts:
                continue
            if part == "large" and not options.default:
                # Otherwise some puts write to untouched memory of the store, at a thirtieth of the
                # speed.
                ray.shutdown()
                start_ray({"preallocate_plasma_memory": True}, object_store_memory=1 << 30)
            elif part != "init" and not ray.is_initialized():
                start_ray()
            PARTS[part]()
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
