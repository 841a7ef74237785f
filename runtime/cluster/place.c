/* The place of a process in a cluster: see place.h. */
#include "cluster/place.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/environment.h"
#include "base/parallel.h"
#include "net/net.h"

/* --- Folder ----------------------------------------------------------------------------------- */

static exo_status
make_private(const char *path, bool exists, exo_err *err)
{
    struct stat info;
    if (!exists && mkdir(path, 0700) != 0 && errno != EEXIST)
        return exo_fail(err, EXO_IO, "%s: %s", path, strerror(errno));
    if (lstat(path, &info) != 0)
        return exo_fail(err, EXO_IO, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0)
        return exo_fail(err, EXO_INVAL,
                        "%s: must be a folder of your own that nobody else can enter (chmod 700)",
                        path);
    return EXO_OK;
}

/* Writes the folder of all clusters' sockets, as an absolute path, because other processes read it in the
 * addresses of this one. False: it is too long, or the current folder has no path. */
static bool
name_base(const char *folder, char base[EXO_CLUSTER_PLACE_PATH], size_t room)
{
    char here[EXO_CLUSTER_PLACE_PATH];
    const char *run = getenv("XDG_RUNTIME_DIR");
    int n = -1;
    if (folder && folder[0] == '/')
        n = snprintf(base, room, "%s", folder);
    else if (folder && getcwd(here, sizeof here))
        n = snprintf(base, room, "%s/%s", strcmp(here, "/") == 0 ? "" : here, folder);
    else if (!folder && run && run[0] == '/')
        n = snprintf(base, room, "%s/exogym", run);
    else if (!folder)
        n = snprintf(base, room, "/tmp/exogym-%u", (unsigned)geteuid());
    return n >= 0 && (size_t)n < room;
}

static exo_status
find_folder(exo_cluster_place *p, const exo_cluster_opts *opts, exo_err *err)
{
    char base[EXO_CLUSTER_PLACE_PATH];
    if (!name_base(opts->folder, base, sizeof base - strlen(p->cluster) - 32))
        return exo_fail(err, EXO_INVAL, "%s: the path is too long for a socket%s",
                        opts->folder ? opts->folder : base,
                        opts->folder && opts->folder[0] != '/' ? ", with that of the current folder"
                                                               : "");
    exo_status st = make_private(base, opts->folder && opts->folder_exists, err);
    snprintf(p->folder, sizeof p->folder, "%s/%s", base, p->cluster);
    return st == EXO_OK ? make_private(p->folder, false, err) : st;
}

enum {
    CLUSTER_NAME = 47
};

static bool
is_name(const char *text)
{
    size_t length = 0;
    for (; text[length]; length++)
        if (!isalnum((unsigned char)text[length]) && !strchr("._-", text[length]))
            return false;
    return length > 0 && length <= CLUSTER_NAME && text[0] != '.';
}

static bool
has_ended(int pid)
{
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return errno == ENOENT;
    const char *end = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    fclose(file);
    return end && strncmp(end, ") Z", 3) == 0; /* a zombie: its parent has not waited for it yet */
}

bool
exo_cluster_place_has_owner(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    /* A datagram socket cannot connect to our stream sockets, but the error says whether one has a
     * listener. */
    int fd = length < sizeof at.sun_path ? socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0)
        return true; /* unknown */
    memcpy(at.sun_path, path, length + 1);
    bool refused = connect(fd, (const struct sockaddr *)&at, sizeof at) != 0 &&
                   (errno == ECONNREFUSED || errno == ENOENT);
    close(fd);
    return !refused;
}

void
exo_cluster_place_sweep(const exo_cluster_place *p)
{
    DIR *dir = opendir(p->folder);
    char path[EXO_CLUSTER_PLACE_PATH + 264];
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        int pid = 0;
        if (sscanf(entry->d_name, "driver-%d-", &pid) != 1 &&
            sscanf(entry->d_name, "worker-%d-", &pid) != 1)
            continue;
        snprintf(path, sizeof path, "%s/%s", p->folder, entry->d_name);
        if (pid > 0 && has_ended(pid) && !exo_cluster_place_has_owner(path))
            unlink(path);
    }
    if (dir)
        closedir(dir);
}

