/* The engine that a job, or an edge of a graph, names for its collectives (exogym/engine.h), and
 * the conditions under which it can be used. No state. */
#ifndef EXO_COMM_CHOOSE_H
#define EXO_COMM_CHOOSE_H

#include <exogym/engine.h>

enum {
    EXO_COMM_KEY = 64,      /* bytes of exo_engine_opts.key, its NUL included */
    EXO_COMM_GPU_MOST = 64, /* members of the engine `gpu` */
};

/* Finds the engine of that name. *out is NULL for NULL and "auto", which mean the library's choice:
 * `local` among the threads of a process, `net` elsewhere. Errors: NOT_FOUND; INVAL: equal_bits is
 * true and the engine does not promise equal bits; UNSUPPORTED: it does not reduce fp32. */
exo_status exo_comm_find_engine(const exo_engine_class **out, const char *name, bool equal_bits,
                                exo_err *err);

/* The conditions under which an engine is used. */
typedef struct exo_comm_engine_use {
    /* The members are on workers; links are emulated, or the clock is virtual; the edge has a
     * codec. */
    bool far, emulated, coded;
} exo_comm_engine_use;

/* Checks that the engine supports emulated links and codecs where they are used; NULL does.
 * UNSUPPORTED. */
exo_status exo_comm_check_edge(const exo_engine_class *engine, const exo_comm_engine_use *use,
                               exo_err *err);
/* Checks that the engine supports all of these conditions; NULL does. UNSUPPORTED. */
exo_status exo_comm_check_engine(const exo_engine_class *engine, const exo_comm_engine_use *use,
                                 exo_err *err);

/* The engine of a communicator. */
const exo_engine_class *exo_comm_engine_of(const exo_comm *comm);
/* Whether the engine is not the library's. */
bool exo_comm_is_foreign(const exo_engine_class *engine);
/* Whether the engine's small messages go to other actors (EXO_ENGINE_POST). */
bool exo_comm_engine_posts(const exo_engine_class *engine);
/* Writes a key of exo_engine_opts for a name of any length. */
void exo_comm_engine_key(char key[EXO_COMM_KEY], const char *name);

#endif
