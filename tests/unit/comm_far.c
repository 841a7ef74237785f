/* Collectives between actors give the same bits as collectives between threads, with each codec,
 * and count the same traffic. Over emulated links they take at least the model's time.
 *
 * Each test owns its members; each member's thread owns its `struct member`. Read next:
 * runtime/comm/far.h, comm.c. */
#include <criterion/criterion.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/memory.h>

#include "comm/far_impl.h"
#include "comm/near_impl.h"
#include "comm/timing.h"
#include "support/far_members.h"

enum {
    MAX_MEMBERS = 9,
    OPERATIONS = 6, /* of all members */
    /* also one in islands of even and of odd ranks, and one more of all members */
    ALL_OPERATIONS = 11
};

static const char *const codecs[] = {NULL,   "raw",
                                     "fp16", "bf16",
                                     "fp8",  "{name: fp8, format: e5m2}",
                                     "int8", "{name: int8, block: 7, scale: bf16}",
                                     "int4", "e3m0"};

enum {
    CODECS = sizeof codecs / sizeof *codecs
};

/* --- Members ---------------------------------------------------------------------------------- */

/* The parameters of one run through all operations. */
struct what {
    uint32_t size;
    size_t count;
    const exo_comm_edge *edge;
    int operations;
};

struct member {
    const struct what *what;
    exo_comm *comm;
    uint32_t rank;
    float *data; /* (ALL_OPERATIONS, count) the result of each operation */
    exo_traffic traffic;
    exo_time took;
    exo_status status;
    exo_err err;
};

static void
fill(const struct member *m, float *data, int operation)
{
    for (size_t i = 0; i < m->what->count; i++)
        data[i] = (float)((int)((i * 7919 + m->rank * 104729 + (unsigned)operation * 31) % 20011) -
                          10005) /
                  997;
}

/* Each member swaps with its neighbour, 0 with 1 and so on. Without one it swaps nothing. */
static exo_status
swap_with_neighbour(struct member *m, exo_group *group, exo_array data)
{
    uint32_t partner = m->rank ^ 1;
    exo_request *request = NULL;
    if (partner >= m->what->size)
        return EXO_OK;
    exo_status st = exo_comm_begin_swap(&request, group, data, partner, &m->err);
    return st == EXO_OK ? exo_request_wait(&request, &m->err) : st;
}

/* Members of odd rank reduce twice, those of even rank once. Then the island's last member
 * broadcasts to its island. */
static exo_status
meet_in_islands(struct member *m, exo_group *group, float *data)
{
    uint32_t ranks[MAX_MEMBERS], size = 0;
    exo_group *island = NULL;
    for (uint32_t r = m->rank % 2; r < m->what->size; r += 2)
        ranks[size++] = r;
    exo_status st = exo_group_among(&island, group, ranks, size, &m->err);
    for (uint32_t i = 0; st == EXO_OK && i <= m->rank % 2; i++)
        st = exo_all_reduce(island, exo_host_array(EXO_F32, data, m->what->count),
                            i == 0 ? EXO_MEAN : EXO_SUM, &m->err);
    if (st == EXO_OK)
        st =
            exo_broadcast(island, exo_host_array(EXO_F32, data, m->what->count), size - 1, &m->err);
    exo_group_close(&island);
    return st;
}

