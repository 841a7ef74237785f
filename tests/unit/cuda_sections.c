/* Sections of work on the CUDA runtime of the tests: what is put off is started in its order, as a
 * graph if it came before, and everything that needs it sees its results. Read next:
 * nn/cuda/sections.h. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/device.h>
#include <exogym/ipc.h>

#include "cuda/emulator.h"
#include "nn/cuda/open.h"
#include "nn/cuda/side.h"
#include "nn/device/device_impl.h"

enum {
    COUNT = 64,
    PAIRS = 6,       /* of requests, in a section that is enough for a graph */
    MANY_PAIRS = 300 /* so that the form has few graphs */
};

/* What all devices were asked for. */
typedef struct counts {
    uint64_t calls, graphs, records, updates;
} counts;

static counts
count(void)
{
    return (counts){cuda_emulator_calls(), cuda_emulator_graphs(), cuda_emulator_records(),
                    cuda_emulator_updates()};
}

static exo_status
try_open(exo_device **out, const char *asked, exo_err *err)
{
    cr_assert_eq(asked ? setenv("EXOGYM_CUDA_GRAPHS", asked, 1) : unsetenv("EXOGYM_CUDA_GRAPHS"),
                 0);
    return exo_cuda_open(out, 0, err);
}

static exo_device *
open_gpu(const char *asked)
{
    exo_device *gpu = NULL;
    exo_err err = {0};
    cr_assert_eq(try_open(&gpu, asked, &err), EXO_OK, "%s", err.text);
    return gpu;
}

static void
close_gpu(exo_device *gpu)
{
    exo_cuda_close(gpu);
    cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0);
}

/* Arrays of a device whose elements go through the same numbers. */
typedef struct work {
    exo_device *gpu;
    exo_array y, ones;
    float divisor; /* of y; graphs know it, but not the other numbers of a request */
    float value;   /* that every element of y must have */
    float one;     /* that of ones */
} work;

static void
work_init(work *w, exo_device *gpu, size_t count)
{
    exo_err err = {0};
    *w = (work){.gpu = gpu, .one = 1, .divisor = 2};
    cr_assert_eq(exo_array_init(&w->y, gpu, EXO_F32, count, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_array_init(&w->ones, gpu, EXO_F32, count, &err), EXO_OK, "%s", err.text);
    exo_vec_fill(w->ones, 1);
}

static void
work_release(work *w)
{
    exo_array_release(&w->y);
    exo_array_release(&w->ones);
}

/* Asks for y = y / divisor, y = y + b ones, some times over: two requests, of which each needs the one
 * before. */
static void
ask(work *w, float b, size_t times)
{
    for (size_t i = 0; i < times; i++) {
        exo_vec_divide(w->y, w->divisor);
        exo_vec_axpy(w->y, b, w->ones);
        w->value = w->value / w->divisor + b * w->one;
    }
}

static void
section(work *w, float b, size_t times)
{
    exo_err err = {0};
    exo_device_section_begin(w->gpu);
    ask(w, b, times);
    cr_assert_eq(exo_device_section_end(w->gpu, &err), EXO_OK, "%s", err.text);
}

static void
check(const work *w)
{
    static float y[COUNT];
    exo_err err = {0};
    cr_assert_leq(w->y.count, COUNT);
    cr_assert_eq(exo_array_read(w->y, y, &err), EXO_OK, "%s", err.text);
    for (size_t i = 0; i < w->y.count; i++)
        cr_assert_eq(y[i], w->value, "element %zu is %g instead of %g", i, (double)y[i],
                     (double)w->value);
}

/* --- Graphs ----------------------------------------------------------------------------------- */

Test(cuda_sections, the_environment_asks_for_them)
{
    exo_device *gpu = NULL;
    exo_err err = {0};
    const char *const off[] = {NULL, "", "off"};
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
        work w;
        gpu = open_gpu(off[i]);
        work_init(&w, gpu, COUNT);
        for (size_t s = 0; s < 4; s++)
            section(&w, 1, PAIRS);
        check(&w);
        cr_expect_eq(cuda_emulator_graphs(), 0);
        work_release(&w);
        close_gpu(gpu);
    }
    cr_expect_eq(try_open(&gpu, "yes", &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "EXOGYM_CUDA_GRAPHS: expected off or on, got 'yes'");
    cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0);
}