exo_status
exo_cluster_place_folder(exo_cluster_place *p, const exo_cluster_opts *opts, exo_err *err)
{
    const char *cluster = opts->cluster && *opts->cluster ? opts->cluster : "default";
    if (!is_name(cluster))
        return exo_fail(err, EXO_INVAL,
                        "the cluster's name '%.60s': expected at most %d letters, digits, '.', '_' "
                        "and '-', no '.' first",
                        cluster, CLUSTER_NAME);
    snprintf(p->cluster, sizeof p->cluster, "%s", cluster);
    p->any_cluster = opts->role != EXO_ROLE_HEAD && !(opts->cluster && *opts->cluster);
    return find_folder(p, opts, err);
}

/* One head at a time: a second one would take the socket away from the first. */
static exo_status
lock_head(exo_cluster_place *p, exo_err *err)
{
    char path[EXO_CLUSTER_PLACE_PATH + 16];
    snprintf(path, sizeof path, "%s/head.lock", p->folder);
    p->lock = open(path, O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (p->lock < 0)
        return exo_fail(err, EXO_IO, "%s: %s", path, strerror(errno));
    if (flock(p->lock, LOCK_EX | LOCK_NB) != 0)
        return exo_fail(err, EXO_EXISTS, "the cluster '%s' has a head on this host already (%s)",
                        p->cluster, path);
    return EXO_OK;
}

/* --- Endpoints -------------------------------------------------------------------------------- */

static bool
is_loopback(const char *endpoint)
{
    return strncmp(endpoint, "tcp://127.", 10) == 0 || strncmp(endpoint, "tcp://[::1]", 11) == 0 ||
           strncmp(endpoint, "tcp://localhost:", 16) == 0;
}

/* Whether the host of tcp://HOST:PORT, up to `end`, has two colons outside of brackets; an alias of an
 * interface (eth0:1) has one. False if a bracket closes behind `end`: then the port is missing. */
static bool
lacks_brackets(const char *address, const char *end)
{
    const char *host = address + 6, *colon = memchr(host, ':', (size_t)(end - host));
    return colon && memchr(colon + 1, ':', (size_t)(end - colon - 1)) &&
           !(host[0] == '[' && (end[-1] == ']' || strchr(end, ']')));
}

/* Checks a tcp address here, because libzmq takes a port modulo 65536, and an IPv6 address without
 * brackets for a device. least: the smallest port; 0 where any free port may be meant. */
static exo_status
check_tcp(const char *address, long least, exo_err *err)
{
    const char *colon = strncmp(address, "tcp://", 6) == 0 ? strrchr(address + 6, ':') : NULL;
    char *end = NULL;
    long port = colon && isdigit((unsigned char)colon[1]) ? strtol(colon + 1, &end, 10) : -1;
    if (colon && lacks_brackets(address, colon))
        return exo_fail(err, EXO_INVAL,
                        "'%.100s': an IPv6 address stands in brackets, as in tcp://[::1]:7070",
                        address);
    if (port >= least && port <= UINT16_MAX && !*end && colon > address + 6)
        return EXO_OK;
    return exo_fail(err, EXO_INVAL,
                    "'%.100s': expected tcp://ADDRESS:PORT, with a port from %ld to %d", address,
                    least, UINT16_MAX);
}

/* Whether the name has an address of that family: 0, or the error of getaddrinfo. */
static int
resolve(const char *host, const char *port, int family)
{
    struct addrinfo *found = NULL;
    const struct addrinfo hints = {.ai_family = family, .ai_socktype = SOCK_STREAM};
    const int result = getaddrinfo(host, port, &hints, &found);
    if (found)
        freeaddrinfo(found);
    return result;
}

bool
exo_cluster_place_resolves(const char *address, const char **reason)
{
    char host[256];
    const char *colon = strrchr(address, ':');
    if (strncmp(address, "tcp://", 6) != 0 || address[6] == '[' || colon <= address + 6)
        return true;
    snprintf(host, sizeof host, "%.*s", (int)(colon - address - 6), address + 6);
    const int result = resolve(host, colon + 1, AF_INET);
    *reason = !result ? ""
              : resolve(host, colon + 1, AF_INET6) == 0
                  ? "it has IPv6 addresses only: give one of them, in brackets, as in "
                    "tcp://[2001:db8::1]:7070"
                  : gai_strerror(result);
    return result == 0;
}

static exo_status
find_endpoints(exo_cluster_place *p, const exo_cluster_opts *opts, exo_err *err)
{
    static const char *const roles[] = {"driver", "worker", "head", "guest"};
    static _Atomic unsigned joined; /* in this process: tests join several times */
    const char *keyed = p->keys_for_local ? EXO_NET_KEYED : "";
    int length = opts->role == EXO_ROLE_HEAD
                     ? snprintf(p->socket, sizeof p->socket, "%s/head%s", p->folder, keyed)
                     : snprintf(p->socket, sizeof p->socket, "%s/%s-%d-%u%s", p->folder,
                                roles[opts->role], (int)getpid(), joined++, keyed);
    if (length < 0 || (size_t)length >= sizeof p->socket)
        return exo_fail(err, EXO_INVAL, "%s: the path is too long for a socket", p->folder);
    snprintf(p->ipc, sizeof p->ipc, "ipc://%s", p->socket);
    if (opts->role == EXO_ROLE_GUEST || (opts->no_ipc && opts->num_listen > 0))
        p->socket[0] = 0;
    else
        p->endpoints[p->num_endpoints++] = p->ipc;
    if (opts->num_listen > sizeof p->endpoints / sizeof p->endpoints[0] - 1)
        return exo_fail(err, EXO_INVAL, "%zu addresses to listen on are too many",
                        opts->num_listen);
    for (size_t i = 0; i < opts->num_listen; i++) {
        const char *endpoint = opts->listen[i];
        exo_status st = check_tcp(endpoint, 0, err);
        if (st != EXO_OK)
            return st;
        if (!p->has_keys && !opts->insecure)
            return exo_fail(err, EXO_INVAL,
                            "'%s' can be reached by %s, who could run code as this user: give "
                            "keys, which `exogym keygen` makes, or say --insecure",
                            endpoint, is_loopback(endpoint) ? "every user of this host" : "others");
        p->endpoints[p->num_endpoints++] = endpoint;
    }
    return opts->advertise ? check_tcp(opts->advertise, 1, err) : EXO_OK;
}

/* Splits tcp://HOST:PORT into the host, without brackets, and the port, which is in `address`; NULL: it
 * is no such address. */
static const char *
split_tcp(const char *address, char *host, size_t size, bool *brackets)
{
    const char *colon = strncmp(address, "tcp://", 6) == 0 ? strrchr(address, ':') : NULL;
    if (!colon || colon <= address + 6)
        return NULL;
    *brackets = address[6] == '[' && colon[-1] == ']';
    snprintf(host, size, "%.*s", (int)(colon - address - (*brackets ? 8 : 6)),
             address + (*brackets ? 7 : 6));
    return colon + 1;
}

/* Whether a tcp address is of another host: the route to it begins at another address. False if its
 * name cannot be resolved. Nothing is sent. */
static bool
is_elsewhere(const char *address)
{
    char host[256];
    bool brackets = false;
    struct addrinfo *found = NULL;
    struct sockaddr_storage own = {0};
    socklen_t size = sizeof own;
    const char *port = split_tcp(address, host, sizeof host, &brackets);
    const struct addrinfo hints = {.ai_family = brackets ? AF_INET6 : AF_INET,
                                   .ai_socktype = SOCK_DGRAM};
    if (!port || is_loopback(address) || getaddrinfo(host, port, &hints, &found) != 0)
        return false;
    int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    /* without a route it is not this host's */
    bool routed = fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
                  getsockname(fd, (struct sockaddr *)&own, &size) == 0;
    bool same = false;
    if (routed && brackets)
        same = memcmp(&((const struct sockaddr_in6 *)&own)->sin6_addr,
                      &((const struct sockaddr_in6 *)found->ai_addr)->sin6_addr,
                      sizeof(struct in6_addr)) == 0;
    else if (routed)
        same = ((const struct sockaddr_in *)&own)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)found->ai_addr)->sin_addr.s_addr;
    if (fd >= 0)
        close(fd);
    freeaddrinfo(found);
    return !same;
}