static void *
member_main(void *argument)
{
    struct member *m = argument;
    exo_group *group = NULL;
    size_t count = m->what->count;
    exo_time began = exo_now(exo_clock_real());
    m->status = exo_group_open(&group, m->comm, m->rank, "member", &m->err);
    if (m->status != EXO_OK)
        return NULL;
    exo_group_set_timeout(group, 60 * EXO_SECOND);
    for (int operation = 0; operation < m->what->operations && m->status == EXO_OK; operation++) {
        float *data = m->data + (size_t)operation * count;
        fill(m, data, operation);
        switch (operation) {
        case 0:
            m->status =
                exo_all_reduce(group, exo_host_array(EXO_F32, data, count), EXO_MEAN, &m->err);
            break;
        case 1:
            m->status =
                exo_reduce_scatter(group, exo_host_array(EXO_F32, data, count), EXO_SUM, &m->err);
            break;
        case 2:
            m->status = exo_all_gather(group, exo_host_array(EXO_F32, data, count), &m->err);
            break;
        case 3:
            m->status = exo_broadcast(group, exo_host_array(EXO_F32, data, count),
                                      1 % m->what->size, &m->err);
            break;
        case 4:
            memset(data, 0, count * sizeof *data);
            for (size_t i = 0; i < count; i++)
                ((int32_t *)(void *)data)[i] = (int32_t)(i * (m->rank + 1));
            m->status =
                exo_all_reduce(group, exo_host_array(EXO_I32, data, count), EXO_SUM, &m->err);
            break;
        case 5:
            m->status = exo_barrier(group, &m->err);
            break;
        case 6:
            m->status = meet_in_islands(m, group, data);
            break;
        case 7:
            m->status =
                exo_all_reduce(group, exo_host_array(EXO_F32, data, count), EXO_SUM, &m->err);
            break;
        case 8:
            m->status = exo_all_to_all(
                group, exo_host_array(EXO_F32, data, count / m->what->size * m->what->size),
                &m->err);
            break;
        case 9:
            m->status = swap_with_neighbour(m, group, exo_host_array(EXO_F32, data, count));
            break;
        case 10:
            m->status = exo_shift(group, exo_host_array(EXO_F32, data, count), 2, &m->err);
            break;
        }
    }
    m->took = exo_now(exo_clock_real()) - began;
    m->traffic = exo_group_traffic(group);
    exo_group_close(&group);
    return NULL;
}

static void
run_members(struct member members[MAX_MEMBERS], const struct what *what)
{
    pthread_t threads[MAX_MEMBERS];
    for (uint32_t r = 0; r < what->size; r++)
        cr_assert_eq(pthread_create(&threads[r], NULL, member_main, &members[r]), 0);
    for (uint32_t r = 0; r < what->size; r++)
        pthread_join(threads[r], NULL);
    for (uint32_t r = 0; r < what->size; r++)
        cr_assert_eq(members[r].status, EXO_OK, "rank %u: %s", r, members[r].err.text);
}

static void
init_members(struct member members[MAX_MEMBERS], const struct what *what)
{
    for (uint32_t r = 0; r < what->size; r++)
        members[r] = (struct member){
            .what = what,
            .rank = r,
            .data = calloc(ALL_OPERATIONS * what->count + 1, sizeof *members[r].data)};
}

static void
release_members(struct member members[MAX_MEMBERS], const struct what *what)
{
    for (uint32_t r = 0; r < what->size; r++)
        free(members[r].data);
}

static void
run_local(struct member members[MAX_MEMBERS], const struct what *what)
{
    exo_comm *comm = NULL;
    init_members(members, what);
    cr_assert_eq(exo_comm_local_on(&comm, what->size, exo_clock_real(), what->edge, NULL), EXO_OK);
    for (uint32_t r = 0; r < what->size; r++)
        members[r].comm = comm;
    run_members(members, what);
    exo_comm_drop(&comm);
}

static void
run_far(struct member members[MAX_MEMBERS], const struct what *what)
{
    far_members far;
    init_members(members, what);
    far_members_open(&far, what->size, what->edge);
    for (uint32_t r = 0; r < what->size; r++)
        members[r].comm = far.comms[r];
    run_members(members, what);
    far_members_close(&far);
}

/* --- Results ---------------------------------------------------------------------------------- */

static void
expect_same(const struct what *what, const char *codec)
{
    struct member near[MAX_MEMBERS], far[MAX_MEMBERS];
    run_local(near, what);
    run_far(far, what);
    for (uint32_t r = 0; r < what->size; r++) {
        const exo_traffic *a = &near[r].traffic, *b = &far[r].traffic;
        for (int operation = 0; operation < what->operations; operation++) {
            /* after a reduce_scatter each member has only its own shard */
            size_t first = 0, length = what->count;
            if (operation == 1)
                exo_shard(what->count, what->size, r, &first, &length);
            first += (size_t)operation * what->count;
            cr_expect(length == 0 || memcmp(near[r].data + first, far[r].data + first,
                                            length * sizeof(float)) == 0,
                      "%s: %u members, %zu elements, operation %d, rank %u", codec, what->size,
                      what->count, operation, r);
        }
        cr_expect(a->messages == b->messages && a->items == b->items &&
                      a->payload_bytes == b->payload_bytes &&
                      a->encoded_bytes == b->encoded_bytes && a->wire_bytes == b->wire_bytes &&
                      a->drops == b->drops,
                  "%s: %u members, %zu elements", codec, what->size, what->count);
        cr_expect_eq(a->items, ALL_OPERATIONS + 1 + r % 2 - ((r ^ 1) >= what->size));
    }
    release_members(near, what);
    release_members(far, what);
}

