/* Random graphs for tests of stalls: either with a planted cycle of waits, or sound. Their actors
 * are of the class `script` (script.h), or of another class that reads the same scripts. */
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

/* Where a graph's actors run. */
typedef enum planted_place {
    PLANTED_VIRTUAL,
    PLANTED_REAL,
    PLANTED_FAR, /* on the real clock, in workers; some actors are slow */
} planted_place;

/* A graph under construction: names, scripts and edges. */
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
    uint32_t group; /* index of the actor with a collective, plus 1; 0: none */
    exo_stall_wait ring[PLANTED_RING];
    uint32_t length;
    char text[8192]; /* filled in by planted_write */
} planted_graph;

/* Plants a ring of actors, each of which finally waits for the next one: it sends more than there
 * is room for, receives an item that never comes, or waits in a collective. Before that, items pass
 * along all its edges. Beside the ring, other actors wait for its members or run for ever. */
void planted_stall(planted_graph *p, uint64_t seed, planted_place place);
/* Makes a graph whose actors use their edges, also cycles of edges, all in the same order: nobody
 * waits for ever, whatever the delays. */
void planted_sound(planted_graph *p, uint64_t seed, planted_place place);
/* Writes the graph's text, with actors of class `class`. */
void planted_write(planted_graph *p, const char *class);
/* Is the found cycle the planted one? If not, `why` describes the first difference. */
bool planted_is_found(const planted_graph *p, const exo_stall_wait *found, size_t length, char *why,
                      size_t size);

#endif
