/* The work of streams: what is queued, which piece is done next, and who waits for it. Things beside
 * CUDA queue work, too (outside.h). No state of its own. Read next: state.h. */
#include "cuda/state.h"

#include <algorithm>
#include <chrono>

#include <stdio.h>
#include <stdlib.h>

#include "cuda/emulator.h"
#include "cuda/fibers.h"
#include "cuda/order.h"
#include "cuda/outside.h"

using namespace emulated;

static char gpu_finished[64]; /* order.h: the work of each GPU until now */

void
emulated::put(emulated_stream *stream, emulated_work work)
{
    work.asked = std::make_shared<char>();
    cuda_order_before(work.asked.get());
    stream->queue.push_back(std::move(work));
}

void
emulated::end_stream(emulated_stream *stream)
{
    streams.erase(stream);
    cuda_order_free(stream->order);
    delete stream;
}

/* `work` is not on this thread's stack, which is the host's. */
static void
run_as(emulated_stream *stream, const emulated_work &work)
{
    void *const host = cuda_order_enter(stream->order);
    cuda_order_after(work.asked.get());
    if (work.waits_for)
        cuda_order_after(work.waits_for.get());
    work.run();
    cuda_order_before(&stream->finished);
    cuda_order_before(&gpu_finished[stream->gpu]);
    (void)cuda_order_enter(host);
}

static void
do_first(emulated_stream *stream)
{
    const cuda_order_inside inside;
    const std::unique_ptr<emulated_work> work(new emulated_work(stream->queue.front()));
    stream->queue.pop_front();
    if (work->counts) {
        done++;
        if (fail_at > 0 && --fail_at == 0)
            broken = cudaErrorLaunchFailure;
    }
    cuda_emulated_show_memory();
    if (broken == cudaSuccess || work->always)
        run_as(stream, *work);
    if (stream->destroyed && stream->queue.empty())
        end_stream(stream);
}

bool
emulated::do_one(void)
{
    std::vector<emulated_stream *> ready;
    if (poll_outside)
        poll_outside();
    for (emulated_stream *s : streams)
        if (!s->queue.empty() && (!s->queue.front().waits_for || *s->queue.front().waits_for))
            ready.push_back(s);
    if (!ready.empty())
        do_first(ready[cuda_emulated_random() % ready.size()]);
    return !ready.empty();
}

void
emulated::await_outside(void)
{
    bool waits = false;
    for (emulated_stream *s : streams)
        waits = waits || (!s->queue.empty() && s->queue.front().outside);
    if (!waits) {
        fprintf(stderr, "cuda: every stream waits for an event that nobody records\n");
        abort();
    }
    hide_memory();
    std::unique_lock<std::mutex> held(lock, std::adopt_lock);
    changed.wait_for(held, std::chrono::microseconds(poll_outside ? 100 : 10000));
    held.release();
}

void
emulated::do_all(emulated_stream *wanted)
{
    while (!wanted->queue.empty())
        if (!do_one())
            await_outside();
    cuda_order_after(&wanted->finished);
    hide_memory();
}

/* Does the work of all streams for which this is so. */
static void
do_those(const std::function<bool(const emulated_stream *)> &is_wanted)
{
    const auto is_left = [&](const emulated_stream *s) {
        return !s->queue.empty() && is_wanted(s);
    };
    while (std::any_of(streams.begin(), streams.end(), is_left))
        if (!do_one())
            await_outside();
    hide_memory();
}

static void
do_destroyed(void)
{
    do_those([](const emulated_stream *s) { return s->destroyed; });
}

void
emulated::await_gpu(int gpu)
{
    do_those([=](const emulated_stream *s) { return s->gpu == gpu; });
    cuda_order_after(&gpu_finished[gpu]);
}

uint64_t
cuda_emulator_memory(void)
{
    const std::lock_guard<std::mutex> guard(lock);
    do_destroyed();
    return used;
}

uint64_t
cuda_emulator_things(void)
{
    const std::lock_guard<std::mutex> guard(lock);
    do_destroyed();
    return streams.size() + events.size() + pinned.size() + reserved.size() + graphs.size() +
           execs.size() + opened.size();
}

void
cuda_emulated_locked(const std::function<void()> &act)
{
    const std::lock_guard<std::mutex> guard(lock);
    act();
    changed.notify_all();
}

void
cuda_emulated_push(cudaStream_t stream, std::shared_ptr<bool> gate, std::function<void()> run)
{
    const bool outside = gate != nullptr;
    if (stream->recorded)
        stream->spoiled = true;
    else
        put(stream, {std::move(run), std::move(gate), false, true, outside});
}

void
cuda_emulated_set_poll(void (*poll)(void))
{
    const std::lock_guard<std::mutex> guard(lock);
    poll_outside = poll;
}

bool
cuda_emulated_is_recorded(int gpu)
{
    for (const emulated_stream *stream : streams)
        if (stream->gpu == gpu && stream->recorded)
            return true;
    return false;
}

void
cuda_emulated_await_gpu(int gpu)
{
    for (emulated_stream *stream : streams)
        stream->spoiled = stream->spoiled || (stream->gpu == gpu && stream->recorded);
    await_gpu(gpu);
}

void
cuda_emulated_await_work(int gpu)
{
    await_gpu(gpu);
}

/* --- Queues and records ----------------------------------------------------------------------- */

cudaError_t
emulated::queue(cudaStream_t stream, char kind, std::function<void()> run)
{
    const cudaError_t error = begin();
    if (error != cudaSuccess)
        return error;
    if (stream->recorded && stream->spoiled)
        return say(cudaErrorStreamCaptureInvalidated);
    if (stream->recorded && is_to_fail(CUDA_IN_CAPTURE)) {
        stream->spoiled = true;
        return say(cudaErrorStreamCaptureUnsupported);
    }
    const emulated_work work = {std::move(run), nullptr, true, false, false, kind};
    if (stream->recorded)
        stream->recorded->work.push_back(work);
    else
        put(stream, work);
    return error;
}

cudaError_t
emulated::begin_apart(cudaStream_t stream)
{
    const cudaError_t error = begin();
    if (error != cudaSuccess || !stream->recorded)
        return error;
    stream->spoiled = true;
    return say(cudaErrorStreamCaptureUnsupported);
}

void
emulated::spoil(void)
{
    if (capturing)
        capturing->spoiled = true;
}

cudaError_t
emulated::begin_unsafe(void)
{
    spoil();
    return capturing ? say(cudaErrorStreamCaptureUnsupported) : begin();
}
