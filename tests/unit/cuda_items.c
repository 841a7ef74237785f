/* Items whose arrays are on a GPU, on the CUDA runtime of the tests: each way that they go has the same
 * values, the same counted bytes, and leaves nothing on the GPU; also if processes end and calls
 * fail. Read next: runtime/graph/item_far.c, way.c. cli/gpu_items has the ways between workers. */
#include <criterion/criterion.h>

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/emulator.h"
#include "graph/item.h"
#include "graph/place.h"
#include "graph/run.h"
#include "graph/site.h"
#include "nn/cuda/open.h"

enum {
    COUNT = 300000, /* floats: more than a piece of pinned memory */
    ITEMS = 6,
    SEED = 7
};

static exo_device *
open_gpu(void)
{
    exo_device *device = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_cuda_open(&device, 0, &err), EXO_OK, "%s", err.text);
    return device;
}

static void
expect_nothing_left(void)
{
    cr_expect_eq(exo_ipc_array_count(), 0);
    cr_expect_eq(cuda_emulator_memory(), 0, "%zu bytes are left", (size_t)cuda_emulator_memory());
    cr_expect_eq(cuda_emulator_things(), 0, "%zu things", (size_t)cuda_emulator_things());
}

static float
value_at(size_t i, uint64_t version)
{
    return (float)(i % 1000) + (float)version;
}

/* An item with an array on the device, and one in host memory. */
static exo_status
make_item(exo_item **out, exo_device *device, uint64_t version, exo_err *err)
{
    static _Thread_local float values[COUNT];
    const exo_item_part parts[] = {{.dtype = EXO_F32, .count = COUNT, .device = device},
                                   {.dtype = EXO_I32, .count = 1}};
    exo_status st = exo_item_new(out, parts, 2, err);
    if (st != EXO_OK)
        return st;
    for (size_t i = 0; i < COUNT; i++)
        values[i] = value_at(i, version);
    (*out)->version = version;
    *(int32_t *)(*out)->parts[1].data = (int32_t)version;
    exo_array_send(exo_item_array(*out, 0), values);
    return EXO_OK;
}

/* Whether the arrays have the values of the item's version, as the device finds them. */
static bool
is_whole(const exo_item *item, exo_device *device, exo_err *err)
{
    static _Thread_local float values[COUNT];
    exo_array array;
    if (exo_item_import(&array, item, 0, device, err) != EXO_OK)
        return false;
    bool good = array.device == device && array.count == COUNT &&
                exo_array_read(array, values, err) == EXO_OK &&
                *(int32_t *)item->parts[1].data == (int32_t)item->version;
    for (size_t i = 0; good && i < COUNT; i++)
        good = values[i] == value_at(i, item->version);
    exo_array_release(&array);
    return good;
}

/* --- Runs of graphs --------------------------------------------------------------------------- */

static struct {
    bool from_cpu, to_cpu, without_device;
    _Atomic uint32_t came;
    _Atomic bool on_host;
} world;

static exo_device *
choose(bool cpu)
{
    return cpu ? exo_device_cpu() : open_gpu();
}

static void
close_chosen(exo_device *device)
{
    if (!exo_device_is_host(device))
        exo_cuda_close(device);
}

static exo_status
source_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    exo_device *device = choose(world.from_cpu);
    exo_port *out = exo_graph_output(actor, "arrays");
    exo_status st = EXO_OK;
    (void)self;
    for (uint64_t i = 0; st == EXO_OK && i < ITEMS; i++) {
        exo_item *item = NULL;
        exo_graph_phase(actor, "make");
        st = make_item(&item, device, i, err);
        if (st == EXO_OK)
            st = exo_port_send(out, &item, EXO_PORT_TIMEOUT, err);
    }
    close_chosen(device); /* the items do without it */
    return st;
}

