/* A node with a ZAP handler: see zap_node.h. */
#include "support/zap_node.h"

#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include <zmq.h>

#include "net/intake.h"
#include "support/key_folder.h"
#include "support/logged.h"

void
zap_node_open_at(const char *endpoint, const exo_null_domain *domain)
{
    exo_err err = {0};
    size_t size = sizeof zap_node.endpoint;
    logged_begin();
    zap_node.context = zmq_ctx_new();
    zap_node.client_context = zmq_ctx_new();
    zap_node.keys = key_pair_new();
    zap_node.honest = key_pair_new();
    key_folder_authorize("honest", &zap_node.honest);
    cr_assert_eq(exo_allow_list_load(&zap_node.allow, key_folder, &err), EXO_OK, "%s", err.text);
    exo_clock_manual_init(&zap_node.clock, 0);
    exo_zap_opts opts = {.allow = zap_node.allow,
                         .null_domains = domain,
                         .num_null_domains = domain ? 1 : 0,
                         .clock = &zap_node.clock.base};
    cr_assert_eq(exo_zap_open(&zap_node.zap, zap_node.context, &opts, &err), EXO_OK, "%s",
                 err.text);
    zap_node.server = zmq_socket(zap_node.context, ZMQ_ROUTER);
    if (domain)
        cr_assert_eq(exo_null_server(zap_node.server, domain->name, &err), EXO_OK, "%s", err.text);
    else
        cr_assert_eq(exo_curve_server(zap_node.server, &zap_node.keys, &err), EXO_OK, "%s",
                     err.text);
    cr_assert_eq(exo_zap_watch(zap_node.zap, zap_node.server, &err), EXO_OK, "%s", err.text);
    exo_intake_begin(&zap_node);
    cr_assert_eq(zmq_bind(zap_node.server, endpoint), 0, "%s", zmq_strerror(zmq_errno()));
    exo_intake_end();
    cr_assert_eq(zmq_getsockopt(zap_node.server, ZMQ_LAST_ENDPOINT, zap_node.endpoint, &size), 0);
}

void
zap_node_open(void)
{
    key_folder_setup();
    zap_node_open_at("tcp://127.0.0.1:*", NULL);
}

void
zap_node_close(void)
{
    zmq_close(zap_node.server);
    exo_zap_close(&zap_node.zap);
    cr_expect_null(zap_node.zap);
    zmq_ctx_term(zap_node.client_context);
    zmq_ctx_term(zap_node.context);
    exo_allow_list_free(&zap_node.allow);
    exo_keys_release(&zap_node.keys);
    logged_end();
    key_folder_teardown();
}

void *
zap_node_new_peer(void)
{
    int zero = 0;
    void *peer = zmq_socket(zap_node.client_context, ZMQ_DEALER);
    zmq_setsockopt(peer, ZMQ_LINGER, &zero, sizeof zero);
    return peer;
}

void *
zap_node_new_curve_peer(const exo_keys *keys, const char *server_public)
{
    exo_err err = {0};
    void *peer = zap_node_new_peer();
    cr_assert_eq(exo_curve_client(peer, keys, server_public, &err), EXO_OK, "%s", err.text);
    return peer;
}

bool
zap_node_hears(void *peer, long wait_ms, char user[EXO_KEY_NAME])
{
    zmq_pollitem_t item = {.socket = zap_node.server, .events = ZMQ_POLLIN};
    bool heard = false;
    cr_assert_geq(zmq_send(peer, "hello", 5, ZMQ_DONTWAIT), 0);
    if (zmq_poll(&item, 1, wait_ms) != 1)
        return false;
    for (int more = 1; more;) {
        zmq_msg_t part;
        zmq_msg_init(&part);
        cr_assert_geq(zmq_msg_recv(&part, zap_node.server, ZMQ_DONTWAIT), 0);
        more = zmq_msg_more(&part);
        if (!more) {
            const char *id = zmq_msg_gets(&part, "User-Id");
            heard = zmq_msg_size(&part) == 5 && memcmp(zmq_msg_data(&part), "hello", 5) == 0;
            if (user)
                snprintf(user, EXO_KEY_NAME, "%s", id ? id : "");
        }
        zmq_msg_close(&part);
    }
    return heard;
}

void
zap_node_expect_honest(void)
{
    char user[EXO_KEY_NAME] = "";
    void *peer = zap_node_new_curve_peer(&zap_node.honest, zap_node.keys.public_key);
    cr_assert_eq(zmq_connect(peer, zap_node.endpoint), 0);
    cr_expect(zap_node_hears(peer, ZAP_NODE_WAIT_MS, user), "an honest peer is not heard");
    cr_expect_str_eq(user, "honest");
    zmq_close(peer);
}