Test(cuda_sections, a_section_that_came_before_is_a_graph)
{
    work w;
    exo_device *gpu = open_gpu("on");
    work_init(&w, gpu, COUNT);
    for (size_t s = 0; s < 6; s++) {
        section(&w, 1, PAIRS);
        cr_expect_eq(cuda_emulator_graphs(), s);
        if (CUDA_EMULATOR_EQUAL_BYTES)
            cr_expect_eq(cuda_emulator_records(), s > 0);
    }
    check(&w);
    for (size_t s = 0; s < 3; s++) { /* few requests, and requests without a section */
        section(&w, 1, 2);
        ask(&w, 1, PAIRS);
    }
    check(&w);
    cr_expect_eq(cuda_emulator_graphs(), 5);
    work_release(&w);
    close_gpu(gpu);
}

/* The second time a form is recorded; with other numbers again, a form of long lists has as many
 * graphs as copies from the host have slots, and then the oldest is changed. */
Test(cuda_sections, other_numbers_change_a_graph)
{
    for (uint64_t refused = 0; refused < 3; refused++) {
        work w;
        exo_device *gpu = open_gpu("on");
        const counts before = count();
        cuda_emulator_refuse_update_at(refused);
        work_init(&w, gpu, COUNT);
        for (size_t s = 0; s < 12; s++) {
            w.divisor = (float)(2 + s);
            section(&w, 1, MANY_PAIRS);
            check(&w);
        }
        cuda_emulator_refuse_update_at(0);
        const counts now = count();
        cr_expect_eq(now.graphs - before.graphs, 11);
        cr_expect_eq(now.records - before.records, 11);
        cr_expect_eq(now.updates - before.updates, 11 - 4 - (refused > 0));
        work_release(&w);
        close_gpu(gpu);
    }
}

/* Lists of one form that take turns, as those of equal layers do, have a graph each. */
Test(cuda_sections, equal_layers_have_a_graph_each)
{
    enum {
        LAYERS = 24,
        STEPS = 4
    };
    work layers[LAYERS];
    exo_device *gpu = open_gpu("on");
    for (size_t i = 0; i < LAYERS; i++)
        work_init(&layers[i], gpu, 1);
    counts before = count();
    for (size_t s = 0; s < STEPS; s++) {
        if (s == 2)
            before = count();
        for (size_t i = 0; i < LAYERS; i++)
            section(&layers[i], (float)(1 + s), PAIRS);
    }
    cr_expect_eq(count().graphs - before.graphs, 2 * LAYERS);
    if (CUDA_EMULATOR_EQUAL_BYTES)
        cr_expect_eq(count().records, before.records);
    for (size_t i = 0; i < LAYERS; i++) {
        check(&layers[i]);
        work_release(&layers[i]);
    }
    close_gpu(gpu);
}

/* Factors change from step to step without another record, and no graph that is under way sees those
 * of the next one. With more of them than cells, the rest is as all other numbers. */
Test(cuda_sections, late_numbers_are_no_other_graph)
{
    const size_t pairs[] = {PAIRS, MANY_PAIRS, 1100};
    (void)cuda_emulator_watch_races(true);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const counts before = count();
        work w;
        cuda_emulator_seed(i);
        exo_device *gpu = open_gpu("on");
        work_init(&w, gpu, 3);
        for (size_t s = 0; s < 6; s++)
            section(&w, (float)s, pairs[i]);
        check(&w);
        section(&w, 5, pairs[i]);
        check(&w);
        const counts now = count();
        cr_expect_eq(now.graphs - before.graphs, 6);
        if (CUDA_EMULATOR_EQUAL_BYTES)
            cr_expect_eq(now.records - before.records, i < 2 ? 1 : 5);
        work_release(&w);
        close_gpu(gpu);
    }
}

