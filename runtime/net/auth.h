/* Admission: CURVE key pairs, the list of accepted keys, and the ZAP handler that asks the list.
 *
 * A node has one key pair. It accepts a peer that proves to have the secret of a public key in the
 * node's folder of authorized keys. It talks only to a peer that proves to have the expected key.
 * docs/security.md says what this protects, and what it does not. Read next: key_file.c,
 * allow_list.c, zap.c (the handler).
 *
 *     exo_keys_load("/etc/exogym/n1.secret", &keys, err);
 *     exo_allow_list_load(&allow, "/etc/exogym/authorized", err);
 *     exo_zap_open(&zap, context, &(exo_zap_opts){.allow = allow}, err);   before the first bind
 *     exo_curve_server(socket, &keys, err); exo_zap_watch(zap, socket, err); zmq_bind(socket, ...);
 *     ...
 *     zmq_close(socket); exo_zap_close(&zap); zmq_ctx_term(context);
 *     exo_allow_list_free(&allow); exo_keys_release(&keys); */
#ifndef EXO_NET_AUTH_H
#define EXO_NET_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/clock.h>
#include <exogym/status.h>

#include "base/audit.h"
#include "base/identity.h"

enum {
    EXO_KEY_BYTES = 32,
    EXO_KEY_TEXT = 41, /* Z85: 40 characters and a 0 */
    EXO_KEY_NAME = 65  /* up to 64 characters and a 0 */
};

/* --- Keys ------------------------------------------------------------------------------------- */

/* A node's CURVE pair as Z85 text, in plain memory of the caller's. Code that copies it wipes the
 * copy. */
typedef struct exo_keys {
    char public_key[EXO_KEY_TEXT];
    char secret_key[EXO_KEY_TEXT];
} exo_keys;

/* Makes a new pair from the system's randomness. Any thread. Errors: UNSUPPORTED (libzmq was built
 * without CURVE). */
exo_status exo_keys_generate(exo_keys *keys, exo_err *err);
/* Wipes both keys. NULL and a zeroed struct are allowed. */
void exo_keys_release(exo_keys *keys);

/* The rights of a key's holder: the lines `role ROLE`, `expires DATE` and `namespace NAME` of its
 * .key file. */
typedef struct exo_grant {
    char name[EXO_KEY_NAME]; /* of the key file, without .key */
    exo_access role;
    int64_t expires;          /* s since 1970, UTC; 0: never */
    char space[EXO_KEY_NAME]; /* a driver's namespace; "default" unless the file names one */
} exo_grant;

#define EXO_ACCESS_NAMES "observer, driver, worker or admin"

enum {
    EXO_GRANT_DATE = 32
};

const char *exo_access_name(exo_access role);
exo_access exo_access_of_name(const char *name); /* NONE: there is no such role */
/* Reads 2030-01-31 or 2030-01-31T12:00:00Z, in UTC. */
bool exo_grant_read_date(const char *text, int64_t *out);
void exo_grant_write_date(int64_t date, char out[EXO_GRANT_DATE]);
/* Reads a line of a .key file. `where` begins error messages. Errors: INVAL, NOT_FOUND (the line is
 * not part of a grant). */
exo_status exo_grant_read_line(exo_grant *grant, const char *where, const char *word,
                               const char *value, exo_err *err);
/* Called after all lines were read. Sets a driver's namespace to "default" if it has none. Errors:
 * INVAL (no role, or a namespace that is not a driver's). */
exo_status exo_grant_check(exo_grant *grant, const char *path, exo_err *err);

/* Writes folder/NAME.secret (mode 0600, both keys) and folder/NAME.key (mode 0644, the public key
 * and the holder's rights). Makes the folder if needed. Never overwrites a file; after an error
 * neither file is new. Blocks on the disk. Errors: INVAL (the name, see exo_key_name_is_valid),
 * EXISTS (either file exists), IO. */
exo_status exo_keys_save(const exo_keys *keys, const exo_grant *grant, const char *folder,
                         const char *name, exo_err *err);
/* Reads a .secret file. Errors, each with the path and, where there is one, the line: NOT_FOUND,
 * IO, INVAL (not a plain file, readable by others, not of the form that exo_keys_save writes, a
 * wrong length, not Z85, two keys that are not a pair). On error `keys` is wiped. */
exo_status exo_keys_load(const char *path, exo_keys *keys, exo_err *err);

/* 1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit. The name of a key file is
 * also the peer's name in logs. */
bool exo_key_name_is_valid(const char *name);

/* --- Allow-list ------------------------------------------------------------------------------- */

/* The accepted public keys: a folder of NAME.key files. Other files in the folder are ignored. Any
 * thread may use the list. Its lock is held for moments, never during disk access. */
typedef struct exo_allow_list exo_allow_list;

/* Reads the folder. A folder without keys is allowed: no peer is accepted. A folder or file that
 * every user may write is refused, and so are two files with the same key. Blocks on the disk.
 * Errors: NOT_FOUND, IO, INVAL (names the file and, where there is one, the line), NOMEM. */
exo_status exo_allow_list_load(exo_allow_list **out, const char *folder, exo_err *err);
/* Reads the folder again and replaces the old list at once. After an error the old list stays. The
 * net closes the connections of keys that the list no longer has, or has with another role
 * (exo_net_tick_locked). */
