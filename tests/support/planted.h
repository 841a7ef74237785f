/* Graphs drawn by lot, with a cycle of waits planted into them, or sound ones: for tests of stalls.
 * Their actors are of the class `script` (script.h), or of one that reads the same scripts. */
#ifndef EXO_TEST_PLANTED_H
#define EXO_TEST_PLANTED_H

#include <stdbool.h>

#include <exogym/rng.h>

#include "graph/stall.h"

enum {
    PLANTED_RING = 6,
    PLANTED_ACTORS = 16,
    PLANTED_EDGES = 15,
};

/* Where the actors of a graph are to run. */
typedef enum planted_place {
    PLANTED_VIRTUAL,
    PLANTED_REAL,
    PLANTED_FAR, /* on the real clock, in workers: some of them are slow */
} planted_place;

/* A graph in the making: names, scripts and edges. */
typedef struct planted_graph {
    exo_rng rng;
    planted_place place;
    uint32_t actors;
    struct {
        char name[8], script[512];
        uint32_t count;
    } actor[PLANTED_ACTORS];
    uint32_t edges;
    struct {
        uint32_t from, to, capacity;
        const char *more;
    } edge[PLANTED_EDGES];
    uint32_t group; /* an actor with a collective, and 1; 0: none */
    exo_stall_wait ring[PLANTED_RING];
    uint32_t length;
    char text[8192]; /* after planted_write */
} planted_graph;

/* A ring of actors, each of which comes to wait for the next: in sending more than there is room
 * for, in receiving what never comes, or in a collective. Before that items go along all its edges,
 * and beside it others wait for its actors, or go on for ever. */
void planted_stall(planted_graph *p, uint64_t seed, planted_place place);
/* Actors that use their edges, cycles of them included, in one order for all: nobody waits for
 * ever, however long it takes. */
void planted_sound(planted_graph *p, uint64_t seed, planted_place place);
/* The graph's text, with actors of `class`. */
void planted_write(planted_graph *p, const char *class);
/* Is what was found what was planted? If not, *why (a text of the caller's) says where it
 * differs. */
bool planted_is_found(const planted_graph *p, const exo_stall_wait *found, size_t length, char *why,
                      size_t size);

#endif
