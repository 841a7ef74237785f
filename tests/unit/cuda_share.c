/* Arrays that several processes share (exogym/ipc.h), on the CUDA runtime of the tests: real
 * processes, each with its own emulated GPU of one machine. Each process may be killed, each call of
 * CUDA may fail, and handles may be anything. Read next: nn/device/ipc.c, nn/cuda/share.cu. */
#include <criterion/criterion.h>

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/ipc.h>
#include <exogym/object.h>

#include "cuda/emulator.h"
#include "nn/cuda/open.h"
#include "store/store.h"

enum {
    COUNT = 3 << 18, /* floats: more than a page of the driver */
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
close_gpu(exo_device *device)
{
    exo_cuda_close(device);
    cr_expect_eq(exo_ipc_array_count(), 0);
    cr_expect_eq(cuda_emulator_memory(), 0, "%zu bytes are left", (size_t)cuda_emulator_memory());
    cr_expect_eq(cuda_emulator_things(), 0);
}

/* An array with the numbers first, first + 1, ... */
static exo_ipc_array *
make(exo_device *gpu, size_t count, float first, exo_ipc_handle *handle)
{
    static float numbers[COUNT];
    exo_ipc_array *s = NULL;
    exo_err err = {0};
    for (size_t i = 0; i < count; i++)
        numbers[i] = first + (float)i;
    cr_assert_eq(exo_ipc_array_new(&s, gpu, EXO_F32, count, &err), EXO_OK, "%s", err.text);
    exo_array_send(exo_ipc_array_of(s), numbers);
    cr_assert_eq(exo_ipc_array_seal(s, handle, &err), EXO_OK, "%s", err.text);
    return s;
}

/* Copies a shared array on the device, and compares the copy. */
static bool
has_numbers(exo_ipc_array *s, float first)
{
    static float numbers[COUNT];
    exo_array theirs = exo_ipc_array_of(s), mine;
    if (exo_array_init(&mine, theirs.device, EXO_F32, theirs.count, NULL) != EXO_OK)
        return false;
    exo_vec_copy(mine, theirs);
    bool good = exo_array_read(mine, numbers, NULL) == EXO_OK;
    for (size_t i = 0; good && i < theirs.count; i++)
        good = numbers[i] == first + (float)i;
    exo_array_release(&mine);
    return good;
}

/* --- The other process ------------------------------------------------------------------------ */

typedef struct peer {
    pid_t pid;
    int to, from; /* pipes */
} peer;

/* Begins a process that runs `run`. It is forked before the test opens a device or its store. */
static peer
begin(void (*run)(int from, int to))
{
    int there[2], back[2];
    cr_assert(pipe(there) == 0 && pipe(back) == 0);
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        close(there[1]);
        close(back[0]);
        run(there[0], back[1]);
        _exit(0);
    }
    close(there[0]);
    close(back[1]);
    return (peer){.pid = pid, .to = there[1], .from = back[0]};
}

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

/* Makes an array, gives its handle, and ends when it is told to, having dropped the array. */
static void
run_maker(int from, int to)
{
    char word = 0;
    exo_ipc_handle handle;
    exo_device *gpu = open_gpu();
    exo_ipc_array *s = make(gpu, COUNT, 5, &handle);
    give(to, &handle, sizeof handle);
    while (take(from, &word, 1) && word != 'd')
        continue;
    exo_ipc_array_drop(&s);
    give(to, &word, 1);
    while (exo_ipc_array_count() > 0) /* until the reader has closed it */
        usleep(1000);
    exo_cuda_close(gpu);
}

/* Opens the handles that it gets, says what came of it, and drops them when it is told to. */
static void
run_reader(int from, int to)
{
    char word = 0;
    exo_ipc_handle handle;
    exo_device *gpu = open_gpu();
    while (take(from, &handle, sizeof handle)) {
        exo_ipc_array *s = NULL;
        exo_status st = exo_ipc_array_open(&s, gpu, &handle, NULL);
        word = st == EXO_OK ? has_numbers(s, 5) ? 'y' : 'n' : 'e';
        give(to, &word, 1);
        bool more = take(from, &word, 1);
        exo_ipc_array_drop(&s);
        if (!more)
            break;
        give(to, &word, 1);
    }
    exo_cuda_close(gpu);
}

/* --- Tests ------------------------------------------------------------------------------------ */

