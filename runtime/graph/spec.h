/* A transmission graph as read from its YAML: checked, with every default filled in. docs/graph.md
 * has the keys.
 *
 * Owner: the caller that read the graph. Afterwards the spec is read-only and safe from any thread,
 * except for its config nodes: a document belongs to one thread at a time. Everything lives as long
 * as the spec, in its document's memory. Read next: spec.c (from YAML to this), spec_edges.c,
 * spec_network.c, document.c (files, presets, variables), check.c (checks of a whole graph),
 * graph.h (public: classes). */
#ifndef EXO_GRAPH_SPEC_H
#define EXO_GRAPH_SPEC_H

#include <exogym/actor.h>
#include <exogym/config.h>
#include <exogym/graph.h>

#include "link/link.h"

enum {
    EXO_GRAPH_MAX_ACTORS = 65536, /* of a graph; likewise its hosts */
    EXO_GRAPH_MAX_NAMES = 1024,   /* names of actors; likewise of hosts and of links */
    EXO_GRAPH_MAX_EDGES = 4096,
    EXO_GRAPH_DEFAULT_CAPACITY = 4
};

/* Deaths and stalls end a wait at once. The deadline is for peers that are alive and do not answer, for
 * instance because their process is stopped; it is long, because some work for minutes. */
#define EXO_GRAPH_DEFAULT_DEADLINE (600 * EXO_SECOND)

/* The choice among the targets of an edge. On an edge from a name to itself, the sender is never
 * among its own targets. */
typedef enum exo_route {
    /* the only target; with as many targets as senders, sender i sends to target i */
    EXO_ROUTE_ONE,
    /* each target in turn; sender i begins with target i */
    EXO_ROUTE_ROUND_ROBIN,
    /* all targets */
    EXO_ROUTE_BROADCAST,
    /* the target whose buffer has the most room; of several, the first */
    EXO_ROUTE_LEAST_LOADED,
    /* a target computed from the item's key */
    EXO_ROUTE_HASH,
    /* s senders, r receivers: sender i sends to {j : j mod s = i} if s <= r, else to i mod r. With
     * idle_senders it always sends to {j : j mod s = i}. These targets take turns. */
    EXO_ROUTE_MODULO,
    /* a collective among the actors of one name */
    EXO_ROUTE_ALL_REDUCE,
    /* a target drawn at random, from the seed */
    EXO_ROUTE_GOSSIP,
    /* the targets that the key `targets` lists for the sender, in turn */
    EXO_ROUTE_LISTED,
} exo_route;

typedef enum exo_on_full {
    EXO_FULL_BLOCK,
    EXO_FULL_DROP_OLDEST,
    EXO_FULL_DROP_NEWEST,
    EXO_FULL_LATEST, /* a buffer of one item, which a newer item replaces */
    EXO_FULL_FAIL,
} exo_on_full;

extern const char *const exo_route_names[]; /* in the order above, NULL-terminated */
extern const char *const exo_on_full_names[];

/* A phase of an actor's work, with its cost on a host of speed 1. */
typedef struct exo_compute_spec {
    const char *phase;
    exo_time cost; /* -1: measured */
} exo_compute_spec;

typedef struct exo_actor_spec {
    const char *name; /* its actors are name_0, name_1, ... */
    const exo_graph_class *class;
    uint32_t count;
    uint32_t *hosts;       /* (count) indices into hosts[] of the spec */
    exo_config *placement; /* value of the key `host`, or NULL */
    exo_config *config;    /* a mapping, empty if the file has none; never NULL */
    exo_resource *resources;
    size_t num_resources;
    exo_restart_rule restart;
    /* the order in which the class uses its ports with these options; NULL: not declared. Set by
     * exo_graph_check */
    const struct exo_order *order;
    /* the shape of the items at the ports with these options; NULL: any. Set by exo_graph_check */
    const char *shape;
    /* the device of its collectives' arrays with these options; NULL: the host. Set by exo_graph_check */
    const char *device;
    exo_compute_spec *compute; /* one for each phase of the class, in its order */
    size_t num_compute;
    exo_config *node; /* position in the file, for messages */
} exo_actor_spec;

typedef struct exo_edge_spec {
    const char *name;  /* "maker>trainer:experience", or the value of the key `name` */
    uint32_t from, to; /* indices into actors[] */
    const char *carries;
    /* ports of the classes at both ends; of a collective, the same port twice */
    const exo_graph_port *output, *input;
    exo_route route;
    bool feedback;     /* see exo_graph_mark_feedback */
    bool idle_senders; /* for the route MODULO */
    /* for the route LISTED: sender i reaches listed[begins[i]] to listed[begins[i + 1] - 1],
     * ascending; else NULL */
    uint32_t *begins, *listed;
    uint32_t lists;         /* senders; 0: another route */
    exo_config *codec;      /* NULL: raw */
    const char *codec_text; /* "raw", or the codec in YAML's flow style */
    uint32_t capacity;      /* items that the receiver's buffer holds */
    exo_on_full on_full;
    /* every n-th item that is sent to the port goes over this edge, beginning with the first; 1:
     * all */
    uint64_t every;
    /* time from the arrival of an item until it may be received */
    exo_time delay;
    exo_time deadline; /* limit of waits at its ports */
    int link;          /* index into links[]; -1: the link between the hosts */
    /* For plans, which know nothing else of the items: bytes of an item before its codec (0: not
     * declared), and the number of the sender's steps from one item to the next. */
    double item;
    uint64_t interval;
    /* for plans: actors in each group of an all_reduce; the remainder forms a smaller group */
    uint32_t members;
    /* of an all_reduce: the name of its engine, NULL and "auto": the library's choice (engine.h); whether
     * it may sum in an order of its own */
    const char *engine;
    bool any_bits;
    exo_config *node;
} exo_edge_spec;