Test(comm_far, bits_and_traffic_are_those_of_threads, .timeout = 120)
{
    static const size_t counts[] = {0, 1, 3, 1000, 4097};
    for (size_t c = 0; c < CODECS; c++)
        for (uint32_t size = 1; size <= MAX_MEMBERS; size += 2)
            for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
                const exo_comm_edge edge = {.name = "edge", .codec = codecs[c]};
                const struct what what = {
                    .size = size, .count = counts[n], .edge = &edge, .operations = ALL_OPERATIONS};
                expect_same(&what, codecs[c] ? codecs[c] : "none");
            }
}

/* Members of even and of odd ranks are near each other. */
static exo_links *
two_places(void)
{
    static exo_host_spec specs[MAX_MEMBERS];
    static const exo_link_spec far = {.bandwidth = 1e9, .transport = EXO_LINK_IDEAL},
                               close = {.bandwidth = 1e12, .transport = EXO_LINK_IDEAL};
    exo_links *links = NULL;
    for (uint32_t r = 0; r < MAX_MEMBERS; r++)
        specs[r] = (exo_host_spec){.up = INFINITY, .down = INFINITY};
    cr_assert_eq(exo_links_new(&links, specs, MAX_MEMBERS, &far, 1, NULL), EXO_OK);
    for (uint32_t a = 0; a < MAX_MEMBERS; a++)
        for (uint32_t b = a % 2; b < MAX_MEMBERS; b += 2)
            if (a != b)
                cr_assert_eq(exo_links_between(links, a, b, &close, NULL), EXO_OK);
    return links;
}

Test(comm_far, each_way_has_the_bits_and_traffic_of_threads, .timeout = 120)
{
    static const char *const ways[] = {"tree", "ring", "halving", "hierarchical", "auto"};
    static const uint32_t hosts[MAX_MEMBERS] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    static const size_t counts[] = {0, 1, 1000, 4097};
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
        for (uint32_t size = 1; size <= MAX_MEMBERS; size++)
            for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
                exo_links *links = two_places();
                const exo_comm_edge edge = {.name = "edge",
                                            .links = links,
                                            .hosts = hosts,
                                            .origin = exo_now(exo_clock_real()),
                                            .way = ways[w],
                                            .any_bits = true};
                const struct what what = {
                    .size = size, .count = counts[n], .edge = &edge, .operations = ALL_OPERATIONS};
                expect_same(&what, ways[w]);
                exo_links_free(&links);
            }
}

/* --- Links ------------------------------------------------------------------------------------ */

/* The time of all operations in sequence, by the timing model. */
static exo_time
model(const struct what *what, const char *codec)
{
    exo_time begins[MAX_MEMBERS] = {0}, ends[MAX_MEMBERS], scratch[2 * MAX_MEMBERS];
    uint64_t bytes[MAX_MEMBERS];
    exo_codec *encoder = NULL;
    cr_assert_eq(exo_comm_codec_new(&encoder, codec, NULL), EXO_OK);
    const exo_collective operations[] = {EXO_ALL_REDUCE, EXO_REDUCE_SCATTER, EXO_ALL_GATHER,
                                         EXO_BROADCAST,  EXO_ALL_REDUCE,     EXO_BARRIER};
    for (int i = 0; i < OPERATIONS; i++) {
        const exo_collective_args args = {.operation = operations[i],
                                          .count = i == 5 ? 0 : what->count,
                                          .dtype = i == 4 ? EXO_I32 : EXO_F32,
                                          .root = i == 3 ? 1 % what->size : 0,
                                          .size = what->size,
                                          .codec = i < 3 ? encoder : NULL};
        cr_assert_eq(
            exo_comm_timing(what->edge, what->size, &args, begins, ends, scratch, bytes, NULL),
            EXO_OK);
        memcpy(begins, ends, sizeof begins);
    }
    exo_codec_free(&encoder);
    exo_time last = 0;
    for (uint32_t r = 0; r < what->size; r++)
        last = begins[r] > last ? begins[r] : last;
    return last;
}