bool
exo_cluster_place_is_hidden(const exo_cluster_place *p, const exo_cluster_opts *opts)
{
    if (opts->advertise || !is_elsewhere(p->head))
        return false;
    for (size_t i = 0; i < opts->num_listen; i++)
        if (!is_loopback(opts->listen[i]))
            return false;
    return true;
}

static bool
write_address(const struct sockaddr *address, socklen_t size, const char *port, char *out,
              size_t length)
{
    char host[256];
    if (getnameinfo(address, size, host, sizeof host, NULL, 0, NI_NUMERICHOST) != 0)
        return false;
    int n = snprintf(out, length, strchr(host, ':') ? "tcp://[%s]%s" : "tcp://%s%s", host, port);
    return n > 0 && (size_t)n < length && !is_loopback(out);
}

/* The local address of the route to the head. Nothing is sent. False also for an IPv6 address if
 * the endpoint is bound to those of IPv4 alone. */
static bool
address_towards(const char *head, bool ipv6, const char *port, char *out, size_t length)
{
    char host[256];
    bool brackets = false;
    struct addrinfo *found = NULL;
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    const char *head_port = split_tcp(head, host, sizeof host, &brackets);
    if (!head_port)
        return false;
    const struct addrinfo hints = {.ai_family = brackets ? AF_INET6 : AF_INET,
                                   .ai_socktype = SOCK_DGRAM};
    if ((brackets && !ipv6) || getaddrinfo(host, head_port, &hints, &found) != 0)
        return false;
    int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool good = fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
                getsockname(fd, (struct sockaddr *)&own, &size) == 0 &&
                write_address((const struct sockaddr *)&own, size, port, out, length);
    if (fd >= 0)
        close(fd);
    freeaddrinfo(found);
    return good;
}

