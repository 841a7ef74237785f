/* The keeper: a thread for slow and periodic work. It reconnects to a head that is away, runs a
 * head's timers, cleans up after killed processes, passes lines of the log on to the head, and
 * tells it what others hold of this process.
 *
 * Owns `log_file` while it runs. Read next: cluster_head.c. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cluster/cluster_impl.h"
#include "cluster/quota.h"
#include "cluster/watch.h"

void
exo_cluster_wake_keeper(void *context)
{
    exo_cluster *c = context;
    pthread_mutex_lock(&c->lock);
    c->woken = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* Removes the sockets of killed processes from the cluster's folder. */
static void
clean_up(exo_cluster *c)
{
    pthread_mutex_lock(&c->lock);
    bool due = c->sweep_at && exo_cluster_now() >= c->sweep_at;
    c->sweep_at = due ? 0 : c->sweep_at;
    pthread_mutex_unlock(&c->lock);
    if (due)
        exo_cluster_place_sweep(&c->place);
}

int
exo_cluster_open_log(const char *path)
{
    struct stat info;
    int file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (file >= 0 && (fstat(file, &info) != 0 || !S_ISREG(info.st_mode))) {
        close(file);
        file = -1;
    }
    return file;
}

/* Changes to the file that has the log's name now. False: it is the same one, or it cannot be
 * opened. */
static bool
follow_log(exo_cluster *c)
{
    struct stat ours, named;
    if (fstat(c->log_file, &ours) != 0 || lstat(c->log_path, &named) != 0 ||
        ours.st_ino == named.st_ino)
        return false;
    int file = exo_cluster_open_log(c->log_path);
    if (file < 0)
        return false;
    close(c->log_file);
    c->log_file = file;
    return true;
}

static void
pass_log_on(exo_cluster *c)
{
    char text[16384];
    pthread_mutex_lock(&c->lock);
    bool away = !c->head.id; /* meanwhile the lines wait in the file */
    pthread_mutex_unlock(&c->lock);
    while (c->log_file >= 0 && !away) {
        ssize_t got = read(c->log_file, text, sizeof text - 1);
        text[got > 0 ? got : 0] = 0;
        char *end = strrchr(text, '\n');
        /* the text after it is an incomplete line */
        if (end) {
            lseek(c->log_file, end + 1 - text - got, SEEK_CUR);
            end[1] = 0;
        } else if (got < (ssize_t)sizeof text - 1) {
            if (got > 0)
                lseek(c->log_file, -got, SEEK_CUR);
            if (!follow_log(c))
                return;
            continue;
        }
        Exo__Cluster__LogLines lines = EXO__CLUSTER__LOG_LINES__INIT;
        lines.node_name = exo_pb_text(exo_cluster_node_name(c));
        lines.text = text;
        exo_cluster_tell_head(c, "log", &lines.base);
    }
}

/* Tells the head what others hold of this process, unless that is nothing, and was nothing the last
 * time. *told: whether it was something. */
static void
tell_held(exo_cluster *c, bool *told)
{
    exo_peer *peers[EXO_HOLDERS];
    exo_remote_held held[EXO_HOLDERS];
    Exo__Cluster__Holding infos[EXO_HOLDERS], *list[EXO_HOLDERS];
    Exo__Cluster__Holdings m = EXO__CLUSTER__HOLDINGS__INIT;
    m.node = exo_cluster_node_id(c);
    m.peers = list;
    m.n_peers = exo_remote_list_held(c->remote, peers, held, EXO_HOLDERS);
    for (size_t i = 0; i < m.n_peers; i++) {
        exo__cluster__holding__init(list[i] = &infos[i]);
        infos[i].node = exo_peer_node(peers[i]);
        infos[i].name = exo_pb_text(exo_peer_name(peers[i]));
        infos[i].waiting = held[i].waiting;
        infos[i].waiting_bytes = held[i].waiting_bytes;
        infos[i].lent = held[i].lent;
        infos[i].lent_bytes = held[i].lent_bytes;
        infos[i].monitors = held[i].monitors;
        infos[i].references = held[i].references;
    }
    if (m.n_peers > 0 || *told)
        *told = exo_cluster_tell_head(c, "holds", &m.base) && m.n_peers > 0;
    for (size_t i = 0; i < m.n_peers; i++)
        exo_peer_drop(&peers[i]);
}

static void
wake_head(exo_cluster *c)
{
    if (exo_now(exo_runtime_clock(c->runtime)) < atomic_load(&c->due))
        return;
    atomic_store(&c->due, INT64_MAX);
    pthread_mutex_lock(&c->lock);
    exo_ref head = c->head;
    pthread_mutex_unlock(&c->lock);
    exo_send(c->runtime, head, "tick", (exo_payload){0}, INT64_MAX, NULL);
}

void *
exo_cluster_keep(void *argument)
{
    exo_cluster *c = argument;
    exo_err err = {0};
    unsigned late = 0;
    exo_time tell_at = 0;
    bool told = false;
    pthread_mutex_lock(&c->lock);
    while (!c->closing) {
        bool away = !c->head.id && !c->forsaken[0] && c->role != EXO_ROLE_GUEST;
        pthread_mutex_unlock(&c->lock);
        if (away) {
            exo_status st =
                exo_cluster_meet_head(c, exo_cluster_patience(c, late),
                                      exo_deadline(exo_clock_real(), LOOKUP_TIMEOUT), &err);
            late = st == EXO_TIMEOUT && exo_cluster_is_head_there(c) ? late + 1 : 0;
        }
        if (c->role == EXO_ROLE_HEAD) {
            wake_head(c);
            clean_up(c);
        }
        pass_log_on(c);
        if ((c->role == EXO_ROLE_WORKER || c->role == EXO_ROLE_DRIVER) &&
            exo_cluster_now() >= tell_at) {
            tell_held(c, &told);
            tell_at = exo_cluster_now() + EXO_SECOND;
        }
        exo_time due = atomic_load(&c->due), soon = exo_cluster_now() + (away ? RETRY : 2 * RETRY);
        if (c->role == EXO_ROLE_HEAD || c->log_file < 0)
            soon = exo_cluster_now() + (away ? RETRY : EXO_SECOND);
        pthread_mutex_lock(&c->lock);
        if (!c->closing && !c->woken)
            exo_cluster_wait_until_locked(c, due < soon ? due : soon);
        c->woken = false;
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}
