/* A child of fork, without exec, in a program that uses the library: it makes objects, loops, logs and
 * runtimes of its own, whatever other threads of the parent did at the fork, and the parent's stay as
 * they are.
 *
 * The child's status is its exit status; an alarm ends a child that waits for a thread that it does
 * not have. Read next: runtime/base/forks.h. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <exogym/exogym.h>

#include "base/parallel.h"
#include "support/check.h"
#include "support/sanitized.h"

enum {
    CHILD_SECONDS = 60
};

static exo_err err;

static exo_time
soon(void)
{
    return exo_deadline(exo_clock_real(), 60 * EXO_SECOND);
}

/* Runs `act` in a child. */
static void
in_child(void (*act)(void *context), void *context)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        alarm(CHILD_SECONDS);
        act(context);
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(status, 0, "the child's status is %#x", (unsigned)status);
}

/* A sanitizer's allocator does not begin anew in a child: if a thread of the pool is in it at the
 * fork, the child waits for it. */
static void
skip_if_sanitized(void)
{
    if (SANITIZED)
        cr_skip_test("the sanitizer's allocator cannot be forked beside threads");
}

/* --- Objects ---------------------------------------------------------------------------------- */

static void
put_and_drop(void *first)
{
    exo_object *own = NULL, *inherited = first;
    CHECK(strcmp(exo_object_data(inherited), "first") == 0);
    for (int i = 0; i < 300; i++) { /* more than one segment has room for */
        CHECK(exo_object_put(&own, "child", 6, NULL) == EXO_OK);
        CHECK(strcmp(exo_object_data(own), "child") == 0);
    }
    exo_object_drop(&own);
    exo_object_drop(&inherited);
    CHECK(exo_object_put(&own, "again", 6, NULL) == EXO_OK);
}