/* Whether others can connect to it without a zone, a name that means nothing to them. */
static bool
is_routed(const struct sockaddr *address)
{
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
    return address->sa_family == AF_INET || !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
}

/* The first address of this host that is neither loopback nor of its link alone. */
static bool
first_address(int family, const char *port, char *out, size_t length)
{
    socklen_t size = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    struct ifaddrs *all = NULL;
    bool found = false;
    if (getifaddrs(&all) != 0)
        return false;
    for (const struct ifaddrs *i = all; i && !found; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == family && (i->ifa_flags & IFF_UP) &&
            is_routed(i->ifa_addr))
            found = write_address(i->ifa_addr, size, port, out, length);
    freeifaddrs(all);
    return found;
}

void
exo_cluster_place_public(const exo_cluster_place *p, const exo_cluster_opts *opts,
                         const char *bound, char *out, size_t length)
{
    static const char *const anywhere[] = {"tcp://0.0.0.0:", "tcp://[::]:", "tcp://*:"};
    bool tcp = strncmp(bound, "tcp://", 6) == 0, all = false;
    for (size_t i = 0; i < sizeof anywhere / sizeof anywhere[0]; i++)
        all = all || strncmp(bound, anywhere[i], strlen(anywhere[i])) == 0;
    const char *port = all ? strrchr(bound, ':') : NULL,
               *head = opts->role == EXO_ROLE_HEAD ? "" : p->head;
    bool ipv6 = tcp && bound[6] == '[';
    if (tcp && opts->advertise)
        snprintf(out, length, "%s", opts->advertise);
    else if (!port || !(address_towards(head, ipv6, port, out, length) ||
                        first_address(AF_INET, port, out, length) ||
                        (ipv6 && first_address(AF_INET6, port, out, length))))
        snprintf(out, length, "%s", bound);
}

/* --- Keys ------------------------------------------------------------------------------------- */

/* Reads a public key, given as text or as the path of a file that exo_keys_save wrote. */
static exo_status
read_public_key(const char *given, char out[EXO_KEY_TEXT], exo_err *err)
{
    char line[256];
    if (strlen(given) == EXO_KEY_TEXT - 1 && !strchr(given, '\n') && access(given, F_OK) != 0) {
        memcpy(out, given, EXO_KEY_TEXT);
        return EXO_OK;
    }
    FILE *file = fopen(given, "re");
    if (!file)
        return exo_fail(err, EXO_NOT_FOUND,
                        "%s: neither a public key of 40 characters nor a file: %s", given,
                        strerror(errno));
    out[0] = 0;
    while (!out[0] && fgets(line, sizeof line, file)) {
        size_t length = strcspn(line, "\r\n");
        line[length] = 0;
        char *word = strrchr(line, ' ');
        word = word ? word + 1 : line;
        if (line[0] != '#' && strlen(word) == EXO_KEY_TEXT - 1)
            memcpy(out, word, EXO_KEY_TEXT);
    }
    fclose(file);
    return out[0] ? EXO_OK : exo_fail(err, EXO_INVAL, "%s: no public key in it", given);
}

