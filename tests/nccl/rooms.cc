/* Rooms of the NCCL of the tests, in which the members of a communicator meet: files that their
 * processes map. EXO_NCCL_ROOMS names the folder, /dev/shm unless given. State: a room's communicators
 * own it. Read next: state.h. */
#include "nccl/state.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

std::string
nccl_emulated::folder(void)
{
    const char *named = getenv("EXO_NCCL_ROOMS");
    return named && *named ? named : "/dev/shm";
}

room::room(const std::string &name, size_t members) : size(members)
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    char text[32];
    for (const char c : name)
        hash = (hash ^ static_cast<unsigned char>(c)) * UINT64_C(1099511628211);
    snprintf(text, sizeof text, "/nccl-room-%016llx", static_cast<unsigned long long>(hash));
    path = folder() + text;
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    forbid(members < 1 || members > MOST_MEMBERS, "a communicator of this size");
    forbid(file < 0 || ftruncate(file, sizeof(board)) != 0, "no room: see EXO_NCCL_ROOMS");
    void *memory = mmap(NULL, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    forbid(memory == MAP_FAILED, "no memory for a room");
    at = static_cast<board *>(memory);
    at->living++;
}

room::~room()
{
    if (--at->living == 0) {
        unlink(path.c_str());
        for (size_t r = 0; r < size; r++)
            unlink(data(r).c_str());
    }
    munmap(at, sizeof *at);
}

size_t
room::count(std::atomic<uint32_t> seat::*what) const
{
    size_t number = 0;
    for (size_t r = 0; r < size; r++)
        number += (at->seats[r].*what).load();
    return number;
}

bool
room::all(std::atomic<uint64_t> seat::*what, uint64_t least) const
{
    bool all = true;
    for (size_t r = 0; r < size; r++)
        all = all && (at->seats[r].*what).load() >= least;
    return all;
}

/* The file of what a member sends. */
std::string
room::data(size_t rank) const
{
    return path + "-" + std::to_string(rank);
}