exo_status exo_allow_list_reload(exo_allow_list *list, exo_err *err);
/* Does the same if files were added, removed or changed since the last reading, but logs a mistake
 * instead of failing, once. The entry of a file with a mistake stays as it was, and all other files
 * count: so a mistake in one file does not keep the key of a removed file alive. A missing folder
 * admits nobody. */
void exo_allow_list_refresh(exo_allow_list *list);
/* From now on, added, removed and changed keys are recorded; NULL: no more. */
void exo_allow_list_audit(exo_allow_list *list, exo_audit *audit);
/* Whether the list has the key, and under which name (`name` may be NULL). Takes the same time for
 * every key: every byte of every entry is compared. */
bool exo_allow_list_contains(exo_allow_list *list, const uint8_t key[EXO_KEY_BYTES],
                             char name[EXO_KEY_NAME]);
/* The same, with the key's grant. False also for a key that has expired by `now` (s since 1970);
 * *expired (may be NULL) then says so. */
bool exo_allow_list_find(exo_allow_list *list, const uint8_t key[EXO_KEY_BYTES], int64_t now,
                         exo_grant *out, bool *expired);
/* Whether the list has a key of that name. */
bool exo_allow_list_names(exo_allow_list *list, const char *name);
size_t exo_allow_list_count(exo_allow_list *list);
void exo_allow_list_free(exo_allow_list **list);

/* --- Handler ---------------------------------------------------------------------------------- */

/* The peers that a domain without keys (the NULL mechanism) accepts. */
typedef enum exo_null_rule {
    EXO_NULL_SAME_USER, /* ipc: processes of this process's user, by the kernel's word */
    EXO_NULL_LOOPBACK,  /* addresses of this host: 127.0.0.0/8 and ::1 */
    EXO_NULL_ANYONE     /* insecure: every peer that reaches the port */
} exo_null_rule;

typedef struct exo_null_domain {
    const char *name; /* at most 63 characters; the same as exo_null_server's */
    exo_null_rule rule;
} exo_null_domain;

typedef struct exo_zap_opts {
    /* Read again when its folder changes. NULL: no key is accepted. Must live until the handler is
     * closed. */
    exo_allow_list *allow;
    const exo_null_domain *null_domains; /* copied */
    size_t num_null_domains;
    const exo_clock *clock; /* for the rate of log lines; NULL: the machine's */
    exo_audit *audit;       /* records every refusal; NULL: no record */
} exo_zap_opts;

/* The ZAP handler of one ZeroMQ context (ZAP 1.0, rfc.zeromq.org/spec/27): a thread at
 * inproc://zeromq.zap.01.
 *
 * It accepts CURVE peers whose key is in the list, with the key's name as User-Id and the key
 * itself as EXO_ZAP_KEY (zmq_msg_gets, of each frame). It accepts NULL peers in the named domains,
 * without either property. Everything else, PLAIN included, is refused with status 400. Each
 * refusal is one log line (subsystem NET, level WARN) with the peer's address and the first 8
 * characters of its key: the first ten at once, then one every ten seconds, with the number of
 * those left out. */
typedef struct exo_zap exo_zap;

#define EXO_ZAP_KEY "X-Exogym-Key"

/* The handler is bound when this returns. Open it before the first socket binds. Any thread.
 * Errors: EXISTS (the context has a handler), INVAL, NOMEM, FAILED. */
exo_status exo_zap_open(exo_zap **out, void *zmq_context, const exo_zap_opts *opts, exo_err *err);
/* Logs also the peers of `socket` that fail before they show a key: garbage, another mechanism, a
 * wrong server key. These lines have a rate of their own, so that they cannot hide the others. The
 * peer's address is known if the socket binds between exo_intake_begin and exo_intake_end,
 * otherwise it is "unknown". The thread that owns the socket calls this before zmq_bind. Before
 * exo_zap_close the socket must be closed, or given to exo_zap_unwatch. */
exo_status exo_zap_watch(exo_zap *zap, void *socket, exo_err *err);
void exo_zap_unwatch(exo_zap *zap, void *socket);
/* Accepted handshakes so far. Any thread. */
uint64_t exo_zap_accepted(const exo_zap *zap);
/* Refused handshakes so far, and failures before a key was shown. Any thread. */
uint64_t exo_zap_refused(const exo_zap *zap);
/* Stops the thread, which takes as long as a log line. NULL is allowed. Afterwards the context's
 * sockets refuse every new peer. Works also while another thread waits in zmq_ctx_term. */
void exo_zap_close(exo_zap **zap);

/* --- Sockets ---------------------------------------------------------------------------------- */

/* These set a socket's options before it binds or connects; the thread that owns the socket calls
 * them. A server in a context without a handler refuses every peer. All three set a handshake's
 * time to 10 s and ZMQ_MAXMSGSIZE to 1 GiB, since a stranger may announce any size; a caller with
 * smaller bounds sets them afterwards. Errors: INVAL (keys), UNSUPPORTED, FAILED. */

/* Requires keys of peers: CURVE, this side is the server. */
exo_status exo_curve_server(void *socket, const exo_keys *keys, exo_err *err);
/* This side has `keys` and talks only to the owner of `server_public` (40 characters). A refusal by
 * the server (status 400) ends the connection for good: libzmq does not retry, so the caller
 * connects anew when it wants to. */
exo_status exo_curve_client(void *socket, const exo_keys *keys, const char *server_public,
                            exo_err *err);
/* Peers have no keys; the rule of `domain` decides which are accepted. */
exo_status exo_null_server(void *socket, const char *domain, exo_err *err);

#endif