static exo_status
find_keys(exo_cluster_place *p, const exo_cluster_opts *opts, exo_err *err)
{
    char folder[4096];
    if (!opts->keys)
        return EXO_OK;
    exo_status st = exo_keys_load(opts->keys, &p->keys, err);
    if (st != EXO_OK)
        return st;
    p->has_keys = true;
    const char *slash = strrchr(opts->keys, '/');
    if (opts->authorized)
        snprintf(folder, sizeof folder, "%s", opts->authorized);
    else
        snprintf(folder, sizeof folder, "%.*sauthorized", slash ? (int)(slash - opts->keys + 1) : 0,
                 opts->keys);
    if (!opts->authorized && access(folder, F_OK) != 0 && opts->num_listen == 0 &&
        !p->keys_for_local)
        return EXO_OK; /* it listens nowhere that requires keys */
    if (access(folder, F_OK) != 0)
        return exo_fail(
            err, EXO_NOT_FOUND,
            "%s: %s: make it, and copy the .key file of each node that may connect there", folder,
            strerror(errno));
    return exo_allow_list_load(&p->allowed, folder, err);
}

/* The process at the head's address makes a worker run code, and receives the requests of others.
 * Over tcp it must prove by its key that it is the head. */
static exo_status
check_trust(const exo_cluster_place *p, const exo_cluster_opts *opts, exo_err *err)
{
    if (strncmp(p->head, "tcp://", 6) != 0 || p->head_key[0])
        return EXO_OK;
    if (p->has_keys)
        return exo_fail(err, EXO_INVAL,
                        "whoever answers at '%.200s' could pretend to be the head: say --head-key "
                        "with the head's NAME.key, as this process has keys",
                        p->head);
    if (opts->role == EXO_ROLE_WORKER && !opts->insecure)
        return exo_fail(err, EXO_INVAL,
                        "whoever answers at '%.200s' could run code here as this user: give --keys "
                        "and --head-key, which `exogym keygen` makes, or say --insecure",
                        p->head);
    return EXO_OK;
}

static exo_status
find_head(exo_cluster_place *p, const exo_cluster_opts *opts, exo_err *err)
{
    const char *head = opts->head ? opts->head : exo_environment("EXOGYM_HEAD");
    const char *key = opts->head_key ? opts->head_key : exo_environment("EXOGYM_HEAD_KEY");
    if (head && *head) {
        if (strncmp(head, "tcp://", 6) != 0 && strncmp(head, "ipc://", 6) != 0)
            return exo_fail(err, EXO_INVAL,
                            "the head's address '%s': expected tcp://HOST:PORT or ipc://PATH",
                            head);
        if (head[0] == 't' && check_tcp(head, 1, err) != EXO_OK)
            return EXO_INVAL;
        if (strlen(head) >= sizeof p->head)
            return exo_fail(err, EXO_INVAL, "the head's address is too long");
        snprintf(p->head, sizeof p->head, "%s", head);
        p->keys_for_local = p->keys_for_local || exo_net_is_keyed(head);
    } else {
        snprintf(p->head, sizeof p->head, "ipc://%s/head%s", p->folder,
                 p->keys_for_local ? EXO_NET_KEYED : "");
        if (!p->keys_for_local && opts->role != EXO_ROLE_HEAD)
            snprintf(p->head_keyed, sizeof p->head_keyed, "%s" EXO_NET_KEYED, p->head);
        p->keys_for_local = p->keys_for_local || exo_net_is_keyed(exo_cluster_place_head(p));
    }
    return key && *key ? read_public_key(key, p->head_key, err) : EXO_OK;
}

const char *
exo_cluster_place_head(const exo_cluster_place *p)
{
    size_t scheme = strlen("ipc://");
    bool other = p->head_keyed[0] && !exo_cluster_place_has_owner(p->head + scheme) &&
                 exo_cluster_place_has_owner(p->head_keyed + scheme);
    return other ? p->head_keyed : p->head;
}

/* Where local processes need keys, each has its own keys, and the head's public key. */
static exo_status
check_local(const exo_cluster_place *p, const exo_cluster_opts *opts, exo_err *err)
{
    if (!p->keys_for_local)
        return EXO_OK;
    if (opts->keys_for_local && !p->has_keys)
        return exo_fail(err, EXO_INVAL,
                        "--keys-for-local: this process has no keys: give some with --keys");
    if (opts->role == EXO_ROLE_HEAD)
        return EXO_OK;
    if (!p->has_keys || !p->head_key[0])
        return exo_fail(
            err, EXO_INVAL,
            "the head at %s wants keys of processes of this host, too: give --keys and --head-key",
            exo_cluster_place_head(p));
    if (strncmp(p->head, "ipc://", 6) == 0 && !exo_net_is_keyed(exo_cluster_place_head(p)))
        return exo_fail(err, EXO_INVAL, "--keys-for-local: the head's socket '%.200s' wants none",
                        p->head);
    return EXO_OK;
}

