/* Who may talk to this node: CURVE key pairs, the list of keys that are accepted, and the handler
 * that asks the list.
 *
 * A node has one key pair. It accepts a peer if the peer proves that it has the secret of a public
 * key that lies in the node's folder of authorized keys, and it talks to a peer only if that peer
 * proves to have the key that was expected. docs/security.md says what this protects and what not.
 * Read next: key_file.c, allow_list.c, zap.c (handler).
 *
 *     exo_keys_load("/etc/exogym/n1.secret", &keys, err);
 *     exo_allow_list_load(&allow, "/etc/exogym/authorized", err);
 *     exo_zap_open(&zap, context, &(exo_zap_opts){.allow = allow}, err);   before the first bind
 *     exo_curve_server(socket, &keys, err); exo_zap_watch(zap, socket, err); zmq_bind(socket, ...);
 *     ...
 *     zmq_close(socket); exo_zap_close(&zap); zmq_ctx_term(context);
 *     exo_allow_list_free(&allow); exo_keys_release(&keys);
 */
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

/* A node's CURVE pair as Z85 text. Plain memory of the caller's; whoever copies it wipes the
 * copy. */
typedef struct exo_keys {
    char public_key[EXO_KEY_TEXT];
    char secret_key[EXO_KEY_TEXT];
} exo_keys;

/* A new pair from the system's randomness. Errors: UNSUPPORTED (libzmq was built without CURVE).
 * Any thread. */
exo_status exo_keys_generate(exo_keys *keys, exo_err *err);
/* Wipes both keys. NULL and a zeroed struct are fine. */
void exo_keys_release(exo_keys *keys);

/* What the holder of a key may do; lines of its .key file, `role ROLE`, `expires DATE` and
 * `namespace NAME`. */
typedef struct exo_grant {
    char name[EXO_KEY_NAME]; /* of the key file */
    exo_access role;
    int64_t expires;          /* s since 1970, UTC; 0: never */
    char space[EXO_KEY_NAME]; /* of a driver; "default" unless the file says so */
} exo_grant;

#define EXO_ACCESS_NAMES "observer, driver, worker or admin"

enum {
    EXO_GRANT_DATE = 32
};

const char *exo_access_name(exo_access role);
exo_access exo_access_of_name(const char *name); /* NONE: there is no such role */
/* 2030-01-31 or 2030-01-31T12:00:00Z, in UTC. */
bool exo_grant_read_date(const char *text, int64_t *out);
void exo_grant_write_date(int64_t date, char out[EXO_GRANT_DATE]);
/* A line of a .key file. NOT_FOUND: it is none of a grant; `where`, for messages. */
exo_status exo_grant_read_line(exo_grant *grant, const char *where, const char *word,
                               const char *value, exo_err *err);
/* All lines were read: INVAL if they do not say what may be done. */
exo_status exo_grant_check(exo_grant *grant, const char *path, exo_err *err);

/* Writes folder/NAME.secret (mode 0600, both keys) and folder/NAME.key (0644, the public one and
 * what its holder may do). Makes the folder. Nothing is ever overwritten; after an error neither
 * file is new. Blocks on the disk. Errors: INVAL (name, see exo_key_name_is_valid), EXISTS (either
 * file is there), IO. */
exo_status exo_keys_save(const exo_keys *keys, const exo_grant *grant, const char *folder,
                         const char *name, exo_err *err);
/* Reads a .secret file. Errors, each with path and line where there is one: NOT_FOUND, IO, INVAL
 * (not a plain file, others may read it, not of the form that exo_keys_save writes, a wrong length,
 * no Z85, two keys that are no pair). On error `keys` is wiped. */
exo_status exo_keys_load(const char *path, exo_keys *keys, exo_err *err);

/* 1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit. What a key file may be
 * called; it is also what logs call the peer. */
bool exo_key_name_is_valid(const char *name);

/* --- Allow-list ------------------------------------------------------------------------------- */

/* The public keys that are accepted: a folder of NAME.key files; other files in it are not looked
 * at. Any thread may use it; a lock inside is held for moments, never during disk access. */
typedef struct exo_allow_list exo_allow_list;

/* Reads the folder; one without keys is fine, and nobody is accepted. A folder or a file that every
 * user may write is refused, and so are two files with the same key. Errors: NOT_FOUND, IO, INVAL
 * (name the file, and the line where there is one), NOMEM. Blocks on the disk. */
exo_status exo_allow_list_load(exo_allow_list **out, const char *folder, exo_err *err);
/* Reads the folder again and puts what it holds in the place of the old list at once. After an
 * error, the old list stays. The net closes the connections of keys that the list no longer holds,
 * or holds with another role (exo_net_tick_locked). */
exo_status exo_allow_list_reload(exo_allow_list *list, exo_err *err);
/* The same if files came, went or changed since it was read. A mistake is logged, once: of a file
 * that has one, what was known stays, and all else counts, so that no mistake keeps a key alive
 * whose file is gone. A folder that is gone lets nobody in. */
