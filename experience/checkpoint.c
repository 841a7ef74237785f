/* Checkpoints of a trainer: see checkpoint.h. No state. */
#include "experience/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Whether a file is a checkpoint of this trainer that was not completed. */
static bool
is_partial(const exo_trainer_state *s, const char *name)
{
    size_t prefix = strlen(PREFIX), actor = strlen(s->actor);
    return strncmp(name, PREFIX, prefix) == 0 && strncmp(name + prefix, s->actor, actor) == 0 &&
           name[prefix + actor] == '_' && strstr(name, SUFFIX ".partial-");
}

static exo_status
open_folder(const exo_trainer_state *s, DIR **out, exo_err *err)
{
    *out = exo_dir_list(s->folder);
    return *out ? EXO_OK : exo_fail(err, EXO_IO, "%s: %s", s->folder, exo_dir_reason(errno));
}

/* The newest version below `below` that has a file; 0: there is none. */
static exo_status
find_newest(const exo_trainer_state *s, uint64_t below, uint64_t *newest, exo_err *err)
{
    DIR *dir = NULL;
    exo_status st = open_folder(s, &dir, err);
    *newest = 0;
    for (struct dirent *e; st == EXO_OK && (e = readdir(dir));) {
        uint64_t version = 0;
        if (is_mine(s, e->d_name, &version) && version < below && version > *newest)
            *newest = version;
    }
    if (dir)
        closedir(dir);
    return st;
}

/* Removes the checkpoints from `from` on, and files that were not completed. */
static exo_status
remove_from(const exo_trainer_state *s, uint64_t from, exo_err *err)
{
    DIR *dir = NULL;
    exo_status st = open_folder(s, &dir, err);
    for (struct dirent *e; st == EXO_OK && (e = readdir(dir));) {
        uint64_t version = 0;
        bool goes =
            is_partial(s, e->d_name) || (is_mine(s, e->d_name, &version) && version >= from);
        if (goes && unlinkat(dirfd(dir), e->d_name, 0) != 0 && errno != ENOENT)
            st = exo_fail(err, EXO_IO, "cannot remove '%s/%s': %s", s->folder, e->d_name,
                          exo_dir_reason(errno));
    }
    if (dir)
        closedir(dir);
    return st;
}

/* Finds the newest version below `below` whose checkpoint is intact; 0: there is no checkpoint. */
static exo_status
newest_intact(const exo_trainer_state *s, uint64_t below, uint64_t *version, exo_err *err)
{
    char path[MAX_PATH];
    exo_err damage = {0}, reason = {0};
    for (exo_status st = EXO_DAMAGED; st == EXO_DAMAGED; below = *version) {
        st = find_newest(s, below, version, err);
        if (st != EXO_OK)
            return st;
        if (*version == 0)
            break;
        st = path_of(s, *version, path, &reason);
        if (st == EXO_OK)
            st = exo_state_check_seal(path, &reason);
        if (st == EXO_OK)
            return st;
        if (st != EXO_DAMAGED)
            return exo_fail(err, st, "%s", reason.text);
        EXO_LOG(WARN, GRAPH, "event=damaged version=%llu why=\"%s\"",
                (unsigned long long)*version, reason.text);
        damage = damage.code == EXO_OK ? reason : damage;
    }
    return damage.code == EXO_OK
               ? EXO_OK
               : exo_fail(err, EXO_DAMAGED, "%s; no older checkpoint is intact", damage.text);
}

exo_status
exo_trainer_newest(const exo_trainer_state *s, uint64_t below, uint64_t *version, exo_err *err)
{
    *version = 0;
    return s->folder ? newest_intact(s, below, version, err) : EXO_OK;
}

/* Removes the checkpoints that are older than the KEPT newest ones. */
static exo_status
thin_out(const exo_trainer_state *s, exo_err *err)
{
    char path[MAX_PATH];
    uint64_t version = UINT64_MAX;
    exo_status st = EXO_OK;
    for (int k = 0; st == EXO_OK && version > 0; k++) {
        st = find_newest(s, version, &version, err);
        if (st == EXO_OK && version > 0 && k >= KEPT &&
            (st = path_of(s, version, path, err)) == EXO_OK && exo_dir_unlink(path) != 0)
            st = exo_fail(err, EXO_IO, "cannot remove '%s': %s", path, exo_dir_reason(errno));
    }
    return st;
}

/* What is compared after a load. */
struct origin {
    uint64_t seed, rank;
};

/* Lists the entries. `mark`, `origin`: the caller's memory. */
static exo_status
list(const exo_trainer_state *s, exo_learned_mark *mark, struct origin *origin, exo_state **out,
     exo_err *err)
{
    exo_status st = exo_state_new(out, err);
    if (st != EXO_OK)
        return st;
    exo_state_add_u64(*out, "seed", &origin->seed);
    exo_state_add_u64(*out, "rank", &origin->rank);
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
    struct origin origin = {.seed = s->seed, .rank = s->rank};
    exo_status st = path_of(s, exo_learner_version(s->learner), path, err);
    if (st == EXO_OK)
        st = exo_learned_flush(*s->learned, &mark, err);
    if (st == EXO_OK)
        st = list(s, &mark, &origin, &state, err);
    if (st == EXO_OK)
        st = exo_state_save_sealed(state, path, err);
    exo_state_free(&state);
    return st == EXO_OK ? thin_out(s, err) : st;
}

static exo_status
read_file(const exo_trainer_state *s, uint64_t version, exo_learned_mark *mark, exo_err *err)
{
    char path[MAX_PATH];
    exo_state *state = NULL;
    struct origin origin = {0};
    exo_status st = path_of(s, version, path, err);
    if (st == EXO_OK)
        st = list(s, mark, &origin, &state, err);
    if (st == EXO_OK)
        st = exo_state_load(state, path, err);
    if (st == EXO_OK && origin.seed != s->seed)
        st = exo_fail(err, EXO_INVAL, "%s: its seed is %llu, but the run's is %llu", path,
                      (unsigned long long)origin.seed, (unsigned long long)s->seed);
    if (st == EXO_OK && (exo_learner_version(s->learner) != version || origin.rank != s->rank))
        st = exo_fail(err, EXO_DAMAGED, "%s: it is version %llu of trainer %llu", path,
                      (unsigned long long)exo_learner_version(s->learner),
                      (unsigned long long)origin.rank);
    exo_state_free(&state);
    return st;
}

exo_status
exo_trainer_load(const exo_trainer_state *s, uint64_t version, exo_err *err)
{
    exo_learned_mark mark = {0};
    exo_status st = EXO_OK;
    if (s->folder && version > 0)
        st = read_file(s, version, &mark, err);
    if (st == EXO_OK && s->folder && version > 0)
        st = exo_learned_check(s->folder, s->actor, &mark, s->learner, err);
    if (st == EXO_OK)
        st = exo_learned_open(s->learned, s->folder, s->actor, version > 0 ? &mark : NULL, err);
    return st == EXO_OK && s->folder ? remove_from(s, version + 1, err) : st;
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
    uint64_t version = 0;
    exo_status st = agree(s, UINT64_MAX, &version, err);
    return st == EXO_OK ? exo_trainer_load(s, version, err) : st;
}