/* By hand: each member sends 8 (4 count + 132) bits at 1 Mbit/s, all at the same time, and each message
 * takes 10 ms more to arrive. Only the target of a member that begins later waits for it. */
Test(comm_far, the_messages_of_a_shift_pass_at_the_same_time)
{
    enum {
        MEMBERS = 5,
        LATE = 2
    };
    static const uint32_t hosts[MEMBERS] = {0, 1, 2, 3, 4};
    static const exo_link_spec link = {
        .bandwidth = 1e9, .latency = 10 * EXO_MS, .transport = EXO_LINK_IDEAL};
    const size_t count = 25500;
    const exo_time sends = (exo_time)(8 * (4 * count + 132)) * EXO_US, begins_late = EXO_SECOND / 2;
    for (uint32_t by = 0; by < MEMBERS; by++) {
        exo_host_spec specs[MEMBERS];
        exo_links *links = NULL;
        exo_time begins[MEMBERS] = {[LATE] = begins_late}, ends[MEMBERS], scratch[2 * MEMBERS];
        uint64_t bytes[MEMBERS];
        for (uint32_t r = 0; r < MEMBERS; r++)
            specs[r] = (exo_host_spec){.up = 1e6, .down = 1e6};
        cr_assert_eq(exo_links_new(&links, specs, MEMBERS, &link, 1, NULL), EXO_OK);
        const exo_comm_edge edge = {.links = links, .hosts = hosts};
        const exo_collective_args args = {
            .operation = EXO_SHIFT, .count = count, .root = by, .size = MEMBERS};
        cr_assert_eq(exo_comm_timing(&edge, MEMBERS, &args, begins, ends, scratch, bytes, NULL),
                     EXO_OK);
        for (uint32_t r = 0; r < MEMBERS; r++) {
            exo_time want = r == LATE && by == 0         ? begins_late
                            : by == 0                    ? 0
                            : r == LATE                  ? begins_late + sends
                            : r == (LATE + by) % MEMBERS ? begins_late + sends + link.latency
                                                         : sends + link.latency;
            cr_expect(ends[r] >= want && ends[r] < want + EXO_MS,
                      "by %u, member %u: %g s, not %g s", by, r, (double)ends[r] * 1e-9,
                      (double)want * 1e-9);
        }
        exo_links_free(&links);
    }
}

Test(comm_far, links_take_the_time_of_the_model_at_least, .timeout = 60)
{
    static const uint32_t hosts[3] = {0, 1, 2};
    static const exo_host_spec specs[3] = {{.name = "a", .up = 20e6, .down = 20e6},
                                           {.name = "b", .up = 10e6, .down = 20e6},
                                           {.name = "c", .up = 20e6, .down = 20e6}};
    static const exo_link_spec link = {
        .bandwidth = 1e9, .latency = 5 * EXO_MS, .transport = EXO_LINK_IDEAL};
    static const char *const some[] = {NULL, "int8"};
    for (int c = 0; c < 2; c++)
        for (int far = 0; far < 2; far++) {
            exo_links *links = NULL, *model_links = NULL;
            struct member members[MAX_MEMBERS];
            cr_assert_eq(exo_links_new(&links, specs, 3, &link, 1, NULL), EXO_OK);
            cr_assert_eq(exo_links_new(&model_links, specs, 3, &link, 1, NULL), EXO_OK);
            exo_comm_edge edge = {
                .name = "edge", .links = model_links, .hosts = hosts, .codec = some[c]};
            const struct what what = {
                .size = 3, .count = 20000, .edge = &edge, .operations = OPERATIONS};
            exo_time expected = model(&what, some[c]);
            edge.links = links;
            edge.origin = exo_now(exo_clock_real());
            (far ? run_far : run_local)(members, &what);
            exo_time took = 0;
            for (uint32_t r = 0; r < 3; r++)
                took = members[r].took > took ? members[r].took : took;
            cr_expect_geq(took, (exo_time)(0.98 * (double)expected),
                          "%s: took %g ms, the model says %g ms", far ? "far" : "local",
                          (double)took * 1e-6, (double)expected * 1e-6);
            release_members(members, &what);
            exo_links_free(&links);
            exo_links_free(&model_links);
        }
}

