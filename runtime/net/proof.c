/* The proven part of a peer's identity: the key that it has, or its process. Callers of `_locked`
 * functions hold net->lock. The identity belongs to the peer (peer_impl.h).
 *
 * ZeroMQ attaches the proof as a property to every frame of a connection: with keys, the key that
 * the ZAP handler verified (zap.c); over ipc, the kernel's record of the connecting process. A peer
 * can attach properties of its own, but they cannot replace these two, which are looked up first.
 * Over tcp without keys nothing is proven. Read next: handshake.c. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "net/net_impl.h"

const char *
exo_proof_of_frame(const exo_socket *socket, const zmq_msg_t *frame)
{
    const char *property = socket->with_keys ? EXO_ZAP_KEY : socket->ipc ? "Peer-Address" : NULL;
    const char *proof = property ? zmq_msg_gets(frame, property) : NULL;
    return proof ? proof : "";
}

static const char *
peer_address(const zmq_msg_t *frame)
{
    const char *address = zmq_msg_gets(frame, "Peer-Address");
    return address ? address : "";
}

/* Reads the process number of "localhost:UID:GID:PID". 0: there is none. */
static uint32_t
read_pid(const char *address)
{
    const char *digits = strrchr(address, ':');
    char *end = NULL;
    if (!digits || !isdigit((unsigned char)digits[1]))
        return 0;
    errno = 0;
    unsigned long pid = strtoul(digits + 1, &end, 10);
    return errno == 0 && !*end && pid <= INT32_MAX ? (uint32_t)pid : 0;
}

/* Whether every other peer with the same node number has the same identity, and the number is not
 * this node's own. */
static bool
is_alone_locked(const exo_net *net, const exo_identity *who)
{
    if (who->node == net->self.node)
        return false;
    for (const exo_peer *p = net->peers; p; p = p->next)
        if (p->identity && p->identity->node == who->node &&
            !exo_identity_is_same(p->identity, who))
            return false;
    return true;
}

/* Sets the rights of an identity. Gives the reason for which it may not even connect, or NULL. */
static const char *
judge(const exo_net *net, exo_identity *who)
{
    exo_grant grant;
    uint8_t key[EXO_KEY_BYTES];
    bool expired = false;
    /* for this user on this host, and for peers that --insecure admits */
    who->role = EXO_ACCESS_ADMIN;
    if (!who->key[0] || strcmp(who->key, net->opts.trusted) == 0)
        return NULL;
    bool known = net->opts.allowed && zmq_z85_decode(key, who->key) &&
                 exo_allow_list_find(net->opts.allowed, key, (int64_t)time(NULL), &grant, &expired);
    if (known) {
        who->role = grant.role;
        snprintf(who->space, sizeof who->space, "%s", grant.space);
        snprintf(who->name, sizeof who->name, "%s", grant.name);
        return NULL;
    }
    /* This process connected to it, and it proved to have the key that the head gave. If this
     * process has no list of keys, it may host actors; otherwise it may only answer. */
    who->role = net->opts.allowed ? EXO_ACCESS_NONE : EXO_ACCESS_WORKER;
    if (who->name[0])
        return expired ? EXO_PROOF_EXPIRED : "its key is not let in any more";
    return NULL;
}

const char *
exo_proof_judge(const exo_net *net, const exo_peer *peer)
{
    exo_identity now = {0};
    if (!peer->identity || !peer->identity->name[0])
        return NULL;
    snprintf(now.key, sizeof now.key, "%s", peer->identity->key);
    snprintf(now.name, sizeof now.name, "%s", peer->identity->name);
    const char *why = judge(net, &now);
    bool same = now.role == peer->identity->role && strcmp(now.space, peer->identity->space) == 0 &&
                strcmp(now.name, peer->identity->name) == 0;
    return why ? why : same ? NULL : "its key has another role, namespace or name now";
}

/* The address that the connection comes from, by the kernel's word. */
static void
read_address(const exo_socket *socket, const zmq_msg_t *frame, char out[EXO_IDENTITY_ADDRESS])
{
    snprintf(out, EXO_IDENTITY_ADDRESS, "%s", socket->ipc ? "local" : peer_address(frame));
}

void
exo_proof_describe(const exo_socket *socket, const zmq_msg_t *frame, exo_identity *out)
{
    const char *name = socket->with_keys ? zmq_msg_gets(frame, "User-Id") : NULL;
    *out = (exo_identity){0};
    snprintf(out->name, sizeof out->name, "%s", name ? name : "");
    snprintf(out->key, sizeof out->key, "%s",
             socket->with_keys ? exo_proof_of_frame(socket, frame) : "");
    if (socket->ipc)
        out->pid = read_pid(peer_address(frame));
    read_address(socket, frame, out->address);
}

bool
exo_proof_bind_locked(exo_net *net, exo_peer *peer, const zmq_msg_t *frame, exo_err *err)
{
    exo_identity who = {.node = peer->node};
    const exo_socket *socket = peer->socket;
    const char *proof = exo_proof_of_frame(socket, frame);
    if (peer->route_size)
        read_address(socket, frame, who.address);
    if (socket->with_keys && peer->route_size) {
        const char *name = zmq_msg_gets(frame, "User-Id");
        snprintf(who.key, sizeof who.key, "%s", proof);
        snprintf(who.name, sizeof who.name, "%s", name ? name : "");
        snprintf(peer->proof, sizeof peer->proof, "%s", proof);
    } else if (socket->with_keys) {
        snprintf(who.key, sizeof who.key, "%s", socket->server_key);
    } else if (socket->ipc) {
        snprintf(peer->proof, sizeof peer->proof, "%s", proof);
    }
    if (socket->ipc) { /* by the kernel's word, with keys and without */
        who.pid = read_pid(peer_address(frame));
        who.start = who.pid ? exo_process_start(who.pid) : 0;
    }
    const char *why = judge(net, &who);
    if (why)
        return exo_fail(err, EXO_INVAL, "%s", why), false;
    if (socket->with_keys && !who.key[0])
        return exo_fail(err, EXO_INVAL, "it has shown no key"), false;
    if (who.pid && peer->near && peer->pid != who.pid)
        return exo_fail(err, EXO_INVAL, "it is process %u, and says that it is %u", who.pid,
                        peer->pid),
               false;
    if (!is_alone_locked(net, &who))
        return exo_fail(err, EXO_INVAL, "it says that it is a node that another one is"), false;
    if (!(peer->identity = exo_identity_new(&who)))
        return exo_fail(err, EXO_NOMEM, "no memory for another peer"), false;
    return true;
}

bool
exo_proof_holds_locked(const exo_socket *socket, const exo_peer *peer, const zmq_msg_t *frame)
{
    return !peer->route_size || strcmp(exo_proof_of_frame(socket, frame), peer->proof) == 0;
}