/* The addresses of small copies are late, too; those of large ones are not. */
Test(cuda_sections, small_copies_go_elsewhere_in_the_same_graph)
{
    enum {
        PLACES = 8,
        MOST = 300 /* elements of a copy */
    };
    static float got[PLACES * MOST];
    exo_err err = {0};
    (void)cuda_emulator_watch_races(true);
    for (size_t large = 0; large < 2; large++) {
        const size_t n = large ? MOST : COUNT;
        const counts before = count();
        work w;
        exo_array places;
        exo_device *gpu = open_gpu("on");
        work_init(&w, gpu, n);
        cr_assert_eq(exo_array_init(&places, gpu, EXO_F32, PLACES * n, &err), EXO_OK);
        float expected[PLACES];
        for (size_t p = 0; p < PLACES; p++) {
            exo_device_section_begin(gpu);
            ask(&w, (float)p, PAIRS);
            exo_vec_copy(exo_array_part(places, p * n, n), w.y);
            cr_assert_eq(exo_device_section_end(gpu, &err), EXO_OK, "%s", err.text);
            expected[p] = w.value;
        }
        cr_assert_eq(exo_array_read(places, got, &err), EXO_OK, "%s", err.text);
        for (size_t i = 0; i < PLACES * n; i++)
            cr_assert_eq(got[i], expected[i / n], "element %zu", i);
        if (CUDA_EMULATOR_EQUAL_BYTES)
            cr_expect_eq(count().records - before.records, large ? PLACES - 1 : 1);
        exo_array_release(&places);
        work_release(&w);
        close_gpu(gpu);
    }
}

/* Only the end of the outermost section starts the list, which an end without a begin does not. */
Test(cuda_sections, sections_lie_within_others)
{
    work w;
    exo_err err = {0};
    exo_device *gpu = open_gpu("on");
    work_init(&w, gpu, COUNT);
    cr_assert_eq(exo_device_synchronize(gpu, &err), EXO_OK, "%s", err.text);
    for (size_t s = 0; s < 3; s++) {
        const counts before = count();
        const uint64_t done = cuda_emulator_done();
        cr_assert_eq(exo_device_section_end(gpu, &err), EXO_OK, "%s", err.text);
        exo_device_section_begin(gpu);
        section(&w, 1, PAIRS);
        section(&w, 2, PAIRS);
        cr_expect_eq(count().calls, before.calls);
        cr_assert_eq(exo_device_section_end(gpu, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(count().graphs - before.graphs, s > 0);
        check(&w);
        cr_expect_geq(cuda_emulator_done() - done, 4 * PAIRS);
    }
    work_release(&w);
    close_gpu(gpu);
}

/* More forms than a device keeps, one after the other, and then one again. */
Test(cuda_sections, the_oldest_graphs_make_room)
{
    work w;
    exo_device *gpu = open_gpu("on");
    work_init(&w, gpu, 1);
    for (size_t round = 0; round < 2; round++)
        for (size_t form = 0; form < 70; form++)
            for (size_t s = 0; s < 2; s++)
                section(&w, 1, PAIRS + form);
    cr_expect_eq(cuda_emulator_graphs(), 140);
    cr_expect_leq(cuda_emulator_things(), 160);
    check(&w);
    work_release(&w);
    close_gpu(gpu);
}

/* --- What ends a list ------------------------------------------------------------------------- */

/* In the midst of a section: the host reads, memory comes and goes, another stream follows. */
Test(cuda_sections, what_needs_the_work_has_it)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        work w, other;
        exo_err err = {0};
        exo_cuda_side *side = NULL;
        double sum = 0;
        cuda_emulator_seed(seed);
        exo_device *gpu = open_gpu("on");
        work_init(&w, gpu, COUNT);
        cr_assert_eq(exo_cuda_side_open(&side, gpu, &err), EXO_OK, "%s", err.text);
        for (size_t s = 0; s < 4; s++) {
            exo_device_section_begin(gpu);
            ask(&w, 1, PAIRS);
            check(&w);
            ask(&w, 2, PAIRS);
            cr_assert_eq(exo_vec_sum(w.y, &sum, &err), EXO_OK, "%s", err.text);
            cr_expect_eq(sum, (double)w.value * COUNT);
            work_init(&other, gpu, COUNT);
            ask(&other, 3, PAIRS);
            exo_vec_copy(w.y, other.y);
            w.value = other.value;
            work_release(&other);
            ask(&w, 4, PAIRS);
            const uint64_t calls = cuda_emulator_calls();
            cr_assert_eq(exo_cuda_side_follow(side, &err), EXO_OK, "%s", err.text);
            cr_expect_gt(cuda_emulator_calls() - calls, s < 1 ? 2 * PAIRS : 2);
            ask(&w, 5, PAIRS);
            cr_assert_eq(exo_device_synchronize(gpu, &err), EXO_OK, "%s", err.text);
            ask(&w, 6, PAIRS);
            cr_assert_eq(exo_device_section_end(gpu, &err), EXO_OK, "%s", err.text);
            check(&w);
        }
        cr_expect_gt(cuda_emulator_graphs(), 0);
        exo_cuda_side_close(&side);
        work_release(&w);
        close_gpu(gpu);
    }
}

