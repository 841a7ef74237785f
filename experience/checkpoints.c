/* Checkpoints of a graph's trainers: see checkpoints.h. */
#include "experience/checkpoints.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "base/dir.h"
#include "base/file.h"

enum {
    MAX_PATH = 4096,
    KEPT = 4, /* trainers that are apart may be some versions from each other */
    DIGITS = 10
};

#define PREFIX "checkpoint_"
#define SUFFIX ".safetensors"
#define MARK   "run" /* metadata: the run's number and the trainer's life */

exo_status
exo_checkpoints_read(exo_config *config, uint64_t fallback, uint64_t *every, exo_err *err)
{
    exo_config *map = NULL;
    exo_status st = exo_config_map(config, "checkpoint", &map, err);
    *every = fallback;
    if (st == EXO_OK && map)
        st = exo_config_u64(map, "every", fallback, 0, UINT32_MAX, every, err);
    return st == EXO_OK && map ? exo_config_finish(map, err) : st;
}

exo_checkpoints
exo_checkpoints_of(exo_graph_actor *actor, exo_group *group)
{
    return (exo_checkpoints){.folder = exo_graph_folder(actor),
                             .actor = exo_graph_name(actor),
                             .rank = exo_graph_index(actor),
                             .size = exo_graph_count(actor),
                             .life = exo_graph_life(actor),
                             .seed = exo_graph_seed(actor),
                             .run = exo_graph_run_number(actor),
                             .group = group};
}

/* --- Files ------------------------------------------------------------------------------------ */

static exo_status
path_of(const exo_checkpoints *c, uint64_t version, char out[MAX_PATH], exo_err *err)
{
    int length = snprintf(out, MAX_PATH, "%s/" PREFIX "%s_%0*llu" SUFFIX, c->folder, c->actor,
                          DIGITS, (unsigned long long)version);
    return length > 0 && length < MAX_PATH
               ? EXO_OK
               : exo_fail(err, EXO_INVAL, "%.200s...: the path is too long", out);
}

/* Whether a file is a checkpoint of this trainer. */
static bool
is_mine(const exo_checkpoints *c, const char *name, uint64_t *version)
{
    size_t prefix = strlen(PREFIX), actor = strlen(c->actor);
    char *end = NULL;
    if (strncmp(name, PREFIX, prefix) != 0 || strncmp(name + prefix, c->actor, actor) != 0 ||
        name[prefix + actor] != '_')
        return false;
    const char *digits = name + prefix + actor + 1;
    *version = strtoull(digits, &end, 10);
    return end == digits + DIGITS && strcmp(end, SUFFIX) == 0;
}

/* Whether a file is a checkpoint of this trainer that was not completed. */
static bool
is_partial(const exo_checkpoints *c, const char *name)
{
    size_t prefix = strlen(PREFIX), actor = strlen(c->actor);
    return strncmp(name, PREFIX, prefix) == 0 && strncmp(name + prefix, c->actor, actor) == 0 &&
           name[prefix + actor] == '_' && strstr(name, SUFFIX ".partial-");
}

static exo_status
open_folder(const exo_checkpoints *c, DIR **out, exo_err *err)
{
    *out = exo_dir_list(c->folder);
    return *out ? EXO_OK : exo_fail(err, EXO_IO, "%s: %s", c->folder, exo_dir_reason(errno));
}

/* The newest version below `below` that has a file; 0: there is none. */
static exo_status
find_newest(const exo_checkpoints *c, uint64_t below, uint64_t *newest, exo_err *err)
{
    DIR *dir = NULL;
    exo_status st = open_folder(c, &dir, err);
    *newest = 0;
    for (struct dirent *e; st == EXO_OK && (e = readdir(dir));) {
        uint64_t version = 0;
        if (is_mine(c, e->d_name, &version) && version < below && version > *newest)
            *newest = version;
    }
    if (dir)
        closedir(dir);
    return st;
}

exo_status
exo_checkpoints_remove_after(const exo_checkpoints *c, uint64_t version, exo_err *err)
{
    DIR *dir = NULL;
    exo_status st = c->folder ? open_folder(c, &dir, err) : EXO_OK;
    for (struct dirent *e; st == EXO_OK && dir && (e = readdir(dir));) {
        uint64_t found = 0;
        bool goes = is_partial(c, e->d_name) || (is_mine(c, e->d_name, &found) && found > version);
        if (goes && unlinkat(dirfd(dir), e->d_name, 0) != 0 && errno != ENOENT)
            st = exo_fail(err, EXO_IO, "cannot remove '%s/%s': %s", c->folder, e->d_name,
                          exo_dir_reason(errno));
    }
    if (dir)
        closedir(dir);
    return st;
}

