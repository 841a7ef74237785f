/* A transmission graph as its YAML says it, checked: what there is, with every default filled in.
 * docs/graph.md has the keys.
 *
 * Owner: whoever read it; read-only and safe from any thread afterwards, but for its nodes of
 * configuration: a document belongs to one thread at a time. Everything lives as long as the spec,
 * in its document's memory. Read next: spec.c (YAML to this), spec_edges.c, spec_network.c,
 * document.c (files, presets, variables), check.c (what can be wrong with a whole graph), graph.h
 * (public: classes).
 */
#ifndef EXO_GRAPH_SPEC_H
#define EXO_GRAPH_SPEC_H

#include <exogym/actor.h>
#include <exogym/config.h>
#include <exogym/graph.h>

#include "link/link.h"

enum {
    EXO_GRAPH_MAX_ACTORS = 65536, /* all of them; hosts likewise */
    EXO_GRAPH_MAX_NAMES = 1024,   /* of actors, of hosts, and of links */
    EXO_GRAPH_MAX_EDGES = 4096,
    EXO_GRAPH_DEFAULT_CAPACITY = 4
};

#define EXO_GRAPH_DEFAULT_DEADLINE (60 * EXO_SECOND)

/* Where an item goes, of the targets of an edge; if it leads back to actors of the same name, never
 * to the sender itself. */
typedef enum exo_route {
    /* to the one target; several: maker_i to trainer_i (as many as there are senders) */
    EXO_ROUTE_ONE,
    /* to each in turn; the turn goes on across batches; sender i begins with target i */
    EXO_ROUTE_ROUND_ROBIN,
    /* to all */
    EXO_ROUTE_BROADCAST,
    /* to the one whose buffer has most room; the first of those */
    EXO_ROUTE_LEAST_LOADED,
    /* by the item's key */
    EXO_ROUTE_HASH,
    /* s senders, r receivers: sender i to {j : j mod s = i} if s <= r, else to i mod r; with
     * idle_senders also then only to {j : j mod s = i}. Among those in turn */
    EXO_ROUTE_MODULO,
    /* a collective of the actors of one name */
    EXO_ROUTE_ALL_REDUCE,
    /* to one drawn at random (seeded) */
    EXO_ROUTE_GOSSIP,
} exo_route;

typedef enum exo_on_full {
    EXO_FULL_BLOCK,
    EXO_FULL_DROP_OLDEST,
    EXO_FULL_DROP_NEWEST,
    EXO_FULL_LATEST, /* a buffer of one, in which a newer item takes the place of an older one */
    EXO_FULL_FAIL,
} exo_on_full;

extern const char *const exo_route_names[]; /* in the order above, NULL-terminated */
extern const char *const exo_on_full_names[];

/* Work of one kind: what it costs on a host of speed 1. */
typedef struct exo_compute_spec {
    const char *phase;
    exo_time cost; /* -1: measured */
} exo_compute_spec;

typedef struct exo_actor_spec {
    const char *name; /* of the group: instances are name_0, name_1, ... */
    const exo_graph_class *class;
    uint32_t count;
    uint32_t *hosts;       /* (count) index into hosts[] of the spec */
    exo_config *placement; /* what `host` says, or NULL */
    exo_config *config;    /* a mapping; empty where none is given, never NULL */
    exo_resource *resources;
    size_t num_resources;
    exo_restart_rule restart;
    /* in which it uses its ports, by its options; NULL: not declared. After exo_graph_check */
    const struct exo_order *order;
    exo_compute_spec *compute; /* one for each phase of the class, in its order */
    size_t num_compute;
    exo_config *node; /* where it stands, for messages */
} exo_actor_spec;

typedef struct exo_edge_spec {
    const char *name;  /* "maker>trainer:experience", or as given under `name` */
    uint32_t from, to; /* index into actors[] */
    const char *carries;
    /* of the classes at its ends; of a collective the same one twice */
    const exo_graph_port *output, *input;
    exo_route route;
    bool feedback;          /* see exo_graph_mark_feedback */
    bool idle_senders;      /* modulo */
    exo_config *codec;      /* NULL: raw */
    const char *codec_text; /* "raw", or the codec in flow style */
    uint32_t capacity;      /* items that the receiver's buffer holds */
    exo_on_full on_full;
    /* of the items that are sent to the port, every n-th goes over this edge, the first included;
     * 1: all */
    uint64_t every;
    /* an item may be received so much after it arrived, not before: 0 */
    exo_time delay;
    exo_time deadline; /* of waits at its ports */
    int link;          /* index into links[], or -1: that of the hosts */
    /* Declared for plans, which know nothing else of the items: bytes of one before its codec (0:
     * not declared), and how many steps of its sender lie between two. */
    double item;
    uint64_t interval;
    /* of an all_reduce, declared for plans too: how many meet in one, those left over in a smaller
     * one */
    uint32_t members;
    exo_config *node;
} exo_edge_spec;

