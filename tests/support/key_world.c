/* A head and a worker with keys: see key_world.h. */
#include "support/key_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

exo_time
key_world_soon(void)
{
    return exo_deadline(exo_clock_real(), 60 * EXO_SECOND);
}

exo_keys
key_world_make_keys(const char *name, const exo_grant *grant)
{
    char folder[128], authorized[160];
    exo_err err = {0};
    exo_keys keys = key_pair_new();
    snprintf(folder, sizeof folder, "%s", key_folder);
    cr_assert_eq(exo_keys_save(&keys, grant, folder, name, &err), EXO_OK, "%s", err.text);
    snprintf(authorized, sizeof authorized, "mkdir -p %s/authorized && cp %s/%s.key %s/authorized/",
             folder, folder, name, folder);
    cr_assert_eq(system(authorized), 0);
    return keys;
}

void
key_world_join(exo_cluster_role role, const char *name, bool with_keys, exo_runtime **runtime,
               exo_cluster **cluster)
{
    static const char *const any[] = {"tcp://127.0.0.1:0"};
    char secret[128];
    exo_err err = {0};
    exo_cluster_opts opts = {.role = role,
                             .name = name,
                             .cluster = "test",
                             .folder = key_folder,
                             .state = "none",
                             .job = "job",
                             .peer_timeout = 600 * EXO_SECOND}; /* strangers send no beats */
    char audit[128];
    snprintf(secret, sizeof secret, "%s/%s.secret", key_folder, name);
    snprintf(audit, sizeof audit, "%s/%s.audit", key_folder, name);
    opts.audit = key_world.audited && role != EXO_ROLE_DRIVER ? audit : NULL;
    opts.keys_for_local = with_keys && key_world.local;
    if (with_keys) {
        opts.listen = any;
        opts.num_listen = !key_world.local;
        opts.no_ipc = !key_world.local;
        opts.keys = secret;
        opts.head = key_world.head ? exo_cluster_address(key_world.head) : NULL;
        opts.head_key = key_world.head ? key_world.head_public : NULL;
    }
    cr_assert_eq(exo_runtime_open(runtime, &(exo_runtime_opts){.threads = 1}, &err), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(exo_cluster_join(cluster, *runtime, &opts, key_world_soon(), &err), EXO_OK, "%s",
                 err.text);
}

void
key_world_leave(exo_runtime **runtime, exo_cluster **cluster)
{
    exo_cluster_leave(*cluster);
    cr_expect_eq(exo_runtime_close(runtime, key_world_soon(), NULL), EXO_OK);
    exo_cluster_free(cluster);
}

void
key_world_open(bool with_keys)
{
    key_folder_setup();
    if (with_keys) {
        exo_keys head = key_world_make_keys("head", KEY_ADMIN);
        snprintf(key_world.head_public, sizeof key_world.head_public, "%s", head.public_key);
        key_world_make_keys("w1", &(exo_grant){.role = EXO_ACCESS_WORKER});
        key_world.evil = key_world_make_keys("evil", KEY_ADMIN);
    }
    key_world_join(EXO_ROLE_HEAD, "head", with_keys, &key_world.head_runtime, &key_world.head);
    key_world_join(EXO_ROLE_WORKER, "w1", with_keys, &key_world.runtime, &key_world.worker);
}

void
key_world_close(void)
{
    if (key_world.worker)
        key_world_leave(&key_world.runtime, &key_world.worker);
    key_world_leave(&key_world.head_runtime, &key_world.head);
    key_folder_teardown();
}

stranger
key_world_stranger(const char *key)
{
    exo_keys keys = key_world.evil;
    char path[128];
    snprintf(path, sizeof path, "%s/%s.secret", key_folder, key);
    if (strcmp(key, "evil") != 0)
        cr_assert_eq(exo_keys_load(path, &keys, NULL), EXO_OK);
    return stranger_open(exo_cluster_address(key_world.head), &keys, key_world.head_public);
}
