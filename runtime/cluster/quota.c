/* Quotas and accounts: see quota.h. */
#include "cluster/quota.h"

#include <assert.h>
#include <inttypes.h>

#include <exogym/memory.h>

static const struct {
    const char *name, *what, *remedy;
} texts[EXO_QUOTAS] = {
    [EXO_QUOTA_NODES] = {"nodes", "nodes of this process", "let those go that are not needed"},
    [EXO_QUOTA_JOBS] = {"jobs", "jobs of this process that run", "end one of them first"},
    [EXO_QUOTA_ACTORS] = {"actors", "actors of this process",
                          "stop some of them, or make them within others"},
    [EXO_QUOTA_NAMES] = {"names", "names of actors of this process",
                         "stop some of them, or make them without names"},
    [EXO_QUOTA_SPAWNS] = {"spawns", "actors that are being made for this process",
                          "wait until some of them have started"},
    [EXO_QUOTA_FINDS] = {"finds", "searches of this process that wait for an actor",
                         "wait for some of them"},
    [EXO_QUOTA_LOGS] = {"logs", "calls of this process that wait for lines of the log",
                        "end some of them"},
    [EXO_QUOTA_WAITING] = {"waiting", "calls of this process that wait for a turn",
                           "wait for some of them"},
    [EXO_QUOTA_WAITING_BYTES] = {"waiting_bytes",
                                 "bytes of calls of this process that wait for a turn",
                                 "wait for some of them"},
    [EXO_QUOTA_LENT] = {"lent", "objects that this process has not acknowledged", "read replies"},
    [EXO_QUOTA_LENT_BYTES] = {"lent_bytes",
                              "bytes of objects that this process has not acknowledged",
                              "read replies"},
    [EXO_QUOTA_MONITORS] = {"monitors", "monitors and links of this process", "drop some of them"},
    [EXO_QUOTA_REFERENCES] = {"references", "references to actors of that process",
                              "use fewer of its actors, or have it connect anew"},
};

const exo_quotas exo_quotas_default = {.most = {[EXO_QUOTA_NODES] = 16,
                                                [EXO_QUOTA_JOBS] = 16,
                                                [EXO_QUOTA_ACTORS] = 100000,
                                                [EXO_QUOTA_NAMES] = 50000,
                                                [EXO_QUOTA_SPAWNS] = 4096,
                                                [EXO_QUOTA_FINDS] = 4096,
                                                [EXO_QUOTA_LOGS] = 16,
                                                [EXO_QUOTA_WAITING] = 65536,
                                                [EXO_QUOTA_WAITING_BYTES] = 16 << 20,
                                                [EXO_QUOTA_LENT] = 4096,
                                                [EXO_QUOTA_LENT_BYTES] = 256 << 20,
                                                [EXO_QUOTA_MONITORS] = 16384,
                                                [EXO_QUOTA_REFERENCES] = 131072}};

const char *
exo_quota_name(exo_quota quota)
{
    return texts[quota].name;
}

exo_status
exo_quota_check(const exo_quotas *quotas, exo_quota quota, uint64_t held, uint64_t count,
                exo_err *err)
{
    uint64_t most = (quotas ? quotas : &exo_quotas_default)->most[quota];
    if (count <= most && held <= most - count)
        return EXO_OK;
    return exo_fail(err, EXO_FULL,
                    "the quota '%s' is used up: there are %" PRIu64 " %s, of %" PRIu64
                    " at most, and %" PRIu64 " more were asked for; %s (docs/security.md)",
                    texts[quota].name, held, texts[quota].what, most, count, texts[quota].remedy);
}

exo_status
exo_account_take(exo_accounts *accounts, uint64_t peer, exo_quota quota, uint64_t count,
                 exo_err *err)
{
    exo_account *account = NULL;
    HASH_FIND(hh, accounts->by_peer, &peer, sizeof peer, account);
    exo_status st = peer ? exo_quota_check(accounts->quotas, quota,
                                           account ? account->held[quota] : 0, count, err)
                         : EXO_OK;
    if (st != EXO_OK)
        return st;
    if (!account) {
        if (!(account = exo_calloc(1, sizeof *account)))
            return exo_fail(err, EXO_NOMEM, "no memory for the account of a process");
        account->peer = peer;
        account->number = 2 + accounts->made++;
        HASH_ADD(hh, accounts->by_peer, peer, sizeof account->peer, account);
    }
    account->held[quota] += count;
    return EXO_OK;
}

void
exo_account_give(exo_accounts *accounts, uint64_t peer, exo_quota quota, uint64_t count)
{
    exo_account *account = NULL;
    HASH_FIND(hh, accounts->by_peer, &peer, sizeof peer, account);
    assert(account && account->held[quota] >= count);
    account->held[quota] -= count;
    for (int q = 0; q < EXO_QUOTA_HEAD; q++)
        if (account->held[q])
            return;
    HASH_DEL(accounts->by_peer, account);
    exo_free(account->name);
    exo_free(account);
}

void
exo_account_name(exo_accounts *accounts, uint64_t peer, const char *name)
{
    exo_account *account = NULL;
    if (!peer || !name[0])
        return;
    HASH_FIND(hh, accounts->by_peer, &peer, sizeof peer, account);
    if (account && !account->name)
        account->name = exo_strdup(name); /* without memory the account stays unnamed */
}

const exo_account *
exo_account_of(const exo_accounts *accounts, uint64_t peer)
{
    exo_account *account = NULL;
    HASH_FIND(hh, accounts->by_peer, &peer, sizeof peer, account);
    return account;
}

uint64_t
exo_account_number(const exo_accounts *accounts, uint64_t peer)
{
    const exo_account *account = exo_account_of(accounts, peer);
    return account ? account->number : 1;
}

void
exo_accounts_release(exo_accounts *accounts)
{
    exo_account *account, *next;
    HASH_ITER (hh, accounts->by_peer, account, next) {
        HASH_DEL(accounts->by_peer, account);
        exo_free(account->name);
        exo_free(account);
    }
}