void exo_allow_list_refresh(exo_allow_list *list);
/* From now on, keys that come, go or change are recorded; NULL: no more. */
void exo_allow_list_audit(exo_allow_list *list, exo_audit *audit);
/* Whether the list has the key, and under which name (`name` may be NULL). Takes the same time for
 * every key: all entries are compared, every byte of them. */
bool exo_allow_list_contains(exo_allow_list *list, const uint8_t key[EXO_KEY_BYTES],
                             char name[EXO_KEY_NAME]);
/* The same, and what it may do; false also of one that has expired by `now` (s since 1970).
 * *expired (may be NULL): that is why. */
bool exo_allow_list_find(exo_allow_list *list, const uint8_t key[EXO_KEY_BYTES], int64_t now,
                         exo_grant *out, bool *expired);
/* Whether a key of that name is in it. */
bool exo_allow_list_names(exo_allow_list *list, const char *name);
size_t exo_allow_list_count(exo_allow_list *list);
void exo_allow_list_free(exo_allow_list **list);

/* --- Handler ---------------------------------------------------------------------------------- */

/* Whom a domain without keys (the NULL mechanism) lets in. */
typedef enum exo_null_rule {
    EXO_NULL_SAME_USER, /* ipc: processes of this process's user, as the kernel says */
    EXO_NULL_LOOPBACK,  /* this host: addresses 127.0.0.0/8 and ::1                 */
    EXO_NULL_ANYONE     /* insecure: everybody who reaches the port                 */
} exo_null_rule;

typedef struct exo_null_domain {
    const char *name; /* at most 63 characters; what exo_null_server is given */
    exo_null_rule rule;
} exo_null_domain;

typedef struct exo_zap_opts {
    /* read again when its folder changes; NULL: no key is accepted. Lives until the handler is
     * closed */
    exo_allow_list *allow;
    const exo_null_domain *null_domains; /* copied */
    size_t num_null_domains;
    const exo_clock *clock; /* for the log's rate; NULL: the machine's */
    exo_audit *audit;       /* has every refusal, too; NULL: none */
} exo_zap_opts;

/* The answers of one ZeroMQ context (ZAP 1.0, rfc.zeromq.org/spec/27): a thread at
 * inproc://zeromq.zap.01.
 *
 * Accepts CURVE peers whose key is in the list, with the key's name as User-Id and the key itself
 * as EXO_ZAP_KEY (zmq_msg_gets, of each frame), and NULL peers in the domains that were named,
 * without either. Everything else, PLAIN too, is refused with status 400. Each refusal is one log
 * line (subsystem NET, level WARN) with the peer's address and the first 8 characters of its key:
 * the first ten at once, then one every ten seconds with the number of those left out. */
typedef struct exo_zap exo_zap;

#define EXO_ZAP_KEY "X-Exogym-Key"

/* Bound when it returns: open it before the first socket binds. Errors: EXISTS (the context has a
 * handler), INVAL, NOMEM, FAILED. Any thread. */
exo_status exo_zap_open(exo_zap **out, void *zmq_context, const exo_zap_opts *opts, exo_err *err);
/* Logs also those of `socket`'s peers that fail before they show a key: garbage, another mechanism,
 * a wrong server key. They have a rate of their own, so that they cannot hide the others. The
 * peer's address is known if the socket binds between exo_intake_begin and exo_intake_end, and
 * "unknown" otherwise. To be called by the thread that owns the socket, before zmq_bind. The socket
 * must be closed, or given to exo_zap_unwatch, before exo_zap_close. */
exo_status exo_zap_watch(exo_zap *zap, void *socket, exo_err *err);
void exo_zap_unwatch(exo_zap *zap, void *socket);
/* Handshakes so far. Any thread. */
uint64_t exo_zap_accepted(const exo_zap *zap);
uint64_t exo_zap_refused(const exo_zap *zap); /* by the handler, watched failures included */
/* Stops the thread, which takes as long as a log line; NULL is fine. From then on the context's
 * sockets refuse every new peer. Works also while another thread waits in zmq_ctx_term. */
void exo_zap_close(exo_zap **zap);

/* --- Sockets ---------------------------------------------------------------------------------- */

/* Options of a socket before it binds or connects, by the thread that owns it. A server in a
 * context without a handler refuses everybody. All three set a handshake's time to 10 s and
 * ZMQ_MAXMSGSIZE to 1 GiB, since a stranger may announce any size; who knows a smaller bound sets
 * it afterwards. Errors: INVAL (keys), UNSUPPORTED, FAILED. */

/* Peers must have keys: CURVE, this side the server. */
exo_status exo_curve_server(void *socket, const exo_keys *keys, exo_err *err);
/* This side has `keys` and talks only to the owner of `server_public` (40 characters). A server
 * that refuses it (status 400) ends the connection for good: libzmq does not try again, and the
 * caller connects anew when it wants to. */
exo_status exo_curve_client(void *socket, const exo_keys *keys, const char *server_public,
                            exo_err *err);
/* Peers have no keys; the rule of `domain` says who may. */
exo_status exo_null_server(void *socket, const char *domain, exo_err *err);

#endif
