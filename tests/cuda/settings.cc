/* What tests say to the emulated machine (emulator.h), also by EXO_CUDA_EMULATOR. No state of its
 * own. Read next: state.h. */
#include "cuda/emulator.h"

#include "cuda/state.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda/fibers.h"
#include "cuda/outside.h"

using namespace emulated;

void
cuda_emulator_seed(uint64_t seed)
{
    const std::lock_guard<std::mutex> guard(lock);
    random_state = seed * 2 + 1;
}

void
cuda_emulator_set_gpus(int count)
{
    const std::lock_guard<std::mutex> guard(lock);
    gpus = count;
}

void
cuda_emulator_set_first(int first)
{
    const std::lock_guard<std::mutex> guard(lock);
    first_gpu = first;
}

void
cuda_emulator_set_capability(int number)
{
    const std::lock_guard<std::mutex> guard(lock);
    capability = number;
}

void
cuda_emulator_lack_image(bool wanted)
{
    const std::lock_guard<std::mutex> guard(lock);
    no_image = wanted;
}

void
cuda_emulator_fail_at(uint64_t n)
{
    const std::lock_guard<std::mutex> guard(lock);
    fail_at = n;
    if (n == 0)
        broken = cudaSuccess;
}

void
cuda_emulator_fail_call(uint64_t n)
{
    const std::lock_guard<std::mutex> guard(lock);
    fail_call = n;
}

void
cuda_emulator_no_memory_at(uint64_t n)
{
    const std::lock_guard<std::mutex> guard(lock);
    no_memory_at = n;
}

void
cuda_emulator_set_memory(uint64_t bytes)
{
    const std::lock_guard<std::mutex> guard(lock);
    all_memory = bytes ? bytes : TEBIBYTE;
}

uint64_t
cuda_emulator_done(void)
{
    const std::lock_guard<std::mutex> guard(lock);
    return done;
}

uint64_t
cuda_emulator_calls(void)
{
    const std::lock_guard<std::mutex> guard(lock);
    return calls;
}

uint64_t
cuda_emulator_graphs(void)
{
    const std::lock_guard<std::mutex> guard(lock);
    return launched_graphs;
}

uint64_t
cuda_emulator_records(void)
{
    const std::lock_guard<std::mutex> guard(lock);
    return records;
}

uint64_t
cuda_emulator_updates(void)
{
    const std::lock_guard<std::mutex> guard(lock);
    return updates;
}

void
cuda_emulator_refuse_update_at(uint64_t n)
{
    const std::lock_guard<std::mutex> guard(lock);
    refuse_update_at = n;
}

void
cuda_emulator_fail_graph(cuda_graph_call call, uint64_t n, uint64_t times)
{
    const std::lock_guard<std::mutex> guard(lock);
    graph_failures[call] = {n, times};
}

uint64_t
cuda_emulator_failed_graphs(void)
{
    const std::lock_guard<std::mutex> guard(lock);
    return failed_graphs;
}

void
cuda_emulator_load_lazily(bool wanted)
{
    const std::lock_guard<std::mutex> guard(lock);
    loads_lazily = wanted;
}

uint64_t
cuda_emulator_late_loads(void)
{
    const std::lock_guard<std::mutex> guard(lock);
    return late_loads;
}

uint64_t
cuda_emulator_waits(void)
{
    const std::lock_guard<std::mutex> guard(lock);
    return host_waits;
}

static void
print_to_host(void)
{
    fprintf(
        stderr, "cuda: %llu bytes to the host\ncuda: %llu waits\ncuda: %llu graphs, %llu records\n",
        static_cast<unsigned long long>(to_host), static_cast<unsigned long long>(host_waits),
        static_cast<unsigned long long>(launched_graphs), static_cast<unsigned long long>(records));
    if (loads_lazily)
        fprintf(stderr, "cuda: %llu kernels loaded beside a record\n",
                static_cast<unsigned long long>(late_loads));
    fprintf(stderr, "cuda: %llu calls, %llu kernels, copies and fills, %llu allocations\n",
            static_cast<unsigned long long>(calls), static_cast<unsigned long long>(done),
            static_cast<unsigned long long>(allocations));
    for (int gpu = 0; gpu < 64; gpu++)
        if (seen >> gpu & 1)
            fprintf(stderr, "cuda: streams on GPU %d\n", gpu);
}

/* For programs that tests start, and to run a test in another way: EXO_CUDA_EMULATOR is "fail_at=200
 * memory=9000 gpus=2 first=1 capability=80 seed=7 races=1 lazy=1 say=1", of which each may be absent. With
 * races=1 races are watched whatever the test wants. With lazy=1 kernels are loaded lazily. With say=1 the process says at its end how much it
 * copied to the host, how often it waited for a stream, how many graphs it launched and recorded, its
 * calls and allocations, and on which GPUs it had streams. */
__attribute__((constructor)) static void
read_environment(void)
{
    static const struct {
        const char *name;
        void (*set)(uint64_t value);
    } settings[] = {
        {"fail_at=", cuda_emulator_fail_at},
        {"fail_call=", cuda_emulator_fail_call},
        {"memory=", cuda_emulator_set_memory},
        {"gpus=", [](uint64_t value) { cuda_emulator_set_gpus(static_cast<int>(value)); }},
        {"seed=", cuda_emulator_seed},
        {"first=", [](uint64_t value) { cuda_emulator_set_first(static_cast<int>(value)); }},
        {"capability=",
         [](uint64_t value) { cuda_emulator_set_capability(static_cast<int>(value)); }},
        {"races=", [](uint64_t value) { cuda_emulator_always_watch(value != 0); }},
        {"lazy=", [](uint64_t value) { cuda_emulator_load_lazily(value != 0); }},
        {"say=", [](uint64_t) { atexit(print_to_host); }},
    };
    const char *text = getenv("EXO_CUDA_EMULATOR");
    for (const auto &s : settings) {
        const char *at = text ? strstr(text, s.name) : NULL;
        if (at)
            s.set(strtoull(at + strlen(s.name), NULL, 10));
    }
}

/* Shows the symbols of a plugin with this emulator to shared objects such as the NCCL of the tests. */
__attribute__((constructor)) static void
show_symbols(void)
{
    Dl_info own;
    if (dladdr(reinterpret_cast<void *>(cuda_emulated_set_poll), &own) && own.dli_fname)
        (void)dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
}
