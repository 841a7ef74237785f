/* Plugins: a plugin's classes work and are registered once; a file that is no plugin is refused
 * with a reason. The plugins are in tests/plugins, built as a user builds them: against the public
 * headers, linked to no library. Each test is a process. Read next: include/exogym/plugin.h. */
#include <criterion/criterion.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/actor.h>
#include <exogym/cluster.h>
#include <exogym/memory.h>
#include <exogym/plugin.h>

#include "actors/replica.h"
#include "base/file.h"
#include "base/memory_fault.h"
#include "base/plugin_build.h"
#include "support/nodes.h"
#include "support/temp.h"

#define PLUGIN(name) EXO_TEST_BINARY_DIR "/tests/plugins/" name ".so"

static void
expect_refused(const char *path, exo_status status, const char *reason)
{
    exo_err err = {0};
    cr_expect_eq(exo_plugin_load(path, &err), status, "%s", path);
    cr_expect_eq(err.code, status);
    cr_expect(strstr(err.text, reason) && strstr(err.text, path), "'%s' does not say '%s'",
              err.text, reason);
}

static const exo_strategy_class *
class_named(const char *name)
{
    const exo_strategy_class *c = NULL;
    for (size_t i = 0; (c = exo_strategy_class_at(i)) != NULL; i++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

Test(plugin, adds_a_strategy_that_trains)
{
    exo_err err = {0};
    cr_assert_eq(exo_plugin_load(PLUGIN("counts"), &err), EXO_OK, "%s", err.text);
    nodes plugged, ddp;
    nodes_init(&plugged, 3, 101, 2, 5, "counted", "{}");
    nodes_init(&ddp, 3, 101, 2, 5, "ddp", "{}");
    nodes_train(&plugged, 5);
    nodes_train(&ddp, 5);
    cr_expect_arr_eq(plugged.each[0].params, ddp.each[0].params, 101 * sizeof(float));
    nodes_release(&plugged);
    nodes_release(&ddp);
}

Test(plugin, again_is_a_no_op_under_any_name)
{
    exo_err err = {0};
    cr_expect_eq(exo_plugin_load(PLUGIN("counts"), &err), EXO_OK);
    cr_expect_eq(exo_plugin_load(PLUGIN("counts"), &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_plugin_load(EXO_TEST_BINARY_DIR "/tests/../tests/plugins/counts.so", &err),
                 EXO_OK);
    cr_assert_eq(chdir(EXO_TEST_BINARY_DIR "/tests/plugins"), 0);
    cr_expect_eq(exo_plugin_load("counts.so", &err), EXO_OK,
                 "a name without a slash is a file here: %s", err.text);
    cr_expect_str_eq(class_named("counted")->help, "1");
}

static void *
load_counts(void *status)
{
    *(exo_status *)status = exo_plugin_load(PLUGIN("counts"), NULL);
    return NULL;
}

Test(plugin, threads_that_load_it_at_once_all_succeed)
{
    pthread_t threads[8];
    exo_status status[8];
    for (int i = 0; i < 8; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, load_counts, &status[i]), 0);
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        cr_expect_eq(status[i], EXO_OK);
    }
    cr_expect_str_eq(class_named("counted")->help, "1");
}

Test(plugin, brings_the_class_of_an_actor_that_is_made_in_this_process)
{
    static const char *const plugins[] = {PLUGIN("class")}, *const wrong[] = {
                                                                "/nowhere/libmine.so"};
    const exo_spawn_opts opts = {.plugins = plugins, .num_plugins = 1};
    exo_runtime *runtime = NULL;
    exo_ref ref = {0};
    exo_err err = {0};
    cr_assert_eq(exo_runtime_open(&runtime, NULL, &err), EXO_OK);
    cr_expect_eq(exo_spawn_class(runtime, "of_a_plugin", NULL, INT64_MAX, &ref, &err),
                 EXO_NOT_FOUND);
    cr_expect_eq(exo_spawn_class(runtime, "of_a_plugin", &opts, INT64_MAX, &ref, &err), EXO_OK,
                 "%s", err.text);
    cr_expect_eq(exo_spawn_class(runtime, "of_a_plugin",
                                 &(exo_spawn_opts){.plugins = wrong, .num_plugins = 1}, INT64_MAX,
                                 &ref, &err),
                 EXO_NOT_FOUND);
    cr_expect(strstr(err.text, wrong[0]), "%s", err.text);
    cr_expect_eq(exo_spawn_class(runtime, "of_a_plugin",
                                 &(exo_spawn_opts){.placement = EXO_PLACE_STRICT}, INT64_MAX, &ref,
                                 &err),
                 EXO_INVAL, "as in a cluster");
    cr_expect(strstr(err.text, "needs the name of a worker"), "%s", err.text);
    cr_expect_eq(exo_runtime_close(&runtime, INT64_MAX, &err), EXO_OK);
}

/* Writes a plugin anew under a path, as a compiler does: another file with that name. `added` is written
 * behind its end, which changes its SHA-256 only. */
static void
build_at(const char *path, const char *plugin, const char *added)
{
    char *data = NULL;
    size_t size = 0;
    exo_err err = {0};
    cr_assert_eq(exo_file_read(plugin, 64 << 20, &data, &size, &err), EXO_OK, "%s", err.text);
    cr_assert((data = exo_realloc(data, size + strlen(added) + 1, 1)) != NULL);
    memcpy(data + size, added, strlen(added));
    cr_assert_eq(exo_file_write_atomic(path, data, size + strlen(added), &err), EXO_OK);
    exo_free(data);
}

static void
expect_refused_build(const char *path, const char *build, const char *reason)
{
    exo_err err = {0};
    cr_expect_eq(exo_plugin_load_build(path, build, &err), EXO_FAILED, "%s", reason);
    cr_expect(strstr(err.text, reason) && strstr(err.text, path), "'%s' does not say '%s'",
              err.text, reason);
}

Test(plugin, that_changed_after_it_was_loaded_is_refused)
{
    char folder[64], path[128], first[EXO_BUILD], now[EXO_BUILD];
    exo_err err = {0};
    temp_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/counts.so", folder);
    build_at(path, PLUGIN("counts"), "");
    cr_assert_eq(exo_plugin_load_build(path, NULL, &err), EXO_OK, "%s", err.text);
    exo_plugin_build(path, first);
    build_at(path, PLUGIN("counts"), ""); /* another file, and the same bytes */
    cr_expect_eq(exo_plugin_load_build(path, NULL, &err), EXO_OK, "%s", err.text);
    build_at(path, PLUGIN("counts"), "new");
    cr_assert_eq(exo_build_read(path, now, NULL, &err), EXO_OK, "%s", err.text);
    cr_expect_str_neq(now, first);
    expect_refused_build(path, NULL, "has changed since this process loaded it");
    expect_refused_build(path, "", "has changed since this process loaded it");
    expect_refused_build(path, now, "has changed since this process loaded it");
    /* a run that began with the first one goes on with it, and so does this process */
    cr_expect_eq(exo_plugin_load_build(path, first, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_plugin_load(path, &err), EXO_OK, "%s", err.text);
    exo_plugin_build(path, now);
    cr_expect_str_eq(now, first);
    cr_expect_str_eq(class_named("counted")->help, "1", "it ran once");
    build_at(path, PLUGIN("counts"), "");
    cr_expect_eq(exo_plugin_load_build(path, NULL, &err), EXO_OK, "%s", err.text);
    temp_remove(folder);
}

/* A driver that has loaded a plugin gets actors of it from workers that have loaded it, too, although it was
 * built again: a graph's actor has another life then. One process is head, worker and driver. */
Test(plugin, that_was_built_again_goes_on_for_who_has_the_first_one)
{
    enum {
        MEMBERS = 3
    };
    static const exo_cluster_role roles[MEMBERS] = {EXO_ROLE_HEAD, EXO_ROLE_WORKER,
                                                    EXO_ROLE_DRIVER};
    static const char *const names[MEMBERS] = {"head", "w", "d"};
    exo_runtime *runtimes[MEMBERS];
    exo_cluster *members[MEMBERS];
    char folder[64], path[128], state[128];
    const char *const plugins[] = {path};
    const exo_spawn_opts opts = {.plugins = plugins, .num_plugins = 1};
    exo_ref ref = {0};
    exo_err err = {0};
    temp_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/class.so", folder);
    snprintf(state, sizeof state, "%s/state", folder);
    build_at(path, PLUGIN("class"), "");
    cr_assert_eq(exo_plugin_load(path, &err), EXO_OK, "%s", err.text);
    build_at(path, PLUGIN("class"), "new");
    for (int i = 0; i < MEMBERS; i++) {
        const exo_cluster_opts member = {.role = roles[i],
                                         .name = names[i],
                                         .cluster = "test",
                                         .folder = folder,
                                         .state = state,
                                         .head = i > 0 ? exo_cluster_address(members[0]) : NULL};
        cr_assert_eq(exo_runtime_open(&runtimes[i], NULL, &err), EXO_OK);
        cr_assert_eq(exo_cluster_join(&members[i], runtimes[i], &member, INT64_MAX, &err), EXO_OK,
                     "%s: %s", names[i], err.text);
    }
    cr_expect_eq(exo_spawn_class(runtimes[2], "of_a_plugin", &opts, INT64_MAX, &ref, &err), EXO_OK,
                 "%s", err.text);
    for (int i = MEMBERS - 1; i >= 0; i--) {
        exo_cluster_leave(members[i]);
        cr_expect_eq(exo_runtime_close(&runtimes[i], INT64_MAX, &err), EXO_OK, "%s", err.text);
        exo_cluster_free(&members[i]);
    }
    temp_remove(folder);
}

Test(plugin, that_is_another_one_for_who_asks_is_refused)
{
    char folder[64], path[128], other[EXO_BUILD], foreign[EXO_BUILD + 2];
    exo_err err = {0};
    temp_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/counts.so", folder);
    build_at(path, PLUGIN("counts"), "new");
    cr_assert_eq(exo_build_read(path, other, NULL, &err), EXO_OK, "%s", err.text);
    expect_refused_build(PLUGIN("counts"), other, "is another file here");
    cr_expect_null(class_named("counted"), "it ran although it was refused");
    snprintf(foreign, sizeof foreign, "1%s", other); /* for another type of processor */
    cr_expect_eq(exo_plugin_load_build(PLUGIN("counts"), foreign, &err), EXO_OK, "%s", err.text);
    expect_refused_build(PLUGIN("counts"), other, "is another file here");
    cr_expect_eq(exo_plugin_load_build(PLUGIN("counts"), "", &err), EXO_OK, "%s", err.text);
    exo_plugin_build("/nowhere/libmine.so", other);
    cr_expect_str_eq(other, "");
    temp_remove(folder);
}

/* A node's document says which file the trainer has. */
Test(plugin, that_is_another_one_for_the_trainer_is_refused)
{
    static const char form[] = "{run: %s, nodes: 1, batch_size: 2, model: mlp, data: synthetic, "
                               "strategy: counted, plugins: [%s], plugin_builds: ['%s']}";
    char folder[64], path[128], text[512], build[EXO_BUILD];
    exo_replica_place place = {.channel = 1};
    exo_replica *node = NULL;
    exo_err err = {0};
    temp_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/counts.so", folder);
    build_at(path, PLUGIN("counts"), "new");
    cr_assert_eq(exo_runtime_open(&place.runtime, NULL, &err), EXO_OK);
    cr_assert_eq(exo_build_read(path, build, NULL, &err), EXO_OK, "%s", err.text);
    snprintf(text, sizeof text, form, "a", PLUGIN("counts"), build);
    cr_expect_eq(exo_replica_open(&node, &place, text, &err), EXO_FAILED);
    cr_expect(strstr(err.text, "is another file here"), "%s", err.text);
    cr_expect_null(class_named("counted"), "it ran although it was refused");
    cr_assert_eq(exo_build_read(PLUGIN("counts"), build, NULL, &err), EXO_OK, "%s", err.text);
    snprintf(text, sizeof text, form, "b", PLUGIN("counts"), build);
    cr_expect_eq(exo_replica_open(&node, &place, text, &err), EXO_OK, "%s", err.text);
    exo_replica_close(&node);
    cr_expect_eq(exo_runtime_close(&place.runtime, INT64_MAX, &err), EXO_OK);
    temp_remove(folder);
}

Test(plugin, refuses_what_is_none)
{
    expect_refused("/nowhere/libmine.so", EXO_NOT_FOUND, "No such file");
    expect_refused(EXO_TEST_BINARY_DIR, EXO_INVAL, "not a file");
    expect_refused(EXO_TEST_SOURCE_DIR "/unit/plugin.c", EXO_INVAL, "no shared object");
    expect_refused(PLUGIN("no_plugin"), EXO_INVAL, "EXO_PLUGIN");
    expect_refused(PLUGIN("unresolved"), EXO_INVAL, "exo_of_a_later_version");
    expect_refused(PLUGIN("other_abi"), EXO_INVAL, "12345");
}

Test(plugin, a_failure_of_its_own_is_passed_on_and_leaves_it_mapped)
{
    expect_refused(PLUGIN("fails"), EXO_UNSUPPORTED, "there is no such device");
    const exo_strategy_class *half_done = class_named("half_done");
    cr_assert_not_null(half_done);
    cr_expect_str_eq(half_done->help, "registered before the failure", "its memory is still there");
    cr_expect_eq(exo_plugin_load(PLUGIN("fails"), NULL), EXO_OK, "it may be tried again");
}

/* Copies a plugin to folder/name; `path` has 128 bytes. */
static void
copy_plugin(const char *from, const char *folder, const char *name, char *path)
{
    exo_err err = {0};
    char *data = NULL;
    size_t size = 0;
    snprintf(path, 128, "%s/%s", folder, name);
    cr_assert_eq(exo_file_read(from, 1 << 24, &data, &size, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_file_write_atomic(path, data, size, &err), EXO_OK, "%s", err.text);
    exo_free(data);
}

/* The same plugin in another file. */
Test(plugin, a_name_that_is_taken_is_the_plugins_mistake)
{
    exo_err err = {0};
    char folder[64], path[128];
    temp_folder(folder, sizeof folder);
    cr_assert_eq(exo_plugin_load(PLUGIN("counts"), &err), EXO_OK, "%s", err.text);
    copy_plugin(PLUGIN("counts"), folder, "copy.so", path);
    expect_refused(path, EXO_INVAL, "'counted'");
    temp_remove(folder);
}

static void *
load_path(void *path)
{
    exo_err err = {0};
    cr_expect_eq(exo_plugin_load(path, &err), EXO_OK, "%s", err.text);
    return NULL;
}

Test(plugin, two_threads_load_two_that_load_each_other, .timeout = 60)
{
    static const char *const names[] = {"one.so", "two.so"};
    char folder[64], paths[2][128];
    pthread_t threads[2];
    temp_folder(folder, sizeof folder);
    for (int i = 0; i < 2; i++)
        copy_plugin(PLUGIN("mutual"), folder, names[i], paths[i]);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, load_path, paths[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    temp_remove(folder);
}

Test(plugin, every_failed_allocation_is_an_error)
{
    exo_status st = EXO_NOMEM;
    for (uint64_t n = 1; st != EXO_OK; n++) {
        exo_err err = {0};
        exo_memory_fail_at(n);
        st = exo_plugin_load(PLUGIN("counts"), &err);
        exo_memory_fail_at(0);
        cr_assert(st == EXO_OK || (st == EXO_NOMEM && err.text[0]));
    }
    cr_expect_str_eq(class_named("counted")->help, "2",
                     "the failed attempts that got that far count, and are tried again");
}