/* Without a wait of its own a message in an outage that never ends, or not before the deadline, would
 * pass at once, or its sender wait for ever. */
Test(comm_far, an_outage_lasts_until_the_deadline, .timeout = 60)
{
    static const uint32_t hosts[2] = {0, 1};
    static const exo_host_spec specs[2] = {{.name = "a", .up = 1e9, .down = 1e9},
                                           {.name = "b", .up = 1e9, .down = 1e9}};
    static const exo_time lengths[] = {0, 3600 * EXO_SECOND}; /* 0: for ever */
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const exo_link_change change = {.length = lengths[i], .factor = 0};
        const exo_link_spec link = {
            .bandwidth = 1e9, .transport = EXO_LINK_IDEAL, .changes = &change, .num_changes = 1};
        exo_links *links = NULL;
        far_members members;
        exo_group *group = NULL;
        exo_err err = {0};
        float value = 1;
        cr_assert_eq(exo_links_new(&links, specs, 2, &link, 1, NULL), EXO_OK);
        const exo_comm_edge edge = {
            .name = "edge", .links = links, .hosts = hosts, .origin = exo_now(exo_clock_real())};
        far_members_open(&members, 2, &edge);
        cr_assert_eq(exo_group_open(&group, members.comms[0], 0, "member", NULL), EXO_OK);
        exo_group_set_timeout(group, 200 * EXO_MS);
        cr_expect_eq(exo_all_reduce(group, exo_host_array(EXO_F32, &value, 1), EXO_MEAN, &err),
                     EXO_TIMEOUT);
        cr_expect(
            strstr(err.text, "all_reduce: the links do not let it through before the deadline"),
            "%s", err.text);
        exo_group_close(&group);
        far_members_close(&members);
        exo_links_free(&links);
    }
}

/* --- Members of two builds -------------------------------------------------------------------- */

static void *
layout_main(void *argument)
{
    struct member *m = argument;
    exo_group *group = NULL;
    m->status = exo_group_open(&group, m->comm, m->rank, "member", &m->err);
    if (m->status == EXO_OK)
        m->status = exo_all_reduce(group, exo_host_array(EXO_F32, m->data, m->what->count), EXO_SUM,
                                   &m->err);
    exo_group_close(&group);
    return NULL;
}

/* A member of another build may have boards of another layout, or say otherwise where they are: reading
 * them as one's own would give wrong sums. */
Test(comm_far, members_with_boards_of_another_layout_exchange_messages, .timeout = 60)
{
    enum {
        COUNT = 5000
    };
    const struct what what = {.count = COUNT};
    static float data[3][COUNT];
    pthread_t threads[3];
    for (int other = 0; other < 3; other++) {
        struct member m[3] = {0};
        far_members members;
        far_members_open(&members, 3, NULL);
        for (uint32_t r = 0; r < 3; r++) {
            exo_far *far = exo_far_of(members.comms[r]);
            far->near = exo_near_new(far);
            cr_assert_not_null(far->near);
            far->near->layout += other == 1 && r == 1;
            far->near->said -= other == 2 && r == 1 ? 8 : 0;
            for (size_t i = 0; i < COUNT; i++)
                data[r][i] = (float)(i % 1000 * (r + 1));
            m[r] = (struct member){
                .what = &what, .comm = members.comms[r], .rank = r, .data = data[r]};
            cr_assert_eq(pthread_create(&threads[r], NULL, layout_main, &m[r]), 0);
        }
        for (uint32_t r = 0; r < 3; r++) {
            const exo_far *far = exo_far_of(members.comms[r]);
            pthread_join(threads[r], NULL);
            cr_expect_eq(m[r].status, EXO_OK, "%s", m[r].err.text);
            cr_expect_eq(far->near->sets->near, !other, "member %u", r);
            for (size_t i = 0; i < COUNT; i++)
                cr_assert_eq(data[r][i], (float)(i % 1000 * 6), "member %u, element %zu", r, i);
        }
        far_members_close(&members);
    }
}
