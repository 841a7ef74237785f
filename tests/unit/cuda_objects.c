/* Arrays as objects (exogym/array_object.h), on the CUDA runtime of the tests: real processes of a
 * cluster, each with its own emulated GPU of one machine. Every way to an array has its bits; each
 * process may be killed, each call of CUDA may fail, and names may be anything. Read next:
 * nn/device/array_object.c, runtime/cluster/remote_objects.c. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/array_object.h>
#include <exogym/cluster.h>
#include <exogym/ipc.h>
#include <exogym/memory.h>

#include "cuda/emulator.h"
#include "nn/cuda/open.h"
#include "store/store.h"
#include "support/eventually.h"
#include "support/temp.h"

enum {
    COUNT = 1300001, /* floats: two pieces that another process asks for, and an odd number */
};

static exo_time
soon(void)
{
    return exo_deadline(exo_clock_real(), 60 * EXO_SECOND);
}

static exo_device *
open_gpu(int ordinal)
{
    exo_device *device = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_cuda_open(&device, ordinal, &err), EXO_OK, "%s", err.text);
    return device;
}

static void
close_gpu(exo_device *device)
{
    exo_store *store = NULL;
    exo_cuda_close(device);
    cr_expect_eq(exo_ipc_array_count(), 0);
    cr_expect_eq(cuda_emulator_memory(), 0, "%zu bytes are left", (size_t)cuda_emulator_memory());
    cr_expect_eq(cuda_emulator_things(), 0, "%zu things", (size_t)cuda_emulator_things());
    cr_assert_eq(exo_store_default(&store, NULL), EXO_OK);
    cr_expect_eq(exo_store_get_stats(store).objects, 0);
    cr_expect_eq(exo_store_get_stats(store).bytes_elsewhere, 0);
}

static float numbers[COUNT];
static size_t made = COUNT; /* elements that makers put */

static float
number(size_t i)
{
    return (float)(i % 4093) - 0.5F;
}

/* An array object of `made` numbers on a device. */
static exo_array_object *
put(exo_device *device)
{
    exo_array_object *a = NULL;
    exo_array array;
    exo_err err = {0};
    for (size_t i = 0; i < made; i++)
        numbers[i] = number(i);
    cr_assert_eq(exo_array_init(&array, device, EXO_F32, made, &err), EXO_OK, "%s", err.text);
    exo_array_send(array, numbers);
    cr_assert_eq(exo_array_object_put(&a, array, &err), EXO_OK, "%s", err.text);
    exo_vec_fill(array, 7); /* the object has what was asked before */
    exo_array_release(&array);
    return a;
}

static bool
are_numbers(const float *values)
{
    for (size_t i = 0; i < COUNT; i++)
        if (values[i] != number(i))
            return false;
    return true;
}

/* Whether the device finds the numbers, in a copy that it makes: an array of the maker may be out of
 * the host's reach. */
static bool
has_numbers(const exo_array_object *a, exo_device *device)
{
    exo_array theirs = exo_array_object_of(a), mine;
    if (theirs.device != device || theirs.count != COUNT || theirs.dtype != EXO_F32 ||
        exo_array_init(&mine, device, EXO_F32, COUNT, NULL) != EXO_OK)
        return false;
    exo_vec_copy(mine, theirs);
    bool good = exo_array_read(mine, numbers, NULL) == EXO_OK && are_numbers(numbers);
    exo_array_release(&mine);
    return good;
}

/* --- Processes of a cluster ------------------------------------------------------------------- */

typedef struct member {
    exo_runtime *runtime;
    exo_cluster *cluster;
} member;