Test(cuda_share, another_process_reads_the_memory, .timeout = 120)
{
    exo_ipc_handle handle;
    exo_ipc_array *s = NULL, *again = NULL;
    exo_err err = {0};
    char word = 'd';
    peer p = begin(run_maker);
    exo_device *gpu = open_gpu();
    cr_assert(take(p.from, &handle, sizeof handle));
    cr_assert_eq(exo_ipc_array_open(&s, gpu, &handle, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_ipc_array_of(s).count, COUNT);
    cr_expect(has_numbers(s, 5));
    cr_assert_eq(exo_ipc_array_open(&again, gpu, &handle, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_ipc_array_of(s).data, exo_ipc_array_of(again).data, "it is opened once");
    cr_expect_eq(exo_ipc_array_count(), 1);
    cr_expect_eq(exo_ipc_array_seal(s, &handle, &err), EXO_UNSUPPORTED);
    give(p.to, &word, 1); /* it drops the array, which others read */
    cr_assert(take(p.from, &word, 1));
    cr_expect(has_numbers(again, 5));
    exo_ipc_array_drop(&again);
    exo_ipc_array_drop(&s);
    cr_expect_eq(exo_ipc_array_open(&s, gpu, &handle, &err), EXO_NOT_FOUND, "%s", err.text);
    end(&p, false);
    close_gpu(gpu);
}

/* The reader ends with its turn, or is killed while it reads. */
static void
read_until(bool by_force)
{
    char word = 0;
    exo_ipc_handle handle;
    peer p = begin(run_reader);
    exo_device *gpu = open_gpu();
    exo_ipc_array *s = make(gpu, 1000, 5, &handle);
    give(p.to, &handle, sizeof handle);
    cr_assert(take(p.from, &word, 1));
    cr_expect_eq(word, 'y');
    exo_ipc_array_drop(&s);
    cr_expect_eq(exo_ipc_array_count(), 1, "a process reads it");
    cr_expect_geq(cuda_emulator_memory(), 4000);
    if (!by_force) {
        give(p.to, "d", 1);
        cr_assert(take(p.from, &word, 1));
        cr_expect_eq(exo_ipc_array_count(), 0);
    }
    end(&p, by_force);
    close_gpu(gpu);
}

Test(cuda_share, memory_lives_until_its_reader_drops_it, .timeout = 120)
{
    read_until(false);
}

Test(cuda_share, a_killed_reader_keeps_no_memory, .timeout = 120)
{
    read_until(true);
}

/* Nobody has waited for the dead maker yet, so its number is still taken, as if by another process. */
Test(cuda_share, a_maker_whose_number_is_taken_is_known_to_be_dead, .timeout = 120)
{
    exo_ipc_handle handle;
    exo_ipc_array *s = NULL, *other = NULL;
    exo_err err = {0};
    siginfo_t info;
    peer p = begin(run_maker);
    exo_device *gpu = open_gpu();
    cr_assert(take(p.from, &handle, sizeof handle));
    cr_assert_eq(exo_ipc_array_open(&s, gpu, &handle, &err), EXO_OK, "%s", err.text);
    kill(p.pid, SIGKILL);
    cr_assert_eq(waitid(P_PID, (id_t)p.pid, &info, WEXITED | WNOWAIT), 0);
    cr_assert_eq(kill(p.pid, 0), 0);
    exo_ipc_array_drop(&s);
    cr_expect_eq(exo_ipc_array_open(&other, gpu, &handle, &err), EXO_PEER_LOST, "%s", err.text);
    end(&p, true);
    close_gpu(gpu);
}

Test(cuda_share, a_reader_of_a_killed_maker_goes_on, .timeout = 120)
{
    exo_ipc_handle handle;
    exo_ipc_array *s = NULL;
    exo_err err = {0};
    peer p = begin(run_maker);
    exo_device *gpu = open_gpu();
    cr_assert(take(p.from, &handle, sizeof handle));
    cr_assert_eq(exo_ipc_array_open(&s, gpu, &handle, &err), EXO_OK, "%s", err.text);
    end(&p, true);
    cr_expect(has_numbers(s, 5));
    exo_ipc_array_drop(&s);
    cr_expect_eq(exo_ipc_array_open(&s, gpu, &handle, &err), EXO_PEER_LOST, "%s", err.text);
    cr_expect_null(s);
    close_gpu(gpu);
}

Test(cuda_share, the_makers_process_has_the_memory_itself)
{
    exo_ipc_handle handle;
    exo_ipc_array *mine, *theirs = NULL;
    exo_err err = {0};
    exo_device *gpu = open_gpu(), *other = open_gpu();
    mine = make(gpu, 1000, 5, &handle);
    cr_assert_eq(exo_ipc_array_open(&theirs, other, &handle, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_ipc_array_of(mine).data, exo_ipc_array_of(theirs).data);
    cr_expect_eq(exo_ipc_array_of(theirs).device, other);
    exo_ipc_array_drop(&mine);
    cr_expect(has_numbers(theirs, 5), "the last reference counts");
    exo_ipc_array_drop(&theirs);
    cr_expect_eq(exo_ipc_array_open(&theirs, other, &handle, &err), EXO_NOT_FOUND, "%s", err.text);
    exo_cuda_close(other);
    close_gpu(gpu);
}

Test(cuda_share, only_devices_with_such_memory_share_it)
{
    exo_ipc_handle handle = {{0}};
    exo_ipc_array *s = NULL;
    exo_err err = {0};
    exo_device *gpu = open_gpu();
    cr_expect_eq(exo_ipc_place(exo_device_cpu()), 0);
    cr_expect_neq(exo_ipc_place(gpu), 0);
    uint64_t here = exo_ipc_place(gpu);
    setenv("EXOGYM_HOST_ID", "elsewhere", 1);
    cr_expect_neq(exo_ipc_place(gpu), here, "another host is another place");
    cr_expect_eq(exo_ipc_array_new(&s, exo_device_cpu(), EXO_F32, 1, &err), EXO_UNSUPPORTED);
    cr_expect(strstr(err.text, "cpu") && strstr(err.text, "send the bytes"), "%s", err.text);
    cr_expect_eq(exo_ipc_array_open(&s, exo_device_cpu(), &handle, &err), EXO_UNSUPPORTED);
    cuda_emulator_set_memory(cuda_emulator_memory() + (1 << 20));
    cr_expect_eq(exo_ipc_array_new(&s, gpu, EXO_F32, 1, &err), EXO_NOMEM, "%s", err.text);
    cr_expect_eq(exo_ipc_array_new(&s, gpu, EXO_F32, SIZE_MAX / 2, &err), EXO_NOMEM);
    cr_expect_null(s);
    close_gpu(gpu);
}

/* --- Faults ----------------------------------------------------------------------------------- */

/* Gives handles of objects that lie about their memory. */
static void
run_liar(int from, int to)
{
    enum {
        AT_DEVICE = 8,
        AT_COUNT = 24,
        AT_PLACE = 40,
        AT_BYTES = 48,
        AT_UNIT = 56,
        AT_HANDLE = 72
    };
    static const struct {
        size_t at;
        uint64_t value;
    } lies[] = {{0, 1},           {AT_DEVICE, 0x757063}, {AT_COUNT, UINT64_MAX}, {AT_COUNT, 2000},
                {AT_BYTES, 3999}, {AT_UNIT, 7},          {AT_HANDLE, 7},         {AT_HANDLE + 8, 7},
                {AT_COUNT, 1},    {AT_PLACE, 7}};
    exo_ipc_handle handle, lie;
    exo_device *gpu = open_gpu();
    exo_ipc_array *s = make(gpu, 1000, 5, &handle);
    exo_store *store = NULL;
    exo_object *truth = NULL, *object = NULL;
    cr_assert_eq(exo_store_default(&store, NULL), EXO_OK);
    cr_assert_eq(
        exo_object_import(store, (const exo_object_handle *)(const void *)&handle, &truth, NULL),
        EXO_OK);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        char word = 0;
        cr_assert_eq(exo_object_new(&object, EXO_OBJECT_RECORD, NULL), EXO_OK);
        memcpy(exo_object_data(object), exo_object_data(truth), EXO_OBJECT_RECORD);
        exo_object_set_kind(object, exo_object_kind(truth));
        exo_object_set_elsewhere(object, exo_object_bytes(truth), 0, NULL);
        exo_object_seal(object);
        memcpy((char *)exo_object_data(object) + lies[i].at, &lies[i].value, sizeof lies[i].value);
        cr_assert_eq(exo_object_export(object, (exo_object_handle *)(void *)&lie, NULL), EXO_OK);
        give(to, &lie, sizeof lie);
        if (!take(from, &word, 1))
            break;
        exo_object_drop(&object);
    }
    /* an object that readers copy, and one that is no record */
    for (size_t size = 4096; size <= 8192; size *= 2) {
        char word = 0;
        static const char zeros[8192];
        cr_assert_eq(exo_object_put(&object, zeros, size, NULL), EXO_OK);
        cr_assert_eq(exo_object_export(object, (exo_object_handle *)(void *)&lie, NULL), EXO_OK);
        give(to, &lie, sizeof lie);
        if (!take(from, &word, 1))
            break;
        exo_object_drop(&object);
    }
    exo_object_drop(&truth);
    exo_ipc_array_drop(&s);
    exo_cuda_close(gpu);
}

Test(cuda_share, a_forged_handle_is_an_error, .timeout = 120)
{
    static const exo_status expected[] = {
        EXO_INVAL,       EXO_UNSUPPORTED, EXO_INVAL, EXO_INVAL,       EXO_INVAL, EXO_UNSUPPORTED,
        EXO_UNSUPPORTED, EXO_UNSUPPORTED, EXO_INVAL, EXO_UNSUPPORTED, EXO_INVAL, EXO_INVAL};
    exo_ipc_handle handle;
    exo_ipc_array *s = NULL;
    peer liar = begin(run_liar);
    exo_device *gpu = open_gpu();
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        exo_err err = {0};
        cr_assert(take(liar.from, &handle, sizeof handle));
        cr_expect_eq(exo_ipc_array_open(&s, gpu, &handle, &err), expected[i], "lie %zu: %s", i,
                     err.text);
        exo_ipc_array_drop(&s);
        give(liar.to, "x", 1);
    }
    end(&liar, false);
    for (size_t bit = 0; bit < 8 * sizeof handle; bit++) {
        exo_ipc_handle forged = handle;
        forged.words[bit / 64] ^= UINT64_C(1) << bit % 64;
        cr_expect_neq(exo_ipc_array_open(&s, gpu, &forged, NULL), EXO_OK, "bit %zu", bit);
    }
    close_gpu(gpu);
}

/* Sees another GPU of the machine. */
static void
run_other_gpu(int from, int to)
{
    cuda_emulator_set_first(1);
    run_reader(from, to);
}

Test(cuda_share, a_gpu_that_a_process_does_not_see_is_not_read, .timeout = 120)
{
    char word = 0;
    exo_ipc_handle handle;
    peer p = begin(run_other_gpu);
    exo_device *gpu = open_gpu();
    exo_ipc_array *s = make(gpu, 1000, 5, &handle);
    give(p.to, &handle, sizeof handle);
    cr_assert(take(p.from, &word, 1));
    cr_expect_eq(word, 'e');
    end(&p, false);
    exo_ipc_array_drop(&s);
    close_gpu(gpu);
}

Test(cuda_share, each_call_fails_in_turn_and_leaves_nothing, .timeout = 120)
{
    exo_ipc_handle handle, own;
    exo_ipc_array *s = NULL, *mine = NULL;
    size_t refused = 0;
    char word = 'd';
    peer p = begin(run_maker);
    exo_device *gpu = open_gpu();
    cr_assert(take(p.from, &handle, sizeof handle));
    for (uint64_t n = 1;; n++) {
        cuda_emulator_fail_call(n);
        exo_status st = exo_ipc_array_new(&mine, gpu, EXO_F32, 1000, NULL);
        st = st == EXO_OK ? exo_ipc_array_seal(mine, &own, NULL) : st;
        if (st == EXO_OK)
            st = exo_ipc_array_open(&s, gpu, &handle, NULL);
        cuda_emulator_fail_call(0);
        exo_ipc_array_drop(&s);
        exo_ipc_array_drop(&mine);
        cr_assert_eq(exo_ipc_array_count(), 0, "call %zu", (size_t)n);
        if (st == EXO_OK)
            break;
        refused++;
        exo_cuda_close(gpu); /* a device remembers a failure */
        gpu = open_gpu();
    }
    cr_expect_geq(refused, 5);
    cr_assert_eq(exo_ipc_array_open(&s, gpu, &handle, NULL), EXO_OK);
    cr_expect(has_numbers(s, 5));
    exo_ipc_array_drop(&s);
    give(p.to, &word, 1);
    cr_assert(take(p.from, &word, 1));
    end(&p, false);
    close_gpu(gpu);
}