/* Copies from the host, of which a section has more than there are slots, and whose memory changes
 * at once. Some are larger than a slot. */
Test(cuda_sections, copies_from_the_host_keep_their_order)
{
    enum {
        COPIES = 7,
        LARGE = 3 << 18
    };
    static float host[LARGE], got[LARGE];
    exo_err err = {0};
    for (uint64_t seed = 1; seed <= 4; seed++) {
        work w;
        exo_array large;
        cuda_emulator_seed(seed);
        exo_device *gpu = open_gpu("on");
        work_init(&w, gpu, COUNT);
        cr_assert_eq(exo_array_init(&large, gpu, EXO_F32, LARGE, &err), EXO_OK, "%s", err.text);
        for (size_t s = 0; s < 5; s++) {
            exo_device_section_begin(gpu);
            for (size_t c = 0; c < COPIES; c++) {
                w.one = (float)(s * COPIES + c);
                for (size_t i = 0; i < COUNT; i++)
                    host[i] = w.one;
                exo_array_send(w.ones, host);
                ask(&w, 1, PAIRS);
            }
            for (size_t i = 0; i < LARGE; i++)
                host[i] = (float)(i % 1000 + s);
            exo_array_send(large, host);
            memset(host, 0, sizeof host);
            cr_assert_eq(exo_device_section_end(gpu, &err), EXO_OK, "%s", err.text);
        }
        check(&w);
        cr_assert_eq(exo_array_read(large, got, &err), EXO_OK, "%s", err.text);
        for (size_t i = 0; i < LARGE; i++)
            cr_assert_eq(got[i], (float)(i % 1000 + 4));
        exo_array_release(&large);
        work_release(&w);
        close_gpu(gpu);
    }
}

/* --- Others, and failures --------------------------------------------------------------------- */

static atomic_int running; /* threads */

static void *
run_sections(void *context)
{
    work *w = context;
    for (size_t s = 0; s < 24; s++) { /* each list comes twice; the first time it is recorded */
        w->divisor = (float)(2 + s / 2);
        section(w, (float)(s % 3), MANY_PAIRS);
    }
    running--;
    return NULL;
}

/* Opens a device with memory that others may hold, and closes both. */
static void
come_and_go(void)
{
    exo_device *gpu = open_gpu("on");
    exo_ipc_array *x = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_ipc_array_new(&x, gpu, EXO_F32, COUNT, &err), EXO_OK, "%s", err.text);
    exo_ipc_array_drop(&x);
    (void)exo_ipc_array_count(); /* frees it */
    exo_cuda_close(gpu);
}

/* Threads record at once, each on the stream of its device, while other devices of the GPU come and go:
 * their libraries wait for the GPU at the end, and so does who frees memory that others may hold. */
Test(cuda_sections, devices_of_other_threads_are_left_alone)
{
    enum {
        THREADS = 3
    };
    work w[THREADS];
    pthread_t threads[THREADS];
    for (size_t t = 0; t < THREADS; t++) {
        work_init(&w[t], open_gpu("on"), COUNT);
    }
    running = THREADS;
    for (size_t t = 0; t < THREADS; t++)
        cr_assert_eq(pthread_create(&threads[t], NULL, run_sections, &w[t]), 0);
    while (running > 0)
        come_and_go();
    for (size_t t = 0; t < THREADS; t++)
        cr_assert_eq(pthread_join(threads[t], NULL), 0);
    for (size_t t = 0; t < THREADS; t++)
        check(&w[t]);
    for (size_t t = 0; t < THREADS; t++) {
        work_release(&w[t]);
        exo_cuda_close(w[t].gpu);
    }
    cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0);
}

