/* Names of a head's host: what they resolve to decides what the user is told. This program's own
 * getaddrinfo() takes the place of libc's, so that no network is needed. Read next: cluster/place.h. */
#include <criterion/criterion.h>

#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/place.h"

/* "four" has an IPv4 address, "six" an IPv6 address. */
int
getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
            struct addrinfo **out)
{
    (void)service;
    *out = NULL;
    if (strcmp(node, hints->ai_family == AF_INET ? "four" : "six") == 0)
        return 0;
    return strcmp(node, "six") == 0 ? EAI_ADDRFAMILY : EAI_NONAME;
}

Test(place_names, a_host_with_ipv6_addresses_only_is_named_by_one_of_them)
{
    const char *reason = NULL;
    cr_expect(exo_cluster_place_resolves("tcp://four:7070", &reason));
    cr_expect(exo_cluster_place_resolves("tcp://[::1]:7070", &reason), "an address");
    cr_expect(!exo_cluster_place_resolves("tcp://six:7070", &reason));
    cr_expect_str_eq(reason, "it has IPv6 addresses only: give one of them, in brackets, as in "
                             "tcp://[2001:db8::1]:7070");
    cr_expect(!exo_cluster_place_resolves("tcp://none:7070", &reason));
    cr_expect_str_eq(reason, gai_strerror(EAI_NONAME));
}
