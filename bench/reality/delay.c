/* A router that forwards packets after a latency, for kernels without netem. It reads IP packets
 * from a tun device and writes each one back when it is due, in the order of their arrival. The
 * kernel's routes lead packets to the device and onward (namespaces.sh).
 *
 *     delay DEVICE LATENCY_US [LOSS [SEED]]
 *
 * It makes the device, prints `ready`, and runs until SIGTERM. LOSS is the share of packets that it
 * drops, in [0, 1). At its end it prints the numbers of packets that it forwarded, that it dropped
 * by LOSS, and that it lost because it had no room or could not write. The exit status is 1 if
 * there are any of the last kind. One thread, no locks.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <exogym/rng.h>

enum {
    ROOM = 1 << 28,                 /* bytes in flight: a second at 2 Gbit/s */
    MAX_PACKET = 65536 + 64 + 1500, /* several segments at once, and their headers */
    ALIGNMENT = 16,
    AT_ONCE = 64 /* packets to read before some are written */
};

/* A packet in flight. The bytes that the device gave follow it. */
struct packet {
    int64_t due;
    uint32_t size; /* 0: the next packet is at the beginning of the room */
    uint32_t reserved;
};

/* The packets in order of arrival, in a ring of ROOM bytes. */
static struct {
    char *room;
    size_t first, last; /* offsets of the next packet to write, and of the next one to read */
} ring;

static volatile sig_atomic_t ended;

static void
end(int signal)
{
    (void)signal;
    ended = 1;
}

static int64_t
now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int
open_device(const char *name)
{
    /* With IFF_VNET_HDR the kernel may keep segments together and leave checksums to others. */
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) < 0 ||
        ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) < 0) {
        fprintf(stderr, "delay: %s: %s\n", name, strerror(errno));
        return -1;
    }
    return fd;
}

/* The place for the next packet, of any size; NULL: there is no room. */
static struct packet *
ring_end(void)
{
    const size_t most = sizeof(struct packet) * 2 + MAX_PACKET;
    if (ring.last >= ring.first && ROOM - ring.last < most) {
        if (ring.first == 0)
            return NULL;
        ((struct packet *)(void *)(ring.room + ring.last))->size = 0;
        ring.last = 0;
    }
    if (ring.last < ring.first && ring.first - ring.last < most)
        return NULL;
    return (struct packet *)(void *)(ring.room + ring.last);
}

static size_t
length_of(const struct packet *p)
{
    return (sizeof *p + p->size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The next packet to write, or NULL. */
static struct packet *
ring_first(void)
{
    if (ring.first == ring.last)
        return NULL;
    struct packet *p = (struct packet *)(void *)(ring.room + ring.first);
    if (p->size == 0) {
        ring.first = 0;
        p = ring.first == ring.last ? NULL : (struct packet *)(void *)ring.room;
    }
    return p;
}

static void
sleep_until(int fd, int64_t due)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    int64_t left = due - now();
    left = left < 0 ? 0 : left;
    const struct timespec until = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    ppoll(&wait, 1, &until, NULL);
}

int
main(int argc, char **argv)
{
    static char lost_packet[MAX_PACKET];
    if (argc < 3 || argc > 5) {
        fprintf(stderr, "usage: delay DEVICE LATENCY_US [LOSS [SEED]]\n");
        return 2;
    }
    const int64_t latency = (int64_t)(strtod(argv[2], NULL) * 1000);
    const double loss = argc > 3 ? strtod(argv[3], NULL) : 0;
    uint64_t passed = 0, lost = 0, no_room = 0;
    struct packet *p;
    exo_rng rng;
    exo_rng_init(&rng, argc > 4 ? strtoull(argv[4], NULL, 10) : 1, EXO_RNG_USER, 0, 0);
    ring.room = mmap(NULL, ROOM, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int fd = open_device(argv[1]);
    if (fd < 0 || ring.room == MAP_FAILED)
        return 1;
    signal(SIGTERM, end);
    prctl(PR_SET_TIMERSLACK, 1UL);
    prctl(PR_SET_PDEATHSIG, (unsigned long)SIGTERM);
    printf("ready\n");
    fflush(stdout);
    while (!ended) {
        bool idle = true;
        for (int i = 0; i < AT_ONCE; i++) {
            p = ring_end();
            ssize_t size = read(fd, p ? (char *)(p + 1) : lost_packet, MAX_PACKET);
            if (size <= 0)
                break;
            idle = false;
            if (loss > 0 && (double)exo_rng_uniform(&rng) < loss) {
                lost++;
            } else if (!p) {
                no_room++;
            } else {
                *p = (struct packet){.due = now() + latency, .size = (uint32_t)size};
                ring.last += length_of(p);
            }
        }
        int64_t time = now();
        while ((p = ring_first()) && p->due <= time) {
            idle = false;
            if (write(fd, p + 1, p->size) == (ssize_t)p->size)
                passed++;
            else
                no_room++;
            ring.first += length_of(p);
        }
        if (idle)
            sleep_until(fd, p ? p->due : time + 1000000000);
    }
    printf("%llu packets handed on, %llu lost, %llu without room\n", (unsigned long long)passed,
           (unsigned long long)lost, (unsigned long long)no_room);
    return no_room > 0;
}