/* Sections whose graphs are recorded, changed and launched again, with their results. */
static void
run_kinds(work *w)
{
    for (size_t s = 0; s < 24; s++) {
        w->divisor = (float)(2 + s / 2);
        section(w, (float)(s % 3), MANY_PAIRS);
        if (s % 5 == 4)
            check(w);
    }
    check(w);
}

/* CUDA may refuse any part of a graph, once or always. The requests are started one by one, and a device
 * does not try for ever. */
Test(cuda_sections, what_cuda_refuses_as_a_graph_is_started_one_by_one)
{
    for (int call = 0; call < CUDA_GRAPH_CALLS; call++)
        for (uint64_t n = 1; n <= 5; n++) {
            work w;
            const counts before = count();
            const uint64_t failed = cuda_emulator_failed_graphs();
            const uint64_t times = n == 5 ? UINT64_MAX : 1, at = n == 5 ? 1 : n;
            cuda_emulator_seed(n);
            exo_device *gpu = open_gpu("on");
            work_init(&w, gpu, COUNT);
            cuda_emulator_fail_graph((cuda_graph_call)call, at, times);
            run_kinds(&w);
            const counts now = count();
            const uint64_t refused = cuda_emulator_failed_graphs() - failed;
            cuda_emulator_fail_graph((cuda_graph_call)call, 0, 0);
            cr_expect(n == 5 ? refused > 1 && refused <= 16 : refused == 1, "%d, %zu: %zu", call,
                      (size_t)n, (size_t)refused);
            cr_expect_leq(now.records - before.records, 23);
            if (n < 5)
                cr_expect_geq(now.graphs - before.graphs, 21);
            work_release(&w);
            close_gpu(gpu);
        }
}

/* A refusal hides no failure of the GPU. */
Test(cuda_sections, a_gpu_that_fails_beside_a_refused_graph_is_reported)
{
    for (int call = 0; call < CUDA_GRAPH_CALLS; call++) {
        work w;
        exo_err err = {0};
        exo_device *gpu = open_gpu("on");
        work_init(&w, gpu, COUNT);
        section(&w, 1, PAIRS);
        cuda_emulator_fail_graph((cuda_graph_call)call, 1, UINT64_MAX);
        cuda_emulator_fail_at(1);
        exo_device_section_begin(gpu);
        ask(&w, 1, PAIRS);
        exo_status st = exo_device_section_end(gpu, &err);
        if (st == EXO_OK)
            st = exo_device_synchronize(gpu, &err);
        cr_expect_eq(st, EXO_FAILED, "%d", call);
        cr_expect(strstr(err.text, "cudaErrorLaunchFailure"), "%s", err.text);
        cuda_emulator_fail_graph((cuda_graph_call)call, 0, 0);
        cuda_emulator_fail_at(0);
        work_release(&w);
        exo_cuda_close(gpu);
    }
}

/* With CUDA's lazy loading, a kernel that was never launched cannot be recorded: small copies have one, and
 * large ones none. */
