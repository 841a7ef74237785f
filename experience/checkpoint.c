/* Checkpoints of a trainer: see checkpoint.h. No state. */
#include "experience/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>
#include <exogym/state.h>

#include "base/dir.h"

enum {
    MAX_PATH = 4096,
    KEPT = 4, /* trainers that are apart may be some versions from each other */
    DIGITS = 10
};

#define PREFIX "checkpoint_"
#define SUFFIX ".safetensors"

static exo_status
path_of(const exo_trainer_state *s, uint64_t version, char out[MAX_PATH], exo_err *err)
{
    int length = snprintf(out, MAX_PATH, "%s/" PREFIX "%s_%0*llu" SUFFIX, s->folder, s->actor,
                          DIGITS, (unsigned long long)version);
    return length > 0 && length < MAX_PATH
               ? EXO_OK
               : exo_fail(err, EXO_INVAL, "%.200s...: the path is too long", out);
}

/* Whether a file is a checkpoint of this trainer. */
static bool
is_mine(const exo_trainer_state *s, const char *name, uint64_t *version)
{
    size_t prefix = strlen(PREFIX), actor = strlen(s->actor);
    char *end = NULL;
    if (strncmp(name, PREFIX, prefix) != 0 || strncmp(name + prefix, s->actor, actor) != 0 ||
        name[prefix + actor] != '_')
        return false;
    const char *digits = name + prefix + actor + 1;
    *version = strtoull(digits, &end, 10);
    return end == digits + DIGITS && strcmp(end, SUFFIX) == 0;
}

/* Finds the newest checkpoint below `below`, or removes those from `below` on. */
static exo_status
scan(const exo_trainer_state *s, uint64_t below, bool removes, uint64_t *newest, exo_err *err)
{
    exo_status st = EXO_OK;
    DIR *dir = exo_dir_list(s->folder);
    if (!dir)
        return exo_fail(err, EXO_IO, "%s: %s", s->folder, exo_dir_reason(errno));
    for (struct dirent *e; st == EXO_OK && (e = readdir(dir));) {
        char path[MAX_PATH];
        uint64_t version = 0;
        if (!is_mine(s, e->d_name, &version))
            continue;
        if (version < below)
            *newest = version > *newest ? version : *newest;
        else if (removes && (st = path_of(s, version, path, err)) == EXO_OK &&
                 exo_dir_unlink(path) != 0 && errno != ENOENT)
            st = exo_fail(err, EXO_IO, "cannot remove '%s': %s", path, exo_dir_reason(errno));
    }
    closedir(dir);
    return st;
}

exo_status
exo_trainer_newest(const exo_trainer_state *s, uint64_t below, uint64_t *version, exo_err *err)
{
    *version = 0;
    return s->folder ? scan(s, below, false, version, err) : EXO_OK;
}

/* Removes the checkpoints that are older than the KEPT newest ones. */
static exo_status
thin_out(const exo_trainer_state *s, exo_err *err)
{
    char path[MAX_PATH];
    uint64_t version = UINT64_MAX;
    exo_status st = EXO_OK;
    for (int k = 0; st == EXO_OK && version > 0; k++) {
        st = exo_trainer_newest(s, version, &version, err);
        if (st == EXO_OK && version > 0 && k >= KEPT &&
            (st = path_of(s, version, path, err)) == EXO_OK && exo_dir_unlink(path) != 0)
            st = exo_fail(err, EXO_IO, "cannot remove '%s': %s", path, exo_dir_reason(errno));
    }
    return st;
}

/* Lists the entries. `mark`, `seed`: the caller's memory for what is compared after a load. */
static exo_status
list(const exo_trainer_state *s, exo_learned_mark *mark, uint64_t *seed, exo_state **out,
     exo_err *err)
{
    exo_status st = exo_state_new(out, err);
    if (st != EXO_OK)
        return st;
    exo_state_add_u64(*out, "seed", seed);
    exo_learner_state(s->learner, *out);
    exo_state_add_u64(*out, "position", s->position);
    exo_state_add_u64(*out, "used", s->used);
    exo_state_add_u64(*out, "repeated", s->repeated);
    exo_state_add(*out, "figures", EXO_U8, s->figures, sizeof *s->figures);
    exo_state_add_u64(*out, "items_bytes", &mark->items);
    exo_state_add_u64(*out, "versions_bytes", &mark->versions);
    return EXO_OK;
}