Test(forks, a_child_leaves_objects_of_its_parent_alone)
{
    exo_runtime *runtime = NULL;
    exo_object *first = NULL, *second = NULL, *named = NULL;
    exo_object_id id;
    skip_if_sanitized();
    cr_assert_eq(exo_runtime_open(&runtime, NULL, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_object_put(&first, "first", 6, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_object_name(runtime, first, &id, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_object_put(&second, "second", 7, &err), EXO_OK, "%s", err.text);
    void *place = exo_object_data(second);
    exo_object_drop(&second); /* its place is free at the fork */
    in_child(put_and_drop, first);
    cr_expect_str_eq(place, "second");
    cr_expect_str_eq(exo_object_data(first), "first");
    cr_expect_eq(exo_object_get(runtime, &id, soon(), &named, &err), EXO_OK, "%s", err.text);
    exo_object_drop(&named);
    exo_object_drop(&first);
    cr_expect_eq(exo_runtime_close(&runtime, soon(), &err), EXO_OK, "%s", err.text);
}

/* --- Runtimes --------------------------------------------------------------------------------- */

static exo_status
answer(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *e)
{
    (void)call;
    (void)self;
    (void)args;
    (void)e;
    return exo_payload_copy(reply, "yes", 4);
}

static atomic_bool answers; /* "wait" may answer */

static exo_status
wait_to_answer(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
               exo_err *e)
{
    while (!atomic_load(&answers))
        usleep(1000);
    return answer(call, self, args, reply, e);
}

static const exo_method methods[] = {{.name = "ask", .run = answer},
                                     {.name = "wait", .run = wait_to_answer}};
static const exo_actor_class answerer = {
    .name = "answerer", .state_size = 1, .methods = methods, .num_methods = 2};

static void
close_and_open(void *context)
{
    exo_runtime *inherited = context, *own = NULL;
    exo_ref actor;
    exo_payload reply;
    CHECK(exo_runtime_close(&inherited, INT64_MAX, NULL) == EXO_UNSUPPORTED);
    CHECK(exo_runtime_open(&own, NULL, NULL) == EXO_OK);
    CHECK(exo_spawn(own, &answerer, NULL, &actor, NULL) == EXO_OK);
    CHECK(exo_call_wait(own, actor, "ask", (exo_payload){0}, soon(), &reply, NULL) == EXO_OK);
    exo_payload_release(&reply);
    CHECK(exo_runtime_close(&own, soon(), NULL) == EXO_OK);
}

Test(forks, a_child_opens_a_runtime_and_cannot_close_its_parents)
{
    exo_runtime *runtime = NULL;
    exo_ref actor;
    exo_payload reply;
    skip_if_sanitized();
    cr_assert_eq(exo_runtime_open(&runtime, NULL, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_spawn(runtime, &answerer, NULL, &actor, &err), EXO_OK, "%s", err.text);
    in_child(close_and_open, runtime);
    cr_expect_eq(exo_call_wait(runtime, actor, "ask", (exo_payload){0}, soon(), &reply, &err),
                 EXO_OK, "%s", err.text);
    exo_payload_release(&reply);
    cr_expect_eq(exo_runtime_close(&runtime, soon(), &err), EXO_OK, "%s", err.text);
}

/* What a child tries with the runtime of its parent. */
struct inherited {
    exo_runtime *runtime;
    exo_ref actor;
    exo_future *done, *pending;
};

static void
call_as_before(void *context)
{
    struct inherited *p = context;
    exo_runtime *rt = p->runtime;
    exo_future *futures[] = {p->pending}, *call = NULL;
    exo_actor_id id;
    exo_ref ref;
    exo_err e = {0};
    char *text = NULL, cause[64];
    size_t index;
    CHECK(exo_call(rt, p->actor, "ask", (exo_payload){0}, INT64_MAX, &call, &e) == EXO_UNSUPPORTED);
    CHECK(!call && strstr(e.text, "open another one"));
    CHECK(exo_send(rt, p->actor, "ask", (exo_payload){0}, INT64_MAX, NULL) == EXO_UNSUPPORTED);
    CHECK(exo_spawn(rt, &answerer, NULL, &ref, NULL) == EXO_UNSUPPORTED);
    CHECK(exo_spawn_class(rt, "answerer", NULL, INT64_MAX, &ref, NULL) == EXO_UNSUPPORTED);
    CHECK(exo_get_actor(rt, NULL, "none", &ref, NULL) == EXO_UNSUPPORTED);
    CHECK(exo_monitor(rt, p->actor, &call, NULL) == EXO_UNSUPPORTED && !call);
    CHECK(exo_link(rt, p->actor, p->actor, NULL) == EXO_UNSUPPORTED);
    CHECK(exo_cause(rt, p->actor, cause, sizeof cause) == EXO_UNSUPPORTED);
    CHECK(exo_dump(rt, p->actor, &text, NULL) == EXO_UNSUPPORTED);
    CHECK(exo_ref_export(rt, p->actor, &id, NULL) == EXO_UNSUPPORTED);
    CHECK(exo_ref_import(rt, &(exo_actor_id){.id = 1}, INT64_MAX, &ref, NULL) == EXO_UNSUPPORTED);
    CHECK(exo_stop(rt, p->actor, true, NULL) == EXO_UNSUPPORTED);
    CHECK(exo_kill(rt, p->actor, NULL, NULL) == EXO_UNSUPPORTED);
    CHECK(exo_wait(p->done, INT64_MAX, NULL, NULL) == EXO_OK);
    CHECK(exo_wait(p->pending, INT64_MAX, NULL, &e) == EXO_UNSUPPORTED);
    CHECK(strstr(e.text, "wait for it there"));
    CHECK(exo_wait_any(futures, 1, INT64_MAX, &index, NULL) == EXO_UNSUPPORTED);
    CHECK(exo_wait_all(futures, 1, INT64_MAX, NULL) == EXO_UNSUPPORTED);
    exo_cancel(p->pending);
    CHECK(!exo_future_ready(p->pending));
    exo_future_drop(&p->pending);
}

Test(forks, a_childs_calls_of_its_parents_runtime_end_at_once)
{
    struct inherited p = {0};
    skip_if_sanitized();
    cr_assert_eq(exo_runtime_open(&p.runtime, NULL, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_spawn(p.runtime, &answerer, NULL, &p.actor, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_call(p.runtime, p.actor, "ask", (exo_payload){0}, soon(), &p.done, &err),
                 EXO_OK);
    cr_assert_eq(exo_wait(p.done, soon(), NULL, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_call(p.runtime, p.actor, "wait", (exo_payload){0}, soon(), &p.pending, &err),
                 EXO_OK, "%s", err.text);
    in_child(call_as_before, &p);
    atomic_store(&answers, true);
    cr_expect_eq(exo_wait(p.pending, soon(), NULL, &err), EXO_OK, "%s", err.text);
    exo_future_drop(&p.done);
    exo_future_drop(&p.pending);
    cr_expect_eq(exo_runtime_close(&p.runtime, soon(), &err), EXO_OK, "%s", err.text);
}

/* --- Threads in the midst of something -------------------------------------------------------- */

/* A thread that stays inside of the library until it may go on. */
static atomic_bool inside, go_on;

static void
stay_inside(void)
{
    atomic_store(&inside, true);
    while (!atomic_load(&go_on))
        usleep(1000);
}

static void
stay_in_piece(void *context, size_t index)
{
    (void)context;
    if (index == 0)
        stay_inside();
}

static void *
loop_main(void *unused)
{
    exo_parallel_for(2, stay_in_piece, NULL);
    return unused;
}

static void
stay_in_sink(void *context, exo_log_level level, const char *line)
{
    (void)context;
    (void)level;
    (void)line;
    stay_inside();
}

static void *
log_main(void *unused)
{
    EXO_LOG(ERROR, TEST, "a line");
    return unused;
}

/* Forks while a thread is in `run`. */
static void
in_child_during(void *(*run)(void *), void (*act)(void *context))
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, run, NULL), 0);
    while (!atomic_load(&inside))
        usleep(1000);
    in_child(act, NULL);
    atomic_store(&go_on, true);
    cr_assert_eq(pthread_join(thread, NULL), 0);
}

static void
count_piece(void *context, size_t index)
{
    (void)index;
    atomic_fetch_add((atomic_uint *)context, 1);
}

static void
run_loop(void *unused)
{
    atomic_uint pieces = 0;
    (void)unused;
    exo_parallel_for(8, count_piece, &pieces);
    CHECK(pieces == 8);
}

Test(forks, a_child_computes_although_other_threads_had_all_slots)
{
    exo_set_num_threads(1);
    in_child_during(loop_main, run_loop);
    run_loop(NULL);
}

static void
log_line(void *unused)
{
    (void)unused;
    atomic_store(&go_on, true);
    EXO_LOG(ERROR, TEST, "a line of the child");
}

Test(forks, a_child_logs_although_another_thread_did)
{
    exo_log_set_sink(stay_in_sink, NULL);
    in_child_during(log_main, log_line);
    exo_log_set_sink(NULL, NULL);
}

/* --- Futures that threads leave to others ----------------------------------------------------- */

#if !defined(__SANITIZE_ADDRESS__) /* with it threads keep no futures */

enum {
    MANY = 300 /* futures: more than a thread keeps */
};

/* The next lock that this thread takes stays locked until it may go on. */
static _Thread_local bool lingers;

int
pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    static int (*_Atomic next)(pthread_mutex_t *);
    if (!next) {
        int (*found)(pthread_mutex_t *);
        *(void **)&found = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
        next = found;
    }
    if (lingers) {
        lingers = false;
        stay_inside();
    }
    return next(mutex);
}

/* Has so many futures at a time. */
static void
ask_often(exo_runtime *runtime, exo_ref actor)
{
    static exo_future *futures[MANY];
    for (int i = 0; i < MANY; i++)
        CHECK(exo_call(runtime, actor, "ask", (exo_payload){0}, soon(), &futures[i], NULL) ==
              EXO_OK);
    for (int i = 0; i < MANY; i++) {
        CHECK(exo_wait(futures[i], INT64_MAX, NULL, NULL) == EXO_OK);
        exo_future_drop(&futures[i]);
    }
}

static void
make_futures(void *unused)
{
    exo_runtime *own = NULL;
    exo_ref actor;
    (void)unused;
    CHECK(exo_runtime_open(&own, NULL, NULL) == EXO_OK);
    CHECK(exo_spawn(own, &answerer, NULL, &actor, NULL) == EXO_OK);
    ask_often(own, actor);
    CHECK(exo_runtime_close(&own, soon(), NULL) == EXO_OK);
}

/* A thread that ends leaves its futures to the others, and is at that. */
static void *
leave_futures_main(void *unused)
{
    make_futures(NULL);
    lingers = true;
    return unused;
}

Test(forks, a_child_makes_futures_although_another_thread_left_some, .timeout = 120)
{
    in_child_during(leave_futures_main, make_futures);
    make_futures(NULL);
}

#endif
