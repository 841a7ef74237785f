/* Files and folders that the options of actors name: texts, prompts, models. Each host reads its own, and
 * the numbers of one run would be those of several data sets or models if they differed. So the runner
 * says what it has, and a worker compares before it makes its first actor of the run.
 *
 * A list has "SHA256 PATH" for each file; of a folder, for its weights, config.json, tokenizer.json and
 * reward.json. Of a file above 64 MiB the hash is that of samples. A path of which the runner has no file
 * is not compared. Read next: files.c; exo_config_note_file, by which readers of options name files. */
#ifndef EXO_GRAPH_FILES_H
#define EXO_GRAPH_FILES_H

#include <stddef.h>

#include <exogym/config.h>

typedef struct exo_graph_files {
    char **texts; /* (count) */
    size_t count;
} exo_graph_files;

/* Sets the function that writes a file's SHA-256, before there are other threads; builtins.c does. */
void exo_graph_files_set_hash(exo_status (*hash)(const char *path, char out[65], exo_err *err));
/* Lists the files that the document's values name, as they are here; exo_graph_files_release frees the
 * list, also after an error. NOMEM. */
exo_status exo_graph_files_list(exo_graph_files *out, const exo_config_doc *doc, exo_err *err);
void exo_graph_files_release(exo_graph_files *files);
/* Compares the files that the document's values name here with the runner's. INVAL, with the place of the
 * value: one is another file here, or one of a folder is only here or only there; NOMEM. */
exo_status exo_graph_files_compare(const exo_graph_files *there, const exo_config_doc *doc,
                                   exo_err *err);

#endif