/* --- Resources -------------------------------------------------------------------------------- */

static void
add_resource(exo_cluster_place *p, const char *name, double amount)
{
    for (size_t i = 0; i < p->num_resources; i++)
        if (strcmp(p->resources[i].name, name) == 0)
            return;
    if (p->num_resources < EXO_CLUSTER_PLACE_RESOURCES)
        p->resources[p->num_resources++] = (exo_resource){.name = name, .amount = amount};
}

/* Whether an item of CUDA_VISIBLE_DEVICES may be a GPU of this host: whether there is one of that UUID
 * is known to the driver alone. */
static bool
may_be_gpu(const char *item, int present)
{
    char *end = NULL;
    if (strncmp(item, "GPU-", 4) == 0 || strncmp(item, "MIG-", 4) == 0)
        return true;
    const long number = strtol(item, &end, 10);
    return end > item && number >= 0 && number < present;
}

static bool
is_same_gpu(const char *a, const char *b)
{
    const size_t length = strcspn(a, ",");
    if (*a != 'G' && *a != 'M')
        return *b != 'G' && *b != 'M' && strtol(a, NULL, 10) == strtol(b, NULL, 10);
    return length == strcspn(b, ",") && strncmp(a, b, length) == 0;
}

int
exo_cluster_visible_gpus(const char *list, int present)
{
    const char *item = list;
    int visible = 0;
    if (!list)
        return present;
    while (may_be_gpu(item, present)) {
        for (const char *other = list; other < item; other += strcspn(other, ",") + 1)
            if (is_same_gpu(other, item))
                return 0;
        visible++;
        item += strcspn(item, ",");
        item += *item == ',';
    }
    return visible < present ? visible : present;
}

/* A container may have some of the host's, under their numbers. */
static int
count_gpus(void)
{
    char path[32];
    int present = 0;
    for (int i = 0; i < 64; i++) {
        snprintf(path, sizeof path, "/dev/nvidia%d", i);
        present += access(path, F_OK) == 0;
    }
    return exo_cluster_visible_gpus(getenv("CUDA_VISIBLE_DEVICES"), present);
}

static void
find_resources(exo_cluster_place *p, const exo_cluster_opts *opts)
{
    struct sysinfo info = {0};
    for (size_t i = 0; i < opts->num_resources; i++)
        add_resource(p, opts->resources[i].name, opts->resources[i].amount);
    add_resource(p, "cpus", exo_usable_cores());
    if (sysinfo(&info) == 0)
        add_resource(p, "memory", (double)info.totalram * info.mem_unit);
    add_resource(p, "gpus", count_gpus());
}

/* --- All of it -------------------------------------------------------------------------------- */

exo_status
exo_cluster_place_init(exo_cluster_place *p, const exo_cluster_opts *opts, exo_err *err)
{
    *p = (exo_cluster_place){.lock = -1};
    exo_status st = exo_cluster_place_folder(p, opts, err);
    if (st == EXO_OK && opts->role == EXO_ROLE_HEAD)
        st = lock_head(p, err);
    p->keys_for_local = opts->keys_for_local;
    if (st == EXO_OK)
        st = find_head(p, opts, err);
    if (st == EXO_OK)
        st = find_keys(p, opts, err);
    if (st == EXO_OK)
        st = check_local(p, opts, err);
    if (st == EXO_OK)
        st = check_trust(p, opts, err);
    if (st == EXO_OK)
        st = find_endpoints(p, opts, err);
    if (st == EXO_OK && opts->role == EXO_ROLE_WORKER)
        find_resources(p, opts);
    if (st == EXO_OK && opts->role != EXO_ROLE_GUEST)
        exo_cluster_place_sweep(p);
    return st;
}

void
exo_cluster_place_release(exo_cluster_place *p)
{
    if (p->socket[0])
        unlink(p->socket);
    exo_keys_release(&p->keys);
    exo_allow_list_free(&p->allowed);
    if (p->lock >= 0) {
        exo_cluster_place_sweep(p);
        close(p->lock);
    }
    p->lock = -1;
}