typedef struct exo_named_link {
    const char *name; /* "default" is links[0] if it is given */
    bool is_default;
    int from, to; /* host groups (index into host_groups), or -1: not between hosts */
    bool both_ways;
    exo_link_spec spec;
    exo_config *node;
} exo_named_link;

/* `home: {count: 16}` is one group, whose hosts are home_0 .. home_15; a host without count is
 * called as its group. Where the graph names no hosts, each actor has one of its own that is called
 * as it: its groups are those of the actors. */
typedef struct exo_host_group {
    const char *name;
    uint32_t first, count; /* into hosts[] */
    bool numbered;         /* it has a count */
    exo_config *node;      /* NULL: not in the file */
} exo_host_group;

typedef struct exo_emulated_host {
    exo_host_spec spec;
    double speed;            /* of compute; 1: this machine's, or that of declared costs */
    exo_resource *resources; /* that its actors share; NULL: not checked */
    size_t num_resources;
} exo_emulated_host;

typedef struct exo_graph_spec {
    exo_config_doc *doc;
    exo_config *root;
    const char *source; /* path */
    const char *name;
    uint64_t seed;
    bool virtual_clock;
    exo_time until;             /* the run ends then, on its clock; 0: when its actors do */
    const char *const *plugins; /* absolute paths */
    size_t num_plugins;
    exo_actor_spec *actors;
    size_t num_actors;
    exo_edge_spec *edges;
    size_t num_edges;
    exo_host_group *host_groups;
    size_t num_host_groups;
    /* all of them; where the graph names none, one an actor, called as it */
    exo_emulated_host *hosts;
    size_t num_hosts;
    exo_named_link *links;
    size_t num_links;
    bool has_hosts; /* the graph names its hosts */
    bool emulated;  /* it has hosts with rates or latencies, or links */
} exo_graph_spec;

typedef struct exo_graph_opts {
    const char *preset;
    const char *const *sets; /* KEY=VALUE */
    size_t num_sets;
    const char *name; /* NULL: the file's */
    /* the program has made the document: no files, presets or variables are in it */
    bool literal;
    /* a text from elsewhere: no files are read, `include` and `plugins` are errors */
    bool closed;
} exo_graph_opts;

/* Reads and checks a graph; loads its plugins. `opts` may be NULL. INVAL with file, line, column
 * and what was expected; what a plugin or class gave. The caller frees it. */
exo_status exo_graph_load(exo_graph_spec **out, const char *path, const exo_graph_opts *opts,
                          exo_err *err);
exo_status exo_graph_parse(exo_graph_spec **out, const char *source, const char *text,
                           const exo_graph_opts *opts, exo_err *err);
/* The same from a document, which is the spec's from then on, also after an error: *doc becomes
 * NULL. */
exo_status exo_graph_from(exo_graph_spec **out, exo_config_doc **doc, const exo_graph_opts *opts,
                          exo_err *err);
void exo_graph_spec_free(exo_graph_spec **spec);
/* Is the document a graph (it has actors, edges, or includes them), or a training job (it has a
 * model)? */
bool exo_graph_is(exo_config *root);

/* Marks the feedback edges: some of the edges that block, so that every cycle of them has one.
 * Those of outputs that are `initial`; where a cycle has none, all of it. Part of reading a
 * graph. */
void exo_graph_mark_feedback(exo_graph_spec *spec);
/* "maker_1", the i-th actor of a name. */
void exo_actor_instance(const exo_actor_spec *actor, uint32_t i, char *out, size_t size);
/* The targets that sender `i` of an edge reaches, ascending; gives how many. `out` has room for the
 * count of the target's actors; NULL: only counts. */
uint32_t exo_edge_targets(const exo_graph_spec *spec, const exo_edge_spec *edge, uint32_t i,
                          uint32_t *out);

/* The link between two hosts, by index: that of their groups, else the default, else one that takes
 * no time. */
const exo_link_spec *exo_graph_link_between(const exo_graph_spec *spec, uint32_t from, uint32_t to);
/* Makes the emulated network of a graph: its hosts, and the links between them. An edge with a link
 * of its own has pairs of hosts that it takes no share of: exo_links_between is told by whoever
 * opens the edge. */
exo_status exo_graph_links(const exo_graph_spec *spec, exo_links **out, exo_err *err);

/* The graph as YAML with every default written out; what reads it gets the same graph. The caller
 * frees *out with exo_free. */
exo_status exo_graph_expand(const exo_graph_spec *spec, char **out, exo_err *err);
/* The graph for graphviz, likewise. */
exo_status exo_graph_dot(const exo_graph_spec *spec, char **out, exo_err *err);

#endif