static exo_status
sink_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    exo_device *device = choose(world.to_cpu);
    exo_port *in = exo_graph_input(actor, "arrays");
    exo_item *item = NULL;
    exo_status st;
    (void)self;
    if (!world.without_device)
        exo_port_set_device(in, device);
    while ((st = exo_port_receive(in, EXO_PORT_TIMEOUT, &item, err)) == EXO_OK) {
        world.on_host = item->parts[0].data != NULL;
        cr_expect_eq(item->parts[0].device, world.on_host ? NULL : device);
        cr_expect(is_whole(item, device, err), "%s", err->text);
        exo_item_drop_after(&item, device);
        world.came++;
    }
    close_chosen(device);
    return st == EXO_CLOSED ? EXO_OK : st;
}

static const exo_graph_port source_ports[] = {{.name = "arrays", .type = "arrays"}};
static const exo_graph_port sink_ports[] = {
    {.name = "arrays", .type = "arrays", .direction = EXO_PORT_INPUT}};
static const exo_graph_class source = {
    .name = "array_source", .ports = source_ports, .num_ports = 1, .run = source_run};
static const exo_graph_class sink = {
    .name = "array_sink", .ports = sink_ports, .num_ports = 1, .run = sink_run};

struct outcome {
    exo_traffic traffic;
    exo_time time;
};

