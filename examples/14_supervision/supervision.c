/* Supervision: actors that crash on purpose. A restart rule gives an actor a new life, with none of
 * its state, until the actor has crashed too often. A group restarts together. A link ends one
 * actor when another one fails.
 *
 * The head of a cluster decides about restarts. Without a cluster this program makes its own: a
 * head, a worker and a driver, which are three runtimes of one process.
 *
 * CMakeLists.txt builds this file twice: as the program, and as a plugin, from which the workers of
 * a cluster load the actors' classes.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/exogym.h>

/* --- Actors ----------------------------------------------------------------------------------- */

/* Counts its calls, and crashes on demand. */
struct counter {
    uint64_t count;
};

static exo_status
count(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)call, (void)args, (void)err;
    struct counter *c = self;
    c->count++;
    return exo_payload_copy(reply, &c->count, sizeof c->count);
}

static exo_status
crash(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)self, (void)args, (void)reply, (void)err;
    exo_call_die(call, "crashed on purpose");
    return EXO_OK;
}

static const exo_method counter_methods[] = {{.name = "count", .run = count},
                                             {.name = "crash", .run = crash}};
static const exo_actor_class counter = {.name = "example.counter",
                                        .state_size = sizeof(struct counter),
                                        .methods = counter_methods,
                                        .num_methods = 2};

/* Spawns a child and links itself to it: if either fails, both end. */
struct parent {
    uint64_t count; /* the first member, as in struct counter: `count` serves both */
    exo_runtime *runtime;
    exo_ref child;
};

static exo_status
parent_start(exo_call_context *call, void *self, const exo_payload *args, exo_err *err)
{
    (void)args;
    struct parent *p = self;
    p->runtime = exo_call_runtime(call);
    exo_status st = exo_spawn(p->runtime, &counter, NULL, &p->child, err);
    return st == EXO_OK ? exo_link(p->runtime, exo_call_self(call), p->child, err) : st;
}

/* Stops the child, too: a link is for failures, so after a clean stop the child would live on. */
static void
parent_stop(void *self)
{
    struct parent *p = self;
    exo_stop(p->runtime, p->child, false, NULL);
}

static exo_status
crash_child(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
            exo_err *err)
{
    (void)args, (void)reply;
    const struct parent *p = self;
    return exo_send(exo_call_runtime(call), p->child, "crash", (exo_payload){0},
                    exo_call_deadline(call), err);
}

static const exo_method parent_methods[] = {{.name = "count", .run = count},
                                            {.name = "crash_child", .run = crash_child}};
static const exo_actor_class parent = {.name = "example.parent",
                                       .state_size = sizeof(struct parent),
                                       .start = parent_start,
                                       .stop = parent_stop,
                                       .methods = parent_methods,
                                       .num_methods = 2};

EXO_PLUGIN
{
    exo_status st = exo_actor_class_register(&counter, err);
    return st == EXO_OK ? exo_actor_class_register(&parent, err) : st;
}

/* --- The driver ------------------------------------------------------------------------------- */

static exo_time
in(exo_time time)
{
    return exo_deadline(exo_clock_real(), time);
}

static void
make(exo_runtime *runtime, const char *class_name, const char *name, exo_restart_rule rule,
     const char *group, exo_group_rule group_rule)
{
    static const char *const plugins[] = {PLUGIN};
    const exo_spawn_opts opts = {.name = name,
                                 .namespace_name = "example",
                                 .restart = rule,
                                 .group = group,
                                 .group_rule = group_rule,
                                 .plugins = plugins,
                                 .num_plugins = 1};
    exo_ref ref;
    exo_err err = {0};
    if (exo_spawn_class(runtime, class_name, &opts, in(20 * EXO_SECOND), &ref, &err) != EXO_OK) {
        fprintf(stderr, "supervision: %s: %s\n", name, err.text);
        exit(EXIT_FAILURE);
    }
}

/* Calls `count` of the actor's current life. The head may not have learnt yet that a life has
 * ended, so PEER_LOST is a reason to look up the name again. Only the caller can decide this: here
 * an extra count does no harm. */
static exo_status
ask(exo_runtime *runtime, const char *name, exo_err *err)
{
    exo_status st = EXO_PEER_LOST;
    for (exo_time deadline = in(20 * EXO_SECOND);
         st == EXO_PEER_LOST && exo_now(exo_clock_real()) < deadline;) {
        exo_ref ref;
        exo_future *future = NULL;
        const exo_payload *reply = NULL;
        st = exo_get_actor(runtime, "example", name, &ref, err); /* waits for a restart */
        if (st == EXO_OK)
            st = exo_call(runtime, ref, "count", (exo_payload){0}, deadline, &future, err);
        if (st == EXO_OK)
            st = exo_wait(future, deadline, &reply, err);
        if (st == EXO_OK)
            printf("  %s counts %" PRIu64 "\n", name, *(const uint64_t *)reply->data);
        exo_future_drop(&future);
    }
    return st;
}

/* Sends `method` to the victim, which ends all actors of `names`. Prints the cause of each one's
 * death. */