static void
join(member *m, exo_cluster_role role, const char *folder)
{
    exo_err err = {0};
    const exo_cluster_opts opts = {
        .role = role, .cluster = "test", .folder = folder, .state = "none"};
    cr_assert_eq(exo_runtime_open(&m->runtime, NULL, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_cluster_join(&m->cluster, m->runtime, &opts, soon(), &err), EXO_OK, "%s",
                 err.text);
}

static void
leave(member *m)
{
    exo_err err = {0};
    exo_cluster_leave(m->cluster);
    cr_expect_eq(exo_runtime_close(&m->runtime, soon(), &err), EXO_OK, "%s", err.text);
    exo_cluster_free(&m->cluster);
}

/* A maker, and the head of its cluster. */
typedef struct peer {
    pid_t pid, head;
    int to, from; /* pipes */
    char folder[64];
} peer;

static void
give(int to, const void *bytes, size_t size)
{
    cr_assert_eq(write(to, bytes, size), (ssize_t)size);
}

/* False: the other process has ended. */
static bool
take(int from, void *bytes, size_t size)
{
    return read(from, bytes, size) == (ssize_t)size;
}

/* Puts an array, gives its name, drops the array when it is told to, and then ends. */
static void
run_maker(const char *folder, int from, int to, bool on_cpu)
{
    char word = 0;
    member m;
    exo_object_id id;
    exo_err err = {0};
    join(&m, EXO_ROLE_DRIVER, folder);
    exo_device *device = on_cpu ? exo_device_cpu() : open_gpu(0);
    exo_array_object *a = put(device);
    cr_assert_eq(exo_array_object_name(m.runtime, a, &id, &err), EXO_OK, "%s", err.text);
    give(to, &id, sizeof id);
    bool told = take(from, &word, 1);
    exo_array_object_drop(&a);
    give(to, &word, 1);
    if (told)
        (void)take(from, &word, 1);
    while (exo_ipc_array_count() > 0) /* until its readers have closed it */
        usleep(1000);
    leave(&m);
    if (!on_cpu)
        exo_cuda_close(device);
}

/* Begins the head of a cluster, which ends by a signal. */
static pid_t
begin_head(const char *folder)
{
    member m;
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    join(&m, EXO_ROLE_HEAD, folder);
    for (;;)
        pause();
}

/* Begins a maker and its head, before the test opens a device or its store, and joins. host: NULL, or
 * another host, on which the test is from then on. */
static peer
begin(member *m, exo_object_id *id, bool on_cpu, const char *host)
{
    int there[2], back[2];
    peer p = {0};
    temp_folder(p.folder, sizeof p.folder);
    p.head = begin_head(p.folder);
    cr_assert(pipe(there) == 0 && pipe(back) == 0);
    p.pid = fork();
    cr_assert_geq(p.pid, 0);
    if (p.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(there[1]);
        close(back[0]);
        run_maker(p.folder, there[0], back[1], on_cpu);
        _exit(0);
    }
    close(there[0]);
    close(back[1]);
    p.to = there[1];
    p.from = back[0];
    if (host)
        setenv("EXOGYM_HOST_ID", host, 1);
    join(m, EXO_ROLE_DRIVER, p.folder);
    cr_assert(take(p.from, id, sizeof *id));
    return p;
}

/* Tells the maker to drop its array. */
static void
tell_to_drop(peer *p)
{
    char word = 'd';
    give(p->to, &word, 1);
    cr_assert(take(p->from, &word, 1));
}

static void
end_head(pid_t head)
{
    kill(head, SIGKILL);
    cr_assert_eq(waitpid(head, NULL, 0), head);
}

static void
end(peer *p, member *m, bool by_force)
{
    int status = 0;
    if (by_force)
        kill(p->pid, SIGKILL);
    close(p->to);
    cr_assert_eq(waitpid(p->pid, &status, 0), p->pid);
    close(p->from);
    leave(m);
    end_head(p->head);
    temp_remove(p->folder);
    cr_expect(by_force || (WIFEXITED(status) && WEXITSTATUS(status) == 0), "status %d", status);
}

/* --- One process ------------------------------------------------------------------------------ */

/* A thread without a GPU looks whether the work with each array is done. */
static void *
count_arrays(void *unused)
{
    (void)exo_ipc_array_count();
    return unused;
}

Test(cuda_objects, the_makers_process_has_the_memory_itself, .timeout = 120)
{
    member m;
    pthread_t thread;
    exo_object_id id;
    exo_array_object *theirs = NULL, *copy = NULL;
    exo_store *store = NULL;
    exo_err err = {0};
    cuda_emulator_set_gpus(2);
    exo_device *gpu = open_gpu(0), *same = open_gpu(0), *other = open_gpu(1);
    cr_assert_eq(exo_runtime_open(&m.runtime, NULL, &err), EXO_OK);
    exo_array_object *mine = put(gpu);
    cr_assert_eq(exo_array_object_name(m.runtime, mine, &id, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_array_object_get(&theirs, same, m.runtime, &id, soon(), &err), EXO_OK, "%s",
                 err.text);
    cr_expect_eq(exo_array_object_of(theirs).data, exo_array_object_of(mine).data);
    cr_expect(has_numbers(theirs, same) && !exo_array_object_is_copy(theirs));
    cr_assert_eq(exo_store_default(&store, NULL), EXO_OK);
    cr_expect_eq(exo_store_get_stats(store).bytes_elsewhere, COUNT * sizeof(float));
    exo_device *const others[] = {other, exo_device_cpu()};
    for (size_t i = 0; i < 2; i++) {
        cr_assert_eq(exo_array_object_get(&copy, others[i], m.runtime, &id, soon(), &err), EXO_OK,
                     "%s", err.text);
        cr_expect(has_numbers(copy, others[i]) && exo_array_object_is_copy(copy), "%zu", i);
        exo_array_object_drop(&copy);
    }
    exo_array_object_drop(&mine);
    cr_expect(has_numbers(theirs, same), "the last reference counts");
    exo_array_object_drop(&theirs);
    cr_assert_eq(pthread_create(&thread, NULL, count_arrays, NULL), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_expect_eq(exo_array_object_get(&theirs, same, m.runtime, &id, soon(), &err), EXO_NOT_FOUND);
    cr_expect_null(theirs);
    cr_expect_eq(exo_runtime_close(&m.runtime, soon(), &err), EXO_OK);
    exo_cuda_close(same);
    exo_cuda_close(other);
    close_gpu(gpu);
}

struct getter {
    exo_runtime *runtime;
    const exo_object_id *id;
    exo_status status;
};

static void *
get_bytes(void *context)
{
    struct getter *g = context;
    exo_object *bytes = NULL;
    g->status = exo_object_get(g->runtime, g->id, soon(), &bytes, NULL);
    if (g->status == EXO_OK && !are_numbers(exo_object_data(bytes)))
        g->status = EXO_FAILED;
    exo_object_drop(&bytes);
    return NULL;
}

/* The maker drops its array while another thread, which has no GPU, copies the bytes. */
Test(cuda_objects, an_array_that_is_dropped_while_it_is_copied_is_freed, .timeout = 120)
{
    exo_object_id id;
    exo_runtime *runtime = NULL;
    exo_err err = {0};
    exo_device *gpu = open_gpu(0);
    const uint64_t before = cuda_emulator_memory();
    cr_assert_eq(exo_runtime_open(&runtime, NULL, &err), EXO_OK);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        struct getter getter = {.runtime = runtime, .id = &id};
        exo_array_object *mine = put(gpu);
        cr_assert_eq(exo_array_object_name(runtime, mine, &id, &err), EXO_OK, "%s", err.text);
        const uint64_t calls = cuda_emulator_calls();
        cr_assert_eq(pthread_create(&thread, NULL, get_bytes, &getter), 0);
        while (cuda_emulator_calls() < calls + 8) /* pieces are on their way */
            sched_yield();
        exo_array_object_drop(&mine);
        cr_assert_eq(pthread_join(thread, NULL), 0);
        cr_expect_eq(getter.status, EXO_OK);
        cr_assert_eq(cuda_emulator_memory(), before, "round %d", i);
    }
    cr_expect_eq(exo_runtime_close(&runtime, soon(), &err), EXO_OK);
    close_gpu(gpu);
}

Test(cuda_objects, what_cannot_be_made_or_named_is_an_error)
{
    exo_runtime *runtime = NULL;
    exo_array_object *a = NULL;
    exo_object_id id;
    exo_err err = {0};
    exo_device *gpu = open_gpu(0);
    cr_assert_eq(exo_runtime_open(&runtime, NULL, &err), EXO_OK);
    exo_device *const devices[] = {gpu, exo_device_cpu()};
    for (size_t i = 0; i < 2; i++) {
        cr_assert_eq(exo_array_object_new(&a, devices[i], EXO_F32, 3, &err), EXO_OK);
        cr_expect_eq(exo_array_object_name(runtime, a, &id, &err), EXO_INVAL, "not sealed");
        exo_array_object_drop(&a);
        cr_expect_eq(exo_array_object_new(&a, devices[i], EXO_F32, SIZE_MAX / 2, &err), EXO_NOMEM);
        cr_expect_null(a);
        /* an array without elements is one, too */
        cr_assert_eq(
            exo_array_object_put(&a, (exo_array){.device = devices[i], .dtype = EXO_I64}, &err),
            EXO_OK, "%s", err.text);
        cr_assert_eq(exo_array_object_name(runtime, a, &id, &err), EXO_OK, "%s", err.text);
        for (size_t k = 0; k < 2; k++) {
            exo_array_object *theirs = NULL;
            cr_assert_eq(exo_array_object_get(&theirs, devices[k], runtime, &id, soon(), &err),
                         EXO_OK, "%s", err.text);
            cr_expect_eq(exo_array_object_of(theirs).dtype, EXO_I64);
            cr_expect_eq(exo_array_object_of(theirs).count, 0);
            exo_array_object_drop(&theirs);
        }
        exo_array_object_drop(&a);
    }
    cuda_emulator_set_memory(cuda_emulator_memory() + (1 << 20));
    cr_expect_eq(exo_array_object_new(&a, gpu, EXO_F32, 1, &err), EXO_NOMEM, "%s", err.text);
    cr_expect_eq(exo_runtime_close(&runtime, soon(), &err), EXO_OK);
    close_gpu(gpu);
}

/* --- Several processes ------------------------------------------------------------------------ */

/* Gets an array once more by what its reader knows of its name. */
static void
expect_passed_on(const member *m, exo_array_object *theirs, exo_device *device)
{
    exo_object_id id;
    exo_array_object *again = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_array_object_name(m->runtime, theirs, &id, &err), EXO_OK);
    cr_assert_eq(exo_array_object_get(&again, device, m->runtime, &id, soon(), &err), EXO_OK, "%s",
                 err.text);
    cr_expect(has_numbers(again, device));
    exo_array_object_drop(&again);
}

/* A reader of another process on a device. `copied`: it gets a copy. */
static void
read_in_another_process(bool maker_on_cpu, bool on_cpu, bool copied)
{
    member m;
    exo_object_id id;
    exo_array_object *theirs = NULL, *late = NULL;
    exo_err err = {0};
    peer p = begin(&m, &id, maker_on_cpu, NULL);
    exo_device *device = on_cpu ? exo_device_cpu() : open_gpu(0);
    cr_assert_eq(exo_array_object_get(&theirs, device, m.runtime, &id, soon(), &err), EXO_OK, "%s",
                 err.text);
    cr_expect(has_numbers(theirs, device));
    cr_expect_eq(exo_array_object_is_copy(theirs), copied);
    expect_passed_on(&m, theirs, device);
    tell_to_drop(&p);
    cr_expect(has_numbers(theirs, device), "it outlives the maker's");
    exo_array_object_drop(&theirs);
    cr_expect_eq(exo_array_object_get(&late, device, m.runtime, &id, soon(), &err), EXO_NOT_FOUND,
                 "%s", err.text);
    if (!on_cpu)
        close_gpu(device); /* which closes what it has opened */
    end(&p, &m, false);
}

Test(cuda_objects, another_process_opens_the_memory, .timeout = 120)
{
    read_in_another_process(false, false, false);
}

Test(cuda_objects, a_reader_on_the_cpu_gets_the_bytes, .timeout = 120)
{
    read_in_another_process(false, true, true);
}

Test(cuda_objects, a_reader_that_sees_another_gpu_gets_the_bytes, .timeout = 120)
{
    cuda_emulator_set_first(0);
    member m;
    exo_object_id id;
    exo_array_object *theirs = NULL;
    exo_err err = {0};
    peer p = begin(&m, &id, false, NULL);
    cuda_emulator_set_first(1);
    exo_device *gpu = open_gpu(0);
    cr_assert_eq(exo_array_object_get(&theirs, gpu, m.runtime, &id, soon(), &err), EXO_OK, "%s",
                 err.text);
    cr_expect(has_numbers(theirs, gpu) && exo_array_object_is_copy(theirs));
    exo_array_object_drop(&theirs);
    cuda_emulator_set_memory(cuda_emulator_memory() + (1 << 20));
    cr_expect_eq(exo_array_object_get(&theirs, gpu, m.runtime, &id, soon(), &err), EXO_NOMEM, "%s",
                 err.text);
    close_gpu(gpu);
    end(&p, &m, false);
}

Test(cuda_objects, a_reader_on_another_host_gets_the_bytes, .timeout = 120)
{
    member m;
    exo_object_id id;
    exo_array_object *theirs = NULL;
    exo_object *bytes = NULL;
    exo_err err = {0};
    peer p = begin(&m, &id, false, "elsewhere");
    exo_device *gpu = open_gpu(0);
    cr_assert_eq(exo_array_object_get(&theirs, gpu, m.runtime, &id, soon(), &err), EXO_OK, "%s",
                 err.text);
    cr_expect(has_numbers(theirs, gpu) && exo_array_object_is_copy(theirs));
    exo_array_object_drop(&theirs);
    /* the name is that of an object, of the same bytes */
    cr_assert_eq(exo_object_get(m.runtime, &id, soon(), &bytes, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_object_size(bytes), COUNT * sizeof(float));
    cr_expect(are_numbers(exo_object_data(bytes)));
    exo_object_drop(&bytes);
    close_gpu(gpu);
    end(&p, &m, false);
}

static void
fetch_empty(bool maker_on_cpu)
{
    member m;
    exo_object_id id;
    exo_array_object *theirs = NULL;
    exo_err err = {0};
    made = 0;
    peer p = begin(&m, &id, maker_on_cpu, "elsewhere");
    cr_assert_eq(exo_array_object_get(&theirs, exo_device_cpu(), m.runtime, &id, soon(), &err),
                 EXO_OK, "%s", err.text);
    cr_expect_eq(exo_array_object_of(theirs).count, 0);
    exo_array_object_drop(&theirs);
    end(&p, &m, false);
}

Test(cuda_objects, an_empty_array_is_fetched, .timeout = 120)
{
    fetch_empty(false);
}

Test(cuda_objects, an_empty_array_of_the_cpu_is_fetched, .timeout = 120)
{
    fetch_empty(true);
}

Test(cuda_objects, arrays_of_the_cpu_are_the_same, .timeout = 120)
{
    read_in_another_process(true, true, false);
}

Test(cuda_objects, arrays_of_the_cpu_come_to_a_gpu, .timeout = 120)
{
    read_in_another_process(true, false, true);
}

Test(cuda_objects, a_reader_outside_the_cluster_opens_the_memory_only, .timeout = 120)
{
    exo_runtime *runtime = NULL;
    member m;
    exo_object_id id;
    exo_array_object *theirs = NULL;
    exo_err err = {0};
    peer p = begin(&m, &id, false, NULL);
    exo_device *gpu = open_gpu(0);
    cr_assert_eq(exo_runtime_open(&runtime, NULL, &err), EXO_OK);
    cr_assert_eq(exo_array_object_get(&theirs, gpu, runtime, &id, soon(), &err), EXO_OK, "%s",
                 err.text);
    cr_expect(has_numbers(theirs, gpu));
    exo_array_object_drop(&theirs);
    cr_expect_eq(exo_array_object_get(&theirs, exo_device_cpu(), runtime, &id, soon(), &err),
                 EXO_UNSUPPORTED);
    cr_expect(strstr(err.text, "without a cluster"), "%s", err.text);
    cr_expect_eq(exo_runtime_close(&runtime, soon(), &err), EXO_OK);
    close_gpu(gpu);
    end(&p, &m, false);
}

/* --- Faults ----------------------------------------------------------------------------------- */

Test(cuda_objects, what_a_killed_maker_has_given_stays, .timeout = 120)
{
    member m;
    exo_object_id id;
    exo_array_object *theirs = NULL, *copy = NULL, *late = NULL;
    exo_err err = {0};
    peer p = begin(&m, &id, false, NULL);
    exo_device *gpu = open_gpu(0), *cpu = exo_device_cpu();
    cr_assert_eq(exo_array_object_get(&theirs, gpu, m.runtime, &id, soon(), &err), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(exo_array_object_get(&copy, cpu, m.runtime, &id, soon(), &err), EXO_OK, "%s",
                 err.text);
    kill(p.pid, SIGKILL);
    cr_assert_eq(waitid(P_PID, (id_t)p.pid, NULL, WEXITED | WNOWAIT), 0);
    cr_expect(has_numbers(theirs, gpu) && has_numbers(copy, cpu));
    exo_array_object_drop(&theirs);
    exo_array_object_drop(&copy);
    cr_expect_eq(exo_array_object_get(&late, gpu, m.runtime, &id, soon(), &err), EXO_PEER_LOST,
                 "%s", err.text);
    cr_expect_eq(exo_array_object_get(&late, cpu, m.runtime, &id, soon(), &err), EXO_PEER_LOST,
                 "%s", err.text);
    close_gpu(gpu);
    end(&p, &m, true);
}

/* Joins the cluster of its parent, opens the array, and waits to be killed. */
static void
run_reader(const char *folder, const exo_object_id *id, int to)
{
    member m;
    exo_array_object *theirs = NULL;
    exo_err err = {0};
    join(&m, EXO_ROLE_DRIVER, folder);
    exo_device *gpu = open_gpu(0);
    cr_assert_eq(exo_array_object_get(&theirs, gpu, m.runtime, id, soon(), &err), EXO_OK, "%s",
                 err.text);
    char word = has_numbers(theirs, gpu) ? 'y' : 'n';
    give(to, &word, 1);
    pause();
}

/* Whether the list of objects has the array that another process has opened. A process that answers
 * late is left out. */
static bool
is_listed(const member *m)
{
    char *list = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_cluster_list_objects(m->cluster, soon(), &list, &err), EXO_OK, "%s", err.text);
    bool found = strstr(list, "\"on_device\": true") && strstr(list, "\"bytes\": 5200004") &&
                 strstr(list, "\"imported\": true");
    exo_free(list);
    return found;
}

Test(cuda_objects, a_killed_reader_keeps_no_memory, .timeout = 120)
{
    member m;
    exo_object_id id;
    exo_err err = {0};
    char word = 0, folder[64];
    int there[2], back[2];
    cr_assert(pipe(there) == 0 && pipe(back) == 0);
    temp_folder(folder, sizeof folder);
    pid_t head = begin_head(folder), pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (take(there[0], &id, sizeof id))
            run_reader(folder, &id, back[1]);
        _exit(1);
    }
    join(&m, EXO_ROLE_DRIVER, folder);
    exo_device *gpu = open_gpu(0);
    exo_array_object *mine = put(gpu);
    cr_assert_eq(exo_array_object_name(m.runtime, mine, &id, &err), EXO_OK, "%s", err.text);
    give(there[1], &id, sizeof id);
    cr_assert(take(back[0], &word, 1));
    cr_expect_eq(word, 'y');
    EVENTUALLY(is_listed(&m));
    exo_array_object_drop(&mine);
    cr_expect_eq(exo_ipc_array_count(), 1, "a process reads it");
    kill(pid, SIGKILL);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
    exo_array array;
    cuda_emulator_set_memory(cuda_emulator_memory());
    cr_expect_eq(exo_array_init(&array, gpu, EXO_F32, COUNT, &err), EXO_OK, "%s", err.text);
    exo_array_release(&array);
    leave(&m);
    end_head(head);
    temp_remove(folder);
    close_gpu(gpu);
}

Test(cuda_objects, a_forged_name_is_an_error, .timeout = 120)
{
    member m;
    exo_object_id id, bytes;
    exo_array_object *theirs = NULL;
    exo_object *object = NULL;
    exo_err err = {0};
    peer p = begin(&m, &id, false, NULL);
    exo_device *gpu = open_gpu(0), *const devices[] = {gpu, exo_device_cpu()};
    for (size_t i = 0; i < 2; i++) {
        /* the first word is the process that is asked for bytes */
        for (size_t bit = 64; bit < 8 * sizeof id; bit++) {
            exo_object_id forged = id; /* no memory is made for a size that is not true */
            forged.words[bit / 64] ^= UINT64_C(1) << bit % 64;
            /* the kernel may have the maker's memory under the number of a thread, too */
            if (exo_array_object_get(&theirs, devices[i], m.runtime, &forged, soon(), NULL) ==
                EXO_OK)
                cr_expect(has_numbers(theirs, devices[i]), "bit %zu", bit);
            exo_array_object_drop(&theirs);
        }
        /* an object of bytes, and one that says that its bytes are on a device */
        cr_assert_eq(exo_object_put(&object, numbers, EXO_OBJECT_RECORD, &err), EXO_OK);
        cr_assert_eq(exo_object_name(m.runtime, object, &bytes, &err), EXO_OK);
        cr_expect_eq(exo_array_object_get(&theirs, devices[i], m.runtime, &bytes, soon(), &err),
                     EXO_INVAL);
        exo_object_name_words words;
        memcpy(&words, &bytes, sizeof words);
        words.handle.kind = 1;
        words.handle.elsewhere = 1;
        memcpy(&bytes, &words, sizeof bytes);
        cr_expect_eq(exo_array_object_get(&theirs, devices[i], m.runtime, &bytes, soon(), &err),
                     EXO_INVAL);
        exo_object_drop(&object);
    }
    cr_expect_null(theirs);
    close_gpu(gpu);
    end(&p, &m, false);
}

/* Makes an array, and gets it on both devices. Drops what it has in any case. */
static exo_status
make_and_get(exo_device *gpu, exo_runtime *runtime)
{
    exo_object_id id;
    exo_array array = {0};
    exo_array_object *mine = NULL, *theirs = NULL;
    exo_status st = exo_array_init(&array, gpu, EXO_F32, 1000, NULL);
    if (st == EXO_OK)
        st = exo_array_object_put(&mine, array, NULL);
    if (st == EXO_OK)
        st = exo_array_object_name(runtime, mine, &id, NULL);
    exo_device *const devices[] = {gpu, exo_device_cpu()};
    for (size_t i = 0; st == EXO_OK && i < 2; i++) {
        st = exo_array_object_get(&theirs, devices[i], runtime, &id, soon(), NULL);
        exo_array_object_drop(&theirs);
    }
    exo_array_object_drop(&mine);
    exo_array_release(&array);
    exo_status later = exo_device_synchronize(gpu, NULL);
    return st == EXO_OK ? later : st;
}

Test(cuda_objects, each_call_fails_in_turn_and_leaves_nothing, .timeout = 120)
{
    exo_runtime *runtime = NULL;
    size_t refused = 0;
    exo_device *gpu = open_gpu(0);
    cr_assert_eq(exo_runtime_open(&runtime, NULL, NULL), EXO_OK);
    for (uint64_t n = 1, before = 0;; n++) {
        before = cuda_emulator_calls();
        cuda_emulator_fail_call(n);
        exo_status st = make_and_get(gpu, runtime);
        bool over = cuda_emulator_calls() - before < n;
        cuda_emulator_fail_call(0);
        refused += st != EXO_OK;
        cr_assert_eq(exo_ipc_array_count(), 0, "call %zu", (size_t)n);
        if (over)
            break;
        exo_cuda_close(gpu); /* a device remembers a failure */
        gpu = open_gpu(0);
    }
    cr_expect_geq(refused, 10);
    cr_expect_eq(make_and_get(gpu, runtime), EXO_OK);
    cr_expect_eq(exo_runtime_close(&runtime, soon(), NULL), EXO_OK);
    close_gpu(gpu);
}