/* --- Whose ------------------------------------------------------------------------------------ */

/* In which life of which run a checkpoint was written. A folder of a host that shares none with the others
 * may have those of a run that was started over elsewhere, and those of a life before the last one: its
 * trainer was on another host meanwhile. */
struct mark {
    uint64_t run; /* exo_graph_run_number */
    uint32_t life;
};

static void
set_mark(const exo_checkpoints *c, exo_state *state)
{
    char text[32];
    snprintf(text, sizeof text, "%016llx.%u", (unsigned long long)c->run, c->life);
    exo_state_metadata(state, MARK, text);
}

/* Reads the mark of an intact checkpoint; zeros: it has none. */
static exo_status
get_mark(const char *path, struct mark *mark, exo_err *err)
{
    char *text = NULL, *end = NULL;
    exo_status st = exo_state_read_metadata(path, MARK, &text, err);
    *mark = (struct mark){0};
    if (st == EXO_OK) {
        mark->run = strtoull(text, &end, 16);
        mark->life = *end == '.' ? (uint32_t)strtoul(end + 1, NULL, 10) : 0;
    }
    exo_free(text);
    return st == EXO_NOT_FOUND ? EXO_OK : st;
}

/* Whether both are numbers of one run, which may have been resumed in between. */
static bool
is_same_run(uint64_t one, uint64_t other)
{
    return one >> 16 == other >> 16;
}

/* Whether a checkpoint is intact and of this run. DAMAGED: it is not intact. */
static exo_status
look_at(const exo_checkpoints *c, const char *path, struct mark *mark, bool *ours, exo_err *err)
{
    exo_status st = exo_state_check_seal(path, err);
    if (st == EXO_OK)
        st = get_mark(path, mark, err);
    *ours = st == EXO_OK && is_same_run(mark->run, c->run);
    if (st == EXO_OK && !*ours)
        EXO_LOG(WARN, GRAPH, "event=other_run why=\"%s: another run of this name wrote it\"", path);
    return st;
}

/* Finds the newest version below `below` whose checkpoint is intact and of this run; 0: there is no
 * checkpoint. */
static exo_status
newest_intact(const exo_checkpoints *c, uint64_t below, uint64_t *version, struct mark *mark,
              exo_err *err)
{
    char path[MAX_PATH];
    exo_err damage = {0}, reason = {0};
    bool ours = false;
    *version = 0;
    *mark = (struct mark){0};
    if (!c->folder)
        return EXO_OK;
    for (;; below = *version) {
        exo_status st = find_newest(c, below, version, err);
        if (st != EXO_OK)
            return st;
        if (*version == 0)
            break;
        st = path_of(c, *version, path, &reason);
        if (st == EXO_OK)
            st = look_at(c, path, mark, &ours, &reason);
        if (ours)
            return st;
        if (st == EXO_OK)
            continue;
        if (st != EXO_DAMAGED)
            return exo_fail(err, st, "%s", reason.text);
        EXO_LOG(WARN, GRAPH, "event=damaged version=%llu why=\"%s\"", (unsigned long long)*version,
                reason.text);
        damage = damage.code == EXO_OK ? reason : damage;
    }
    return damage.code == EXO_OK
               ? EXO_OK
               : exo_fail(err, EXO_DAMAGED, "%s; no older checkpoint is intact", damage.text);
}

/* Removes the checkpoints that are older than the KEPT newest ones. */
static exo_status
thin_out(const exo_checkpoints *c, exo_err *err)
{
    char path[MAX_PATH];
    uint64_t version = UINT64_MAX;
    exo_status st = EXO_OK;
    for (int k = 0; st == EXO_OK && version > 0; k++) {
        st = find_newest(c, version, &version, err);
        if (st == EXO_OK && version > 0 && k >= KEPT &&
            (st = path_of(c, version, path, err)) == EXO_OK && exo_dir_unlink(path) != 0)
            st = exo_fail(err, EXO_IO, "cannot remove '%s': %s", path, exo_dir_reason(errno));
    }
    return st;
}

/* What every checkpoint has. */
struct origin {
    uint64_t seed, rank, version;
};

static void
list_origin(struct origin *o, exo_state *state)
{
    exo_state_add_u64(state, "seed", &o->seed);
    exo_state_add_u64(state, "rank", &o->rank);
    exo_state_add_u64(state, "of_version", &o->version);
}