static void
strike(exo_runtime *runtime, const char *victim, const char *method, const char *const *names,
       size_t num_names)
{
    exo_future *monitors[3] = {0};
    exo_ref ref, target = {0};
    exo_err err = {0};
    for (size_t i = 0; i < num_names; i++) {
        if (exo_get_actor(runtime, "example", names[i], &ref, &err) == EXO_OK)
            exo_monitor(runtime, ref, &monitors[i], &err);
        if (strcmp(names[i], victim) == 0)
            target = ref;
    }
    exo_send(runtime, target, method, (exo_payload){0}, in(20 * EXO_SECOND), &err);
    for (size_t i = 0; i < num_names; i++) {
        exo_status st =
            monitors[i] ? exo_wait(monitors[i], in(20 * EXO_SECOND), NULL, &err) : EXO_NOT_FOUND;
        printf("  %s\n", st == EXO_OK ? "it was stopped" : err.text);
        exo_future_drop(&monitors[i]);
    }
}

static exo_status
demonstrate(exo_runtime *runtime, exo_err *err)
{
    static const char *const flaky = "flaky", *const family = "parent";
    static const char *const names[2][3] = {{"reader", "parser", "writer"},
                                            {"first", "second", "third"}};
    static const char *const headings[] = {"all_for_one", "rest_for_one"};
    static const exo_group_rule rules[] = {EXO_ALL_FOR_ONE, EXO_REST_FOR_ONE};
    /* The first restart comes 10 ms after a failure, the second after 20 ms. The third death within
     * a minute is final. */
    exo_restart_rule rule = {.when = EXO_RESTART_ON_FAILURE,
                             .max = 2,
                             .within = 60 * EXO_SECOND,
                             .backoff = 10 * EXO_MS};

    printf("a restart rule\n");
    make(runtime, "example.counter", "flaky", rule, NULL, EXO_ONE_FOR_ONE);
    exo_status st = ask(runtime, "flaky", err);
    for (int life = 1; life <= 3 && st == EXO_OK; life++) {
        st = ask(runtime, "flaky", err);
        strike(runtime, "flaky", "crash", &flaky, 1);
        if (st == EXO_OK)
            st = ask(runtime, "flaky", err);
    }
    printf("  %s\n", err->text);
    if (st != EXO_NOT_FOUND)
        return exo_fail(err, EXO_FAILED, "it should be dead by now");

    st = EXO_OK;
    for (int g = 0; g < 2; g++) {
        printf("%s\n", headings[g]);
        for (size_t i = 0; i < 3; i++)
            make(runtime, "example.counter", names[g][i], rule, headings[g], rules[g]);
        for (size_t i = 0; i < 3 && st == EXO_OK; i++)
            st = ask(runtime, names[g][i], err);
        /* rest_for_one spares the first actor, which was made before the victim */
        strike(runtime, names[g][1], "crash", &names[g][g], 3 - (size_t)g);
        for (size_t i = 0; i < 3 && st == EXO_OK; i++)
            st = ask(runtime, names[g][i], err);
    }

    printf("a link\n");
    make(runtime, "example.parent", "parent", rule, NULL, EXO_ONE_FOR_ONE);
    if (st == EXO_OK)
        st = ask(runtime, "parent", err);
    strike(runtime, "parent", "crash_child", &family, 1);
    return st == EXO_OK ? ask(runtime, "parent", err) : st;
}

/* --- Processes -------------------------------------------------------------------------------- */

struct node {
    exo_runtime *runtime;
    exo_cluster *cluster;
};

static void
join(struct node *node, exo_cluster_role role, const char *head, const char *folder)
{
    const exo_cluster_opts opts = {.role = role, .head = head, .folder = folder, .state = "none"};
    exo_err err = {0};
    if (exo_runtime_open(&node->runtime, NULL, &err) != EXO_OK ||
        exo_cluster_join(&node->cluster, node->runtime, &opts, in(10 * EXO_SECOND), &err) !=
            EXO_OK) {
        fprintf(stderr, "supervision: %s\n", err.text);
        exit(EXIT_FAILURE);
    }
}

static void
leave(struct node *node)
{
    exo_cluster_leave(node->cluster);
    exo_runtime_close(&node->runtime, in(10 * EXO_SECOND), NULL);
    exo_cluster_free(&node->cluster);
}

int
main(int argc, char **argv)
{
    char folder[] = "/tmp/supervision-XXXXXX", inside[64];
    const char *address =
        argc == 3 && strcmp(argv[1], "--head") == 0 ? argv[2] : getenv("EXOGYM_HEAD");
    bool alone = !address;
    struct node head = {0}, worker = {0}, driver = {0};
    exo_err err = {0};
    if (alone && !mkdtemp(folder))
        return EXIT_FAILURE;
    if (alone) {
        join(&head, EXO_ROLE_HEAD, NULL, folder);
        address = exo_cluster_address(head.cluster);
        join(&worker, EXO_ROLE_WORKER, address, folder);
    }
    join(&driver, EXO_ROLE_DRIVER, address, alone ? folder : NULL);
    exo_status st = demonstrate(driver.runtime, &err);
    if (st != EXO_OK)
        fprintf(stderr, "supervision: %s\n", err.text);
    leave(&driver);
    if (alone) {
        leave(&worker);
        leave(&head);
        snprintf(inside, sizeof inside, "%s/default/head.lock", folder);
        unlink(inside);
        snprintf(inside, sizeof inside, "%s/default", folder);
        rmdir(inside);
        rmdir(folder);
    }
    return st == EXO_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