/* One source, and two sinks that get everything, over links of 1 Gbit/s. */
static struct outcome
run(const char *codec, bool virtual_clock)
{
    uint32_t hosts[] = {0, 1, 2};
    exo_compute_spec make = {.phase = "make", .cost = EXO_MS};
    exo_emulated_host emulated[3];
    static const char *const names[] = {"a", "b", "c"};
    exo_actor_spec actors[] = {{.name = "source",
                                .class = &source,
                                .count = 1,
                                .hosts = hosts,
                                .compute = &make,
                                .num_compute = 1},
                               {.name = "sink", .class = &sink, .count = 2, .hosts = hosts + 1}};
    exo_edge_spec edge = {.name = "source>sink:arrays",
                          .from = 0,
                          .to = 1,
                          .carries = "arrays",
                          .route = EXO_ROUTE_BROADCAST,
                          .codec_text = codec,
                          .capacity = 2,
                          .every = 1,
                          .deadline = 100 * EXO_SECOND,
                          .link = -1};
    exo_named_link link = {.name = "default",
                           .is_default = true,
                           .from = -1,
                           .to = -1,
                           .spec = {.bandwidth = 1e9, .transport = EXO_LINK_IDEAL}};
    for (size_t h = 0; h < 3; h++)
        emulated[h] = (exo_emulated_host){
            .spec = {.name = names[h], .up = INFINITY, .down = INFINITY}, .speed = 1};
    const exo_graph_spec spec = {.source = "test",
                                 .name = "test",
                                 .seed = SEED,
                                 .virtual_clock = virtual_clock,
                                 .emulated = virtual_clock,
                                 .actors = actors,
                                 .num_actors = 2,
                                 .edges = &edge,
                                 .num_edges = 1,
                                 .hosts = emulated,
                                 .num_hosts = 3,
                                 .links = &link,
                                 .num_links = 1};
    const exo_graph_run_opts opts = {.space = "test"};
    exo_graph_result result = {0};
    exo_err err = {0};
    world.came = 0;
    cr_assert_eq(exo_graph_run(&spec, &opts, &result, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(world.came, 2 * ITEMS);
    struct outcome out = {.time = result.time};
    for (size_t i = 0; i < result.ledger.length; i++)
        if (strcmp(result.ledger.rows[i].actor, "source_0") == 0)
            out.traffic = result.ledger.rows[i].traffic;
    exo_graph_result_release(&result);
    expect_nothing_left();
    return out;
}

Test(cuda_items, within_a_process_the_memory_itself_is_handed_over, .timeout = 120)
{
    for (int virtual_clock = 0; virtual_clock < 2; virtual_clock++) {
        world.from_cpu = world.to_cpu = true;
        const struct outcome cpu = run("raw", virtual_clock);
        cr_expect(world.on_host);
        cr_expect_eq(cpu.traffic.device_bytes, 0);
        world.from_cpu = world.to_cpu = false;
        const struct outcome gpu = run("raw", virtual_clock);
        cr_expect(!world.on_host);
        cr_expect_eq(gpu.traffic.device_bytes, 2 * ITEMS * COUNT * sizeof(float));
        cr_expect_eq(gpu.traffic.payload_bytes, cpu.traffic.payload_bytes);
        cr_expect_eq(gpu.traffic.encoded_bytes, cpu.traffic.encoded_bytes);
        cr_expect_eq(gpu.traffic.wire_bytes, cpu.traffic.wire_bytes);
        if (virtual_clock)
            cr_expect_eq(gpu.time, cpu.time, "links take the time of the bytes");
    }
}

Test(cuda_items, a_receiver_without_a_gpu_gets_host_memory, .timeout = 120)
{
    world.to_cpu = true;
    run("raw", false);
    cr_expect(world.on_host);
    world.to_cpu = false;
    world.without_device = true;
    run("raw", false);
    cr_expect(world.on_host);
    world.without_device = false;
    world.from_cpu = true;
    run("raw", false);
    cr_expect(world.on_host, "what is sent from the host comes to the host");
}

Test(cuda_items, behind_a_codec_the_bytes_go_over_the_host, .timeout = 120)
{
    const struct outcome zstd = run("zstd", false);
    cr_expect(world.on_host);
    cr_expect_eq(zstd.traffic.device_bytes, 0);
    cr_expect_lt(zstd.traffic.encoded_bytes, zstd.traffic.payload_bytes);
}

/* --- Messages --------------------------------------------------------------------------------- */

static exo_status
write_message(exo_payload *out, exo_item *item, exo_item_way way, exo_item_sizes *sizes,
              exo_err *err)
{
    const exo_channel_header header = {.kind = EXO_CHANNEL_DATA, .version = item->version};
    exo_joint_reader reader = {0};
    exo_codec *codec = NULL;
    exo_status st = exo_codec_parse(&codec, "raw", err);
    const exo_item_form form = {.codec = codec, .seed = SEED, .way = way, .reader = &reader};
    if (st == EXO_OK)
        st = exo_item_mark(item, err);
    if (st == EXO_OK)
        st = exo_item_write(out, &header, item, &form, sizes, err);
    exo_joint_reader_release(&reader);
    exo_codec_free(&codec);
    return st;
}

static exo_status
read_message(exo_item **out, const exo_payload *message, exo_device *device, int *reach,
             exo_err *err)
{
    exo_channel_header header;
    exo_joint_reader reader = {0};
    exo_codec *codec = NULL;
    *reach = -1;
    exo_status st = exo_codec_parse(&codec, "raw", err);
    if (st == EXO_OK)
        st = exo_channel_read(message, &header, err);
    if (st == EXO_OK)
        st = exo_item_read(out, message, &header, codec, SEED, err);
    if (st == EXO_OK)
        st = exo_item_land(*out, device, &reader, reach, err);
    exo_joint_reader_release(&reader);
    exo_codec_free(&codec);
    return st;
}

/* --- Another process -------------------------------------------------------------------------- */

typedef struct peer {
    pid_t pid;
    int to, from; /* pipes */
} peer;

static void
give(int to, const void *bytes, size_t size)
{
    const char *at = bytes;
    while (size > 0) {
        ssize_t done = write(to, at, size);
        cr_assert_gt(done, 0);
        at += done;
        size -= (size_t)done;
    }
}

static bool
take(int from, void *bytes, size_t size)
{
    char *at = bytes;
    while (size > 0) {
        ssize_t done = read(from, at, size);
        if (done <= 0)
            return false;
        at += done;
        size -= (size_t)done;
    }
    return true;
}

/* Sends an item by the way that it is told, and drops it when it is told. */
static void
run_sender(int from, int to)
{
    exo_err err = {0};
    char way = 0;
    exo_device *gpu = open_gpu();
    for (uint64_t i = 0; take(from, &way, 1); i++) {
        exo_item *item = NULL;
        exo_item_sizes sizes;
        exo_payload message = {0};
        cr_assert_eq(make_item(&item, gpu, i, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(write_message(&message, item, (exo_item_way)way, &sizes, &err), EXO_OK, "%s",
                     err.text);
        give(to, &message.size, sizeof message.size);
        give(to, message.data, message.size);
        give(to, &sizes, sizeof sizes);
        exo_payload_release(&message);
        bool more = take(from, &way, 1);
        exo_item_drop(&item);
        if (!more)
            break;
        give(to, &way, 1);
    }
    while (exo_ipc_array_count() > 0) /* until the reader has closed it */
        usleep(1000);
    exo_cuda_close(gpu);
}

static peer
begin(void)
{
    int there[2], back[2];
    cr_assert(pipe(there) == 0 && pipe(back) == 0);
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        close(there[1]);
        close(back[0]);
        run_sender(there[0], back[1]);
        _exit(0);
    }
    close(there[0]);
    close(back[1]);
    return (peer){.pid = pid, .to = there[1], .from = back[0]};
}

static void
end(peer *p, bool by_force)
{
    int status = 0;
    if (by_force)
        kill(p->pid, SIGKILL);
    close(p->to);
    cr_assert_eq(waitpid(p->pid, &status, 0), p->pid);
    close(p->from);
    cr_expect(by_force || (WIFEXITED(status) && WEXITSTATUS(status) == 0), "status %d", status);
}

/* A message that the sender writes that way. */
static exo_payload
ask(const peer *p, exo_item_way way, exo_item_sizes *sizes)
{
    const char word = (char)way;
    size_t size = 0;
    exo_payload message = {0};
    give(p->to, &word, 1);
    cr_assert(take(p->from, &size, sizeof size));
    void *bytes = malloc(size);
    cr_assert(take(p->from, bytes, size));
    cr_assert(take(p->from, sizes, sizeof *sizes));
    cr_assert_eq(exo_payload_copy(&message, bytes, size), EXO_OK);
    free(bytes);
    return message;
}

static void
let_drop(const peer *p)
{
    char word = 'd';
    give(p->to, &word, 1);
    cr_assert(take(p->from, &word, 1));
}

Test(cuda_items, each_way_between_processes_has_the_same_values, .timeout = 120)
{
    static const exo_item_way ways[] = {EXO_WAY_BYTES, EXO_WAY_TRY, EXO_WAY_NAME, EXO_WAY_NAME};
    const uint64_t whole = COUNT * sizeof(float);
    peer p = begin();
    exo_device *gpu = open_gpu();
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        exo_item *item = NULL;
        exo_item_sizes sizes;
        exo_err err = {0};
        int reach = -1;
        const bool named = ways[i] == EXO_WAY_NAME;
        exo_payload message = ask(&p, ways[i], &sizes);
        cr_expect(named ? message.size < 400 : message.size > whole);
        cr_expect_gt(sizes.message, whole, "it counts as bytes");
        cr_expect_eq(sizes.on_device, named ? whole : 0);
        cr_assert_eq(read_message(&item, &message, gpu, &reach, &err), EXO_OK, "%s", err.text);
        exo_payload_release(&message);
        cr_expect_eq(reach, ways[i] == EXO_WAY_TRY ? 1 : -1);
        let_drop(&p); /* this process has the memory open */
        cr_expect_eq(item->parts[0].data == NULL, named);
        cr_expect(is_whole(item, gpu, &err), "%s", err.text);
        if (ways[i] == EXO_WAY_TRY) {
            exo_item *own = NULL;
            cr_assert_eq(make_item(&own, gpu, 0, &err), EXO_OK, "%s", err.text);
            cr_expect_eq(exo_item_units(item), exo_item_units(own), "they are on one GPU");
            exo_item_drop_after(&own, gpu);
        }
        exo_item_drop_after(&item, gpu);
    }
    end(&p, false);
    exo_cuda_close(gpu);
    expect_nothing_left();
}

Test(cuda_items, who_cannot_open_memory_says_so_and_gets_bytes, .timeout = 120)
{
    exo_item *item = NULL;
    exo_item_sizes sizes;
    exo_err err = {0};
    int reach = -1;
    peer p = begin();
    exo_device *gpu = open_gpu();
    for (int where = 0; where < 2; where++) {
        exo_payload message = ask(&p, EXO_WAY_TRY, &sizes);
        if (where == 0)
            setenv("EXOGYM_HOST_ID", "elsewhere", 1);
        cr_assert_eq(read_message(&item, &message, where ? exo_device_cpu() : gpu, &reach, &err),
                     EXO_OK, "%s", err.text);
        unsetenv("EXOGYM_HOST_ID");
        exo_payload_release(&message);
        cr_expect_eq(reach, where == 0 ? 0 : -1, "without a GPU it is not asked");
        cr_expect(is_whole(item, gpu, &err), "%s", err.text);
        exo_item_drop(&item);
        let_drop(&p);
    }
    /* a name without a GPU is an error that says so */
    exo_payload message = ask(&p, EXO_WAY_NAME, &sizes);
    cr_expect_eq(read_message(&item, &message, NULL, &reach, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "without a GPU"), "%s", err.text);
    exo_payload_release(&message);
    exo_item_drop(&item);
    let_drop(&p);
    end(&p, false);
    exo_cuda_close(gpu);
    expect_nothing_left();
}

/* What a receiver has said holds for the GPU of which it has said so. */
Test(cuda_items, a_sender_that_goes_to_another_gpu_tries_its_names_again)
{
    exo_item *items[2] = {NULL};
    exo_device *gpus[2] = {NULL};
    exo_err err = {0};
    exo_site site = {0};
    exo_place place = {.actor.site = &site};
    exo_outlet o = {.place = &place, .reach = EXO_REACH_UNKNOWN, .node = 7};
    cuda_emulator_set_gpus(2);
    cr_assert_eq(exo_runtime_open(&place.runtime, NULL, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_codec_parse(&o.codec, "raw", &err), EXO_OK, "%s", err.text);
    for (int g = 0; g < 2; g++) {
        cr_assert_eq(exo_cuda_open(&gpus[g], g, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(make_item(&items[g], gpus[g], 1, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(exo_outlet_way_locked(&o, items[g]), EXO_WAY_TRY);
    }
    for (uint64_t can = 0; can < 2; can++) {
        exo_outlet_hear_locked(&o, exo_item_units(items[0]) << 1 | can);
        cr_expect_eq(exo_outlet_way_locked(&o, items[0]), can ? EXO_WAY_NAME : EXO_WAY_BYTES);
        cr_expect_eq(exo_outlet_way_locked(&o, items[1]), EXO_WAY_TRY);
    }
    exo_codec_free(&o.codec);
    for (int g = 0; g < 2; g++) {
        exo_item_drop(&items[g]);
        exo_cuda_close(gpus[g]);
    }
    expect_nothing_left();
    cr_assert_eq(
        exo_runtime_close(&place.runtime, exo_deadline(exo_clock_real(), EXO_SECOND), &err), EXO_OK,
        "%s", err.text);
}

Test(cuda_items, a_killed_sender_leaves_no_memory, .timeout = 120)
{
    exo_item *item = NULL, *late = NULL;
    exo_item_sizes sizes;
    exo_err err = {0};
    int reach = -1;
    peer p = begin();
    exo_device *gpu = open_gpu();
    exo_payload first = ask(&p, EXO_WAY_NAME, &sizes);
    cr_assert_eq(read_message(&item, &first, gpu, &reach, &err), EXO_OK, "%s", err.text);
    let_drop(&p);
    exo_payload second = ask(&p, EXO_WAY_NAME, &sizes);
    end(&p, true);
    cr_expect(is_whole(item, gpu, &err), "who has it open goes on: %s", err.text);
    exo_status st = read_message(&late, &second, gpu, &reach, &err);
    cr_expect_eq(st, EXO_PEER_LOST, "%s", err.text);
    exo_item_drop(&late);
    exo_item_drop(&item);
    exo_payload_release(&first);
    exo_payload_release(&second);
    exo_cuda_close(gpu);
    expect_nothing_left();
}

/* --- Faults ----------------------------------------------------------------------------------- */

Test(cuda_items, no_other_process_can_hand_over_memory_of_this_one)
{
    exo_item *item = NULL, *forged = NULL;
    exo_item_sizes sizes;
    exo_payload message = {0};
    exo_err err = {0};
    int reach = -1;
    exo_device *gpu = open_gpu();
    cr_assert_eq(make_item(&item, gpu, 3, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(write_message(&message, item, EXO_WAY_ITSELF, &sizes, &err), EXO_OK);
    exo_payload copy = exo_payload_borrow(message.data, message.size);
    cr_expect_eq(read_message(&forged, &copy, gpu, &reach, &err), EXO_INVAL);
    cr_expect_null(forged);
    exo_item_drop(&item); /* the message holds it */
    cr_assert_eq(read_message(&item, &message, gpu, &reach, &err), EXO_OK, "%s", err.text);
    exo_payload_release(&message);
    cr_expect(is_whole(item, gpu, &err), "%s", err.text);
    exo_item_drop_after(&item, gpu);
    exo_cuda_close(gpu);
    expect_nothing_left();
}

Test(cuda_items, a_full_gpu_says_who_has_its_memory)
{
    exo_item *item = NULL, *held = NULL;
    exo_err err = {0};
    exo_device *gpu = open_gpu();
    cr_assert_eq(make_item(&held, gpu, 1, &err), EXO_OK, "%s", err.text);
    cuda_emulator_set_memory(cuda_emulator_memory() + (1 << 20));
    cr_expect_eq(make_item(&item, gpu, 2, &err), EXO_NOMEM);
    cr_expect_null(item);
    cr_expect(strstr(err.text, "arrays that others may hold 2097152"), "%s", err.text);
    cuda_emulator_set_memory(0);
    exo_item_drop(&held);
    exo_cuda_close(gpu);
    expect_nothing_left();
}

/* A call that fails without breaking the GPU leaves any contents. */
Test(cuda_items, what_a_failed_call_should_have_filled_is_not_sent)
{
    exo_item *item = NULL;
    exo_err err = {0};
    exo_device *gpu = open_gpu();
    const exo_item_part part = {.dtype = EXO_F32, .count = 8, .device = gpu};
    cr_assert_eq(exo_item_new(&item, &part, 1, &err), EXO_OK, "%s", err.text);
    cuda_emulator_fail_call(1);
    exo_vec_fill(exo_item_array(item, 0), 1);
    cuda_emulator_fail_call(0);
    cr_expect_neq(exo_item_mark(item, &err), EXO_OK);
    cr_expect(err.text[0]);
    exo_item_drop(&item);
    exo_cuda_close(gpu);
    expect_nothing_left();
}

static exo_status
send_and_receive(exo_device *gpu, exo_item_way way, exo_err *err)
{
    exo_item *item = NULL, *got = NULL;
    exo_item_sizes sizes;
    exo_payload message = {0};
    int reach = -1;
    exo_status st = make_item(&item, gpu, 1, err);
    if (st == EXO_OK)
        st = write_message(&message, item, way, &sizes, err);
    exo_item_drop(&item);
    if (st == EXO_OK)
        st = read_message(&got, &message, gpu, &reach, err);
    exo_payload_release(&message);
    if (st == EXO_OK && !is_whole(got, gpu, err))
        st = err->code != EXO_OK ? err->code : EXO_DAMAGED;
    exo_item_drop_after(&got, gpu);
    return st;
}

Test(cuda_items, each_call_fails_in_turn_and_leaves_nothing, .timeout = 120)
{
    static const exo_item_way ways[] = {EXO_WAY_BYTES, EXO_WAY_ITSELF};
    for (size_t w = 0; w < 2; w++) {
        size_t refused = 0;
        for (uint64_t n = 1;; n++) {
            exo_err err = {0};
            exo_device *gpu = open_gpu();
            cuda_emulator_fail_call(n);
            exo_status st = send_and_receive(gpu, ways[w], &err);
            cuda_emulator_fail_call(0);
            cr_assert_neq(st, EXO_DAMAGED, "way %zu, call %zu: other values", w, (size_t)n);
            exo_cuda_close(gpu);
            expect_nothing_left();
            if (st == EXO_OK && n > 60)
                break;
            refused += st != EXO_OK;
        }
        cr_expect_geq(refused, 8);
    }
}