exo_status
exo_trainer_save(const exo_trainer_state *s, exo_err *err)
{
    char path[MAX_PATH];
    exo_state *state = NULL;
    exo_learned_mark mark = {0};
    uint64_t seed = s->seed;
    exo_status st = path_of(s, exo_learner_version(s->learner), path, err);
    if (st == EXO_OK)
        st = exo_learned_flush(*s->learned, &mark, err);
    if (st == EXO_OK)
        st = list(s, &mark, &seed, &state, err);
    if (st == EXO_OK)
        st = exo_state_save(state, path, err);
    exo_state_free(&state);
    return st == EXO_OK ? thin_out(s, err) : st;
}

static exo_status
read_file(const exo_trainer_state *s, uint64_t version, exo_learned_mark *mark, exo_err *err)
{
    char path[MAX_PATH];
    exo_state *state = NULL;
    uint64_t seed = 0;
    exo_status st = path_of(s, version, path, err);
    if (st == EXO_OK)
        st = list(s, mark, &seed, &state, err);
    if (st == EXO_OK)
        st = exo_state_load(state, path, err);
    if (st == EXO_OK && seed != s->seed)
        st = exo_fail(err, EXO_INVAL, "%s: its seed is %llu, but the run's is %llu", path,
                      (unsigned long long)seed, (unsigned long long)s->seed);
    if (st == EXO_OK && exo_learner_version(s->learner) != version)
        st = exo_fail(err, EXO_DAMAGED, "%s: it has version %llu", path,
                      (unsigned long long)exo_learner_version(s->learner));
    exo_state_free(&state);
    return st;
}

exo_status
exo_trainer_load(const exo_trainer_state *s, uint64_t version, exo_err *err)
{
    uint64_t unused = 0;
    exo_learned_mark mark = {0};
    exo_status st = EXO_OK;
    if (s->folder && version > 0)
        st = read_file(s, version, &mark, err);
    if (st == EXO_OK)
        st = exo_learned_open(s->learned, s->folder, s->actor, version > 0 ? &mark : NULL, err);
    return st == EXO_OK && s->folder ? scan(s, version + 1, true, &unused, err) : st;
}

/* --- Which one -------------------------------------------------------------------------------- */

/* Exchanges the trainers' versions. *oldest: the oldest; *equal: they are all the same. */
static exo_status
compare(const exo_trainer_state *s, uint64_t version, uint64_t *oldest, bool *equal, exo_err *err)
{
    int64_t *all = exo_calloc(s->size, sizeof *all);
    if (!all)
        return exo_fail(err, EXO_NOMEM, "no memory for %u trainers", s->size);
    all[s->rank] = (int64_t)version;
    exo_status st =
        s->group ? exo_all_gather(s->group, exo_host_array(EXO_I64, all, s->size), err) : EXO_OK;
    *oldest = version;
    *equal = true;
    for (uint32_t i = 0; st == EXO_OK && s->group && i < s->size; i++) {
        *equal = *equal && all[i] == (int64_t)version;
        *oldest = (uint64_t)all[i] < *oldest ? (uint64_t)all[i] : *oldest;
    }
    exo_free(all);
    return st;
}

/* Finds the newest version below `below` that all trainers have a checkpoint of; 0: none. */
static exo_status
agree(const exo_trainer_state *s, uint64_t below, uint64_t *version, exo_err *err)
{
    bool equal = false;
    exo_status st = EXO_OK;
    while (st == EXO_OK && !equal) {
        st = exo_trainer_newest(s, below, version, err);
        if (st == EXO_OK)
            st = compare(s, *version, &below, &equal, err);
        below++;
    }
    return st;
}

exo_status
exo_trainer_resume(const exo_trainer_state *s, exo_err *err)
{
    uint64_t version = UINT64_MAX;
    exo_status st = EXO_DAMAGED, found = EXO_OK;
    while (st != EXO_OK && st != EXO_INVAL && st != EXO_NOMEM && version > 0) {
        exo_err reason = {0};
        found = agree(s, version, &version, err);
        if (found != EXO_OK)
            return found;
        st = exo_trainer_load(s, version, &reason);
        if (st != EXO_OK && s->group) /* the others may have read theirs */
            return exo_fail(err, st, "%s", reason.text);
        if (st != EXO_OK) {
            EXO_LOG(WARN, GRAPH, "event=damaged version=%llu why=\"%s\"",
                    (unsigned long long)version, reason.text);
            exo_fail(err, st, "%s", reason.text);
        }
    }
    return st;
}
