/* Options of sockets with keys, and of sockets without keys that ask the handler (zap.c). No state.
 * auth.h has the contracts. */
#include <string.h>

#include <zmq.h>

#include "net/key_file.h"

/* A frame's header says its length before anything is proven, and libzmq allocates that length. */
static const int64_t MAX_MESSAGE = INT64_C(1) << 30;

enum {
    HANDSHAKE_MS = 10000,
    /* ZMQ_ZAP_ENFORCE_DOMAIN. zmq.h has the name among its drafts only; libzmq has had the option
     * since 4.3. set_domain reads it back, to see whether it took effect. */
    ENFORCE_DOMAIN = 93
};

static exo_status
set(void *socket, int option, const void *value, size_t size, const char *what, exo_err *err)
{
    if (zmq_setsockopt(socket, option, value, size) == 0)
        return EXO_OK;
    return exo_fail(err, EXO_FAILED, "cannot set a socket's %s: %s", what,
                    zmq_strerror(zmq_errno()));
}

static exo_status
set_limits(void *socket, exo_err *err)
{
    int handshake = HANDSHAKE_MS;
    exo_status st =
        set(socket, ZMQ_HANDSHAKE_IVL, &handshake, sizeof handshake, "handshake time", err);
    if (st == EXO_OK)
        st = set(socket, ZMQ_MAXMSGSIZE, &MAX_MESSAGE, sizeof MAX_MESSAGE, "largest message", err);
    return st;
}

/* Without ENFORCE_DOMAIN, libzmq accepts everybody while there is no handler. */
static exo_status
set_domain(void *socket, const char *domain, exo_err *err)
{
    int one = 1, enforced = 0;
    size_t size = sizeof enforced;
    if (zmq_setsockopt(socket, ENFORCE_DOMAIN, &one, sizeof one) != 0 ||
        zmq_getsockopt(socket, ENFORCE_DOMAIN, &enforced, &size) != 0 || enforced != 1)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "this libzmq cannot be told to refuse everybody while nobody is asked");
    exo_status st = set(socket, ZMQ_ZAP_DOMAIN, domain, strlen(domain), "ZAP domain", err);
    if (st == EXO_OK)
        st = set_limits(socket, err);
    return st;
}

static exo_status
set_keys(void *socket, const exo_keys *keys, exo_err *err)
{
    if (!exo_key_is_z85(keys->public_key) || !exo_key_is_z85(keys->secret_key))
        return exo_fail(err, EXO_INVAL, "a socket's own keys are not two keys of 40 characters");
    if (!zmq_has("curve"))
        return exo_fail(err, EXO_UNSUPPORTED, "this libzmq was built without CURVE");
    exo_status st =
        set(socket, ZMQ_CURVE_PUBLICKEY, keys->public_key, EXO_KEY_TEXT, "public key", err);
    if (st == EXO_OK)
        st = set(socket, ZMQ_CURVE_SECRETKEY, keys->secret_key, EXO_KEY_TEXT, "secret key", err);
    return st;
}

exo_status
exo_curve_server(void *socket, const exo_keys *keys, exo_err *err)
{
    int one = 1;
    exo_status st = set_keys(socket, keys, err);
    if (st == EXO_OK)
        st = set(socket, ZMQ_CURVE_SERVER, &one, sizeof one, "CURVE role", err);
    if (st == EXO_OK)
        st = set_domain(socket, "exogym", err);
    return st;
}

exo_status
exo_curve_client(void *socket, const exo_keys *keys, const char *server_public, exo_err *err)
{
    if (!exo_key_is_z85(server_public))
        return exo_fail(err, EXO_INVAL, "the server's public key is not a key of 40 characters");
    exo_status st = set_keys(socket, keys, err);
    if (st == EXO_OK)
        st = set(socket, ZMQ_CURVE_SERVERKEY, server_public, EXO_KEY_TEXT, "server's key", err);
    if (st == EXO_OK)
        st = set_limits(socket, err);
    return st;
}

exo_status
exo_null_server(void *socket, const char *domain, exo_err *err)
{
    if (!domain[0])
        return exo_fail(err, EXO_INVAL, "a socket without keys needs a domain");
    return set_domain(socket, domain, err);
}