/* Writes a file under a name of this life's own, which the next one removes, and renames it if none has
 * begun: a life that was stopped in between and is taken for dead has nothing to rename. */
static exo_status
write_if_mine(const exo_checkpoints *c, const exo_table *table, exo_state *state, const char *path,
              exo_err *err)
{
    char whole[MAX_PATH + 32];
    snprintf(whole, sizeof whole, "%s.partial-%06u", path, c->life);
    exo_status st = exo_state_save_sealed(state, whole, err);
    if (st != EXO_OK)
        return st;
    st = exo_table_check(table, err);
    if (st == EXO_OK)
        st = exo_file_rename(whole, path, err);
    if (st != EXO_OK)
        exo_dir_unlink(whole);
    return st;
}

exo_status
exo_checkpoints_save(const exo_checkpoints *c, const exo_table *table, uint64_t version,
                     exo_state *state, exo_err *err)
{
    char path[MAX_PATH];
    struct origin origin = {.seed = c->seed, .rank = c->rank, .version = version};
    list_origin(&origin, state);
    set_mark(c, state);
    exo_status st = path_of(c, version, path, err);
    if (st == EXO_OK)
        st = write_if_mine(c, table, state, path, err);
    return st == EXO_OK ? thin_out(c, err) : st;
}

exo_status
exo_checkpoints_load(const exo_checkpoints *c, uint64_t version, exo_state *state, exo_err *err)
{
    char path[MAX_PATH];
    struct origin origin = {0};
    list_origin(&origin, state);
    exo_status st = path_of(c, version, path, err);
    if (st == EXO_OK)
        st = exo_state_load(state, path, err);
    if (st == EXO_OK && origin.seed != c->seed)
        st = exo_fail(err, EXO_INVAL, "%s: its seed is %llu, but the run's is %llu", path,
                      (unsigned long long)origin.seed, (unsigned long long)c->seed);
    if (st == EXO_OK && (origin.version != version || origin.rank != c->rank))
        st = exo_fail(err, EXO_DAMAGED, "%s: it is version %llu of trainer %llu", path,
                      (unsigned long long)origin.version, (unsigned long long)origin.rank);
    return st;
}

/* --- Which one -------------------------------------------------------------------------------- */

/* What a trainer tells the others of its newest checkpoint, as numbers that can be gathered. */
enum {
    VERSION,
    MARKED, /* equal if run and life are, but for chance */
    TOLD
};

/* Exchanges the trainers' checkpoints. *oldest: the oldest version; *equal: they are all of one version,
 * and of one life of the run. */
static exo_status
compare(const exo_checkpoints *c, uint64_t version, const struct mark *mark, uint64_t *oldest,
        bool *equal, exo_err *err)
{
    /* on workers the lives of all have one number; in one process they share the folder */
    const uint64_t life = mark->run ? mark->life : 0;
    const int64_t mine[TOLD] = {[VERSION] = (int64_t)version,
                                [MARKED] =
                                    (int64_t)(mark->run ^ life * UINT64_C(0x9e3779b97f4a7c15))};
    int64_t *all = exo_calloc((size_t)c->size * TOLD, sizeof *all);
    if (!all)
        return exo_fail(err, EXO_NOMEM, "no memory for %u trainers", c->size);
    memcpy(all + (size_t)c->rank * TOLD, mine, sizeof mine);
    exo_status st =
        c->group
            ? exo_all_gather(c->group, exo_host_array(EXO_I64, all, (size_t)c->size * TOLD), err)
            : EXO_OK;
    *oldest = version;
    *equal = true;
    for (uint32_t i = 0; st == EXO_OK && c->group && i < c->size; i++) {
        const int64_t *its = all + (size_t)i * TOLD;
        *equal = *equal && memcmp(its, mine, sizeof mine) == 0;
        *oldest = (uint64_t)its[VERSION] < *oldest ? (uint64_t)its[VERSION] : *oldest;
    }
    exo_free(all);
    return st;
}

exo_status
exo_checkpoints_agree(const exo_checkpoints *c, uint64_t *version, exo_err *err)
{
    uint64_t below = UINT64_MAX, oldest = 0;
    struct mark mark;
    bool equal = false;
    exo_status st = EXO_OK;
    while (st == EXO_OK && !equal) {
        st = newest_intact(c, below, version, &mark, err);
        if (st == EXO_OK)
            st = compare(c, *version, &mark, &oldest, &equal, err);
        /* all trainers lower it alike; the oldest one may be of another life than the others' */
        below = oldest + 1 < below ? oldest + 1 : oldest;
    }
    return st;
}
