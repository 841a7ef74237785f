/* The links that the ways of collectives follow, if the key `collectives` of a job has `links`: those
 * that the nodes have measured, or those of a file that an earlier run wrote. No state. */
#ifndef EXO_FIT_LINKS_H
#define EXO_FIT_LINKS_H

#include "comm/ways.h"

#define EXO_FIT_LINKS_FILE "links.json"

/* Whether `links` asks for a measurement; else it is a path, or NULL. */
bool exo_fit_measures(const char *links);

/* Checks what can be checked before the nodes are there: the way uses links, there are not too many
 * nodes, the clock of a measurement is real, and the file has figures of so many nodes. INVAL. */
exo_status exo_fit_check_links(const char *links, exo_way way, uint32_t num_nodes,
                               bool virtual_clock, exo_err *err);

/* Reads figures (num_nodes, num_nodes), which the caller frees with exo_free, from the text of
 * links.json, or from the file. INVAL: the text is wrong, or is of another number of nodes; NOMEM;
 * those of exo_file_read. */
exo_status exo_fit_parse_links(exo_link_figure **out, const char *text, uint32_t num_nodes,
                               exo_err *err);
exo_status exo_fit_load_links(exo_link_figure **out, const char *path, uint32_t num_nodes,
                              exo_err *err);

/* Writes figures as the text of links.json, with the ring and the islands of `ways`, which follow
 * from them; NULL: without. Reading it gives the same bits. The caller frees it with
 * exo_free. NULL: no memory. */
char *exo_fit_links_text(const exo_link_figure *figures, uint32_t num_nodes,
                         const exo_comm_ways *ways);

#endif
