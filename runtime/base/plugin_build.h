/* Which file a plugin is. A process loads a file once and keeps what it loaded, so a worker that has
 * lived for a while may have another one than a driver that names the same path, and so may a worker on
 * another host. Both are errors, because the numbers of one run would be those of two programs.
 *
 * A build is a text: the type of processor (e_machine of its ELF header) and the SHA-256 of the file,
 * "62:9f86d0...". Builds for different types of processor cannot be the same, and are not compared. */
#ifndef EXO_BASE_PLUGIN_BUILD_H
#define EXO_BASE_PLUGIN_BUILD_H

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

#include <exogym/status.h>

enum {
    EXO_BUILD = 80 /* room for a build */
};

/* What tells that a file was not written again. */
typedef struct exo_build_state {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
} exo_build_state;

/* Sets the function that writes a file's SHA-256, before there are other threads; builtins.c does. A
 * program without one, as the head, which loads no plugins, knows no builds. */
void exo_build_set_hash(exo_status (*hash)(const char *path, char out[65], exo_err *err));
/* Reads the build of a file, and the state of the file before that (`state` may be NULL). "": there is
 * no function for hashes. Errors: NOT_FOUND, INVAL (no shared object), IO, NOMEM. */
exo_status exo_build_read(const char *path, char out[EXO_BUILD], exo_build_state *state,
                          exo_err *err);
/* Whether the file is in this state. False also if there is none. */
bool exo_build_is_unchanged(const char *path, const exo_build_state *state);
/* Whether both are known, for one type of processor, and of different files. NULL, "": not known. */
bool exo_build_is_other(const char *a, const char *b);
/* The first digits of its SHA-256, for messages. */
const char *exo_build_short(const char *build, char out[16]);

/* The rest is in plugin.c. Any thread. */

/* The build of the plugin that this process has loaded from `path`, else that of the file; "" if it
 * cannot be read. */
void exo_plugin_build(const char *path, char out[EXO_BUILD]);
/* As exo_plugin_load, for another process that has the plugin in this build (NULL, "": not known).
 * Errors besides: FAILED if this process would run another one: the file is another one here, or has
 * changed since this process loaded it. */
exo_status exo_plugin_load_build(const char *path, const char *build, exo_err *err);

#endif