typedef struct exo_named_link {
    const char *name; /* "default" is links[0] if the graph has it */
    bool is_default;
    int from, to; /* indices into host_groups; -1: not between hosts */
    bool both_ways;
    exo_link_spec spec;
    exo_config *node;
} exo_named_link;

/* `home: {count: 16}` is one group with the hosts home_0 to home_15. A host without a count is a
 * group of the same name. A graph that names no hosts has a host for each actor, of the actor's
 * name, and a group for each actor name. */
typedef struct exo_host_group {
    const char *name;
    uint32_t first, count; /* range in hosts[] */
    bool numbered;         /* the group has a count */
    exo_config *node;      /* NULL: the group is not in the file */
} exo_host_group;

typedef struct exo_emulated_host {
    exo_host_spec spec;
    double speed;            /* of computing; 1: the speed of this machine, or of declared costs */
    exo_resource *resources; /* shared by its actors; NULL: not checked */
    size_t num_resources;
} exo_emulated_host;

typedef struct exo_graph_spec {
    exo_config_doc *doc;
    exo_config *root;
    const char *source; /* path */
    const char *name;
    uint64_t seed;
    bool virtual_clock;
    bool runs;                  /* exo_graph_opts.runs */
    exo_time until;             /* end of the run, on its clock; 0: when its actors have ended */
    const char *const *plugins; /* absolute paths */
    size_t num_plugins;
    exo_actor_spec *actors;
    size_t num_actors;
    exo_edge_spec *edges;
    size_t num_edges;
    exo_host_group *host_groups;
    size_t num_host_groups;
    /* hosts of all groups */
    exo_emulated_host *hosts;
    size_t num_hosts;
    exo_named_link *links;
    size_t num_links;
    bool has_hosts; /* the graph names its hosts */
    bool emulated;  /* the graph has links, or hosts with rates or latencies */
} exo_graph_spec;

typedef struct exo_graph_opts {
    const char *preset;
    const char *const *sets; /* KEY=VALUE */
    size_t num_sets;
    const char *name; /* NULL: the file's */
    /* the calling program made the document, which has no files, presets or variables */
    bool literal;
    /* its actors will run: rules also check whether they could begin, which reads their data */
    bool runs;
    /* a text from another process: `include` and `plugins` are errors, and no file is read */
    bool closed;
} exo_graph_opts;

/* Reads a graph from a file, or from `text`, which messages call `source`; checks it and loads its
 * plugins. `opts` may be NULL. Errors: INVAL with file, line, column and the expected value; those
 * of plugins and classes. The caller frees the spec. */
exo_status exo_graph_load(exo_graph_spec **out, const char *path, const exo_graph_opts *opts,
                          exo_err *err);
exo_status exo_graph_parse(exo_graph_spec **out, const char *source, const char *text,
                           const exo_graph_opts *opts, exo_err *err);
/* Reads a graph from a document. The document moves to the spec, also on failure: *doc becomes
 * NULL. */
exo_status exo_graph_from(exo_graph_spec **out, exo_config_doc **doc, const exo_graph_opts *opts,
                          exo_err *err);
void exo_graph_spec_free(exo_graph_spec **spec);
/* True: the document is a graph, that is, it has no model, and has actors, includes, or edges
 * without a strategy. False: it may be a training job. */
bool exo_graph_is(exo_config *root);

/* Marks feedback edges among the edges that block, so that every cycle of these has one
 * (docs/channels.md, rule 2): the edges of `initial` outputs, and in a cycle without such an edge
 * all edges. Part of reading a graph. */
void exo_graph_mark_feedback(exo_graph_spec *spec);
/* The targets that sender `i` of an edge can reach, ascending; returns their number. `out` has room
 * for the actors of the target's name; NULL: only counts. */
uint32_t exo_edge_targets(const exo_graph_spec *spec, const exo_edge_spec *edge, uint32_t i,
                          uint32_t *out);
/* Whether two edges have the same lists of targets, or none. */
bool exo_edge_same_targets(const exo_edge_spec *a, const exo_edge_spec *b);
/* The first edge at the actors `actor` with what it carries, or NULL. from: it begins there, else it
 * ends there. */
const exo_edge_spec *exo_graph_edge_at(const exo_graph_spec *spec, uint32_t actor, bool from,
                                       const char *carries);

/* The link between two hosts, by index: the link of their groups, or else the default, or else a
 * link that takes no time. */
const exo_link_spec *exo_graph_link_between(const exo_graph_spec *spec, uint32_t from, uint32_t to);
/* Makes the emulated network of a graph from its hosts and links. Links of single edges are not in
 * it: the site makes a network of its own for each such edge (site.c). */
exo_status exo_graph_links(const exo_graph_spec *spec, exo_links **out, exo_err *err);
/* Sets the links of such a network to those of another graph with the same hosts. Errors: NOMEM. */
exo_status exo_graph_set_links(exo_links *links, const exo_graph_spec *next, exo_err *err);

/* Writes the graph as YAML with every default written out. Reading that text gives the same graph.
 * The caller frees *out with exo_free. */
exo_status exo_graph_expand(const exo_graph_spec *spec, char **out, exo_err *err);
/* Writes the graph in graphviz's language. The caller frees *out with exo_free. */
exo_status exo_graph_dot(const exo_graph_spec *spec, char **out, exo_err *err);

#endif