Test(cuda_sections, a_kernel_is_not_loaded_in_the_midst_of_a_record)
{
    enum {
        LARGE = 300,
        SECTIONS = 6
    };
    work w;
    exo_array place;
    exo_err err = {0};
    static float got[LARGE];
    cuda_emulator_load_lazily(true);
    exo_device *gpu = open_gpu("on");
    work_init(&w, gpu, LARGE);
    cr_assert_eq(exo_array_init(&place, gpu, EXO_F32, LARGE, &err), EXO_OK);
    for (size_t s = 0; s < SECTIONS; s++) {
        const size_t n = s == 0 ? LARGE : 10;
        const uint64_t graphs = cuda_emulator_graphs();
        exo_device_section_begin(gpu);
        ask(&w, (float)s, PAIRS);
        exo_vec_copy(exo_array_part(place, 0, n), exo_array_part(w.y, 0, n));
        cr_assert_eq(exo_device_section_end(gpu, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(cuda_emulator_graphs() - graphs, s > 1);
        cr_assert_eq(exo_array_read(exo_array_part(place, 0, n), got, &err), EXO_OK, "%s",
                     err.text);
        for (size_t i = 0; i < n; i++)
            cr_assert_eq(got[i], w.value, "section %zu, element %zu", s, i);
    }
    cr_expect_eq(cuda_emulator_late_loads(), 1);
    exo_array_release(&place);
    work_release(&w);
    close_gpu(gpu);
}

/* Makes all graphs stale, so that the next one is changed. */
static exo_status
use_a_plan(exo_device *gpu, exo_err *err)
{
    const exo_linear_shape shape = {
        .rows = 1, .in = 1, .out = 1, .dtype = EXO_F32, .out_dtype = EXO_F32};
    exo_plan *plan = NULL;
    const exo_status st = exo_plan_new(&plan, gpu, EXO_SHAPE_LINEAR, &shape, err);
    exo_plan_free(&plan);
    return st;
}

/* Sections that are new, recorded, changed and launched, with copies and a read to `host`. */
static exo_status
try_sections(exo_device *gpu, float host[COUNT], exo_err *err)
{
    exo_array y = {0};
    for (size_t i = 0; i < COUNT; i++)
        host[i] = (float)(1 + i);
    exo_status st = exo_array_init(&y, gpu, EXO_F32, COUNT, err);
    for (size_t s = 0; s < 8 && st == EXO_OK; s++) {
        exo_device_section_begin(gpu);
        exo_array_send(y, host);
        for (size_t i = 0; i < 2 * PAIRS; i++)
            exo_vec_divide(y, s == 7 ? 6 : (float)s);
        exo_vec_scale(y, (float)s);
        st = exo_device_section_end(gpu, err);
        if (st == EXO_OK && s == 3)
            st = use_a_plan(gpu, err);
    }
    if (st == EXO_OK)
        st = exo_array_read(y, host, err);
    exo_array_release(&y);
    const exo_status later = exo_device_synchronize(gpu, st == EXO_OK ? err : NULL);
    return st == EXO_OK ? later : st;
}

/* The n-th call, or piece of work, fails. Returns whether that was reported; else the results are those
 * without failures, since a graph is done without. */
static bool
fail(uint64_t n, void (*plan)(uint64_t n), const char *text, const float expected[COUNT])
{
    exo_err err = {0};
    float got[COUNT];
    exo_device *gpu = open_gpu("on");
    cuda_emulator_seed(n);
    plan(n);
    const exo_status st = try_sections(gpu, got, &err);
    cr_expect(st == EXO_OK || strstr(err.text, text), "%zu: %s", (size_t)n, err.text);
    cr_expect(st != EXO_OK || memcmp(got, expected, sizeof got) == 0, "%zu", (size_t)n);
    plan(0);
    if (st != EXO_OK &&
        plan == cuda_emulator_fail_call) { /* the device's memory is not freed there */
        exo_err again = {0};
        (void)exo_device_synchronize(gpu, &again);
    }
    exo_cuda_close(gpu);
    return st != EXO_OK;
}

Test(cuda_sections, each_call_and_each_piece_of_work_that_fails_is_reported)
{
    exo_err err = {0};
    float expected[COUNT];
    exo_device *gpu = open_gpu("on");
    const counts before = count();
    const uint64_t done = cuda_emulator_done();
    cr_assert_eq(try_sections(gpu, expected, &err), EXO_OK, "%s", err.text);
    const uint64_t calls = count().calls - before.calls, works = cuda_emulator_done() - done;
    cr_expect_gt(count().updates, before.updates);
    close_gpu(gpu);
    const uint64_t in_graphs = (count().graphs - before.graphs) * (2 * PAIRS + 6);
    uint64_t unreported = 0;
    for (uint64_t n = 1; n <= calls; n++)
        unreported += !fail(n, cuda_emulator_fail_call, "cudaErrorInvalidValue", expected);
    cr_expect_leq(unreported, 4 + in_graphs, "%zu of %zu", (size_t)unreported, (size_t)calls);
    for (uint64_t n = 1; n <= works; n++)
        cr_expect(fail(n, cuda_emulator_fail_at, "cudaErrorLaunchFailure", expected), "%zu",
                  (size_t)n);
    cr_expect_eq(cuda_emulator_things(), 0);
}
