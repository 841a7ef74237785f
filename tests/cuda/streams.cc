/* Streams and events: their lives, and waits of the host and of other streams. No state of its own. Read
 * next: work.cc. */
#include "cuda/order.h"
#include "cuda/state.h"

using namespace emulated;

cudaError_t
cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const cudaError_t error = begin();
    (void)flags;
    if (error == cudaSuccess) {
        *out = new emulated_stream{current, {}, nullptr, false, false, cuda_order_new(), 0};
        streams.insert(*out);
        seen |= UINT64_C(1) << current;
    }
    return error;
}

/* Waits for nothing, as the real one. */
cudaError_t
cudaStreamDestroy(cudaStream_t stream)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    stream->destroyed = true;
    if (stream->queue.empty())
        end_stream(stream);
    return cudaSuccess;
}

cudaError_t
cudaStreamSynchronize(cudaStream_t stream)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    spoil();
    const cudaError_t error = begin_apart(stream);
    host_waits++;
    if (!stream->recorded)
        do_all(stream);
    return error != cudaSuccess ? error : say(broken);
}

cudaError_t
cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const cudaError_t error = begin_apart(stream);
    (void)flags;
    if (error == cudaSuccess && event->done)
        put(stream, {[]() {}, event->done, false, true, false});
    return error;
}

cudaError_t
cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const cudaError_t error = begin();
    (void)flags;
    if (error == cudaSuccess) {
        *out = new emulated_event{current, nullptr};
        events.insert(*out);
    }
    return error;
}

cudaError_t
cudaEventDestroy(cudaEvent_t event)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    events.erase(event);
    delete event;
    return cudaSuccess;
}

cudaError_t
cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    if (stream->gpu != event->gpu)
        return say(cudaErrorInvalidResourceHandle);
    const cudaError_t error = begin_apart(stream);
    if (error == cudaSuccess) {
        const std::shared_ptr<bool> reached = std::make_shared<bool>(false);
        event->done = reached;
        const auto reach = [reached]() {
            cuda_order_before(reached.get());
            *reached = true;
        };
        put(stream, {reach, nullptr, false, true, false});
    }
    return error;
}

/* Does work until the event has come: streams go on as they are drawn. */
cudaError_t
cudaEventSynchronize(cudaEvent_t event)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const cudaError_t error = begin_unsafe();
    const std::shared_ptr<bool> reached = event->done;
    while (reached && !*reached)
        if (!do_one())
            await_outside();
    if (reached)
        cuda_order_after(reached.get());
    hide_memory();
    return error != cudaSuccess ? error : say(broken);
}

cudaError_t
cudaEventQuery(cudaEvent_t event)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const cudaError_t error = begin_unsafe();
    const std::shared_ptr<bool> reached = event->done;
    if (reached && !*reached)
        (void)do_one();
    if (reached && *reached)
        cuda_order_after(reached.get());
    hide_memory();
    if (error != cudaSuccess)
        return error;
    return reached && !*reached ? say(cudaErrorNotReady) : say(broken);
}
