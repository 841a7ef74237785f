/* The lists that an actor of the head is in: of its node, its supervision group and its job; of the
 * actors that time may change; of the dead. They make it unnecessary to search all actors. See
 * directory.h. */
#include "cluster/directory.h"

#include <string.h>

#include <utlist.h>

#include <exogym/memory.h>

void
exo_entry_set_node(exo_entry *entry, exo_cluster_node *node)
{
    if (entry->node)
        DL_DELETE2(entry->node->entries, entry, prev_there, next_there);
    entry->node = node;
    if (node)
        DL_APPEND2(node->entries, entry, prev_there, next_there);
}

/* --- Groups ----------------------------------------------------------------------------------- */

/* Writes the key of a group: space and group. Returns its size; 0: one of them is too long. */
static size_t
write_key(char out[2 * EXO_NAME], const char *space, const char *group)
{
    size_t first = strlen(space) + 1, second = strlen(group);
    if (first > EXO_NAME || second >= EXO_NAME)
        return 0;
    memcpy(out, space, first);
    memcpy(out + first, group, second);
    return first + second;
}

static exo_supervision_group *
find_group(exo_directory *directory, const char *space, const char *group)
{
    char key[2 * EXO_NAME];
    exo_supervision_group *g = NULL;
    size_t size = write_key(key, space, group);
    if (size > 0)
        HASH_FIND(hh, directory->groups, key, size, g);
    return g;
}

const exo_supervision_group *
exo_directory_group(exo_directory *directory, const char *space, const char *group)
{
    return find_group(directory, space, group);
}

static bool
join_group(exo_directory *directory, exo_entry *entry)
{
    char key[2 * EXO_NAME];
    if (!entry->spec->group[0])
        return true;
    exo_supervision_group *g = find_group(directory, entry->spec->space, entry->spec->group);
    size_t size = g ? 0 : write_key(key, entry->spec->space, entry->spec->group);
    if (!g && (size == 0 || !(g = exo_calloc(1, sizeof *g + size))))
        return false;
    if (size > 0) {
        memcpy(g->key, key, size);
        g->key_size = size;
        HASH_ADD(hh, directory->groups, key[0], size, g);
    }
    entry->group = g;
    g->count++;
    DL_APPEND2(g->members, entry, prev_member, next_member);
    return true;
}

static void
leave_group(exo_directory *directory, exo_entry *entry)
{
    exo_supervision_group *g = entry->group;
    if (!g)
        return;
    DL_DELETE2(g->members, entry, prev_member, next_member);
    entry->group = NULL;
    if (--g->count > 0)
        return;
    HASH_DEL(directory->groups, g);
    exo_free(g);
}

/* --- Jobs ------------------------------------------------------------------------------------- */

static exo_crew *
find_crew(exo_directory *directory, const char *job)
{
    exo_crew *c = NULL;
    HASH_FIND_STR(directory->crews, job, c);
    return c;
}

const exo_crew *
exo_directory_crew(exo_directory *directory, const char *job)
{
    return find_crew(directory, job);
}

static bool
join_crew(exo_directory *directory, exo_entry *entry)
{
    const char *job = entry->spec->job;
    if (!job[0] || entry->spec->detached)
        return true;
    exo_crew *c = find_crew(directory, job);
    if (!c) {
        if (!(c = exo_calloc(1, sizeof *c + strlen(job) + 1)))
            return false;
        strcpy(c->job, job);
        HASH_ADD_STR(directory->crews, job, c);
    }
    entry->crew = c;
    c->count++;
    DL_APPEND2(c->members, entry, prev_mate, next_mate);
    return true;
}

static void
leave_crew(exo_directory *directory, exo_entry *entry)
{
    exo_crew *c = entry->crew;
    if (!c)
        return;
    DL_DELETE2(c->members, entry, prev_mate, next_mate);
    entry->crew = NULL;
    if (--c->count > 0)
        return;
    HASH_DEL(directory->crews, c);
    exo_free(c);
}

/* --- All lists -------------------------------------------------------------------------------- */

bool
exo_directory_enlist(exo_directory *directory, exo_entry *entry)
{
    if (!join_group(directory, entry))
        return false;
    if (join_crew(directory, entry))
        return true;
    leave_group(directory, entry);
    return false;
}

void
exo_directory_bury(exo_directory *directory, exo_entry *entry)
{
    leave_group(directory, entry);
    leave_crew(directory, entry);
    if (entry->buried)
        return;
    entry->buried = true;
    directory->num_dead++;
    DL_APPEND2(directory->dead, entry, prev_dead, next_dead);
}

void
exo_directory_stir(exo_directory *directory, exo_entry *entry)
{
    if (entry->restless)
        return;
    entry->restless = true;
    directory->num_restless++;
    DL_APPEND2(directory->restless, entry, prev_restless, next_restless);
}

void
exo_directory_calm(exo_directory *directory, exo_entry *entry)
{
    if (!entry->restless)
        return;
    entry->restless = false;
    directory->num_restless--;
    DL_DELETE2(directory->restless, entry, prev_restless, next_restless);
}

void
exo_directory_unlist(exo_directory *directory, exo_entry *entry)
{
    leave_group(directory, entry);
    leave_crew(directory, entry);
    exo_directory_calm(directory, entry);
    exo_entry_set_node(entry, NULL);
    if (!entry->buried)
        return;
    entry->buried = false;
    directory->num_dead--;
    DL_DELETE2(directory->dead, entry, prev_dead, next_dead);
}
