/* The functions that are the same on all systems: see system.h. */
#include "base/system.h"

#include <stdio.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include "base/size.h"

void skv_system_name(char *out, size_t n)
{
    struct utsname name;
    if (uname(&name) >= 0) {
        (void)snprintf(out, n, "%s %s %s", name.sysname, name.release, name.machine);
    } else {
        (void)snprintf(out, n, "unknown");
    }
}

uint64_t skv_clock_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

struct timespec skv_clock_in(uint64_t ns)
{
    const uint64_t end = skv_clock_ns() + ns;
    return (struct timespec){.tv_sec = (time_t)(end / 1000000000u),
                             .tv_nsec = (long)(end % 1000000000u)};
}

size_t skv_processors_allowed(void)
{
    const size_t affinity = skv_processors_affinity(pthread_self());
    return skv_min_size(skv_min_size(affinity, skv_processors_fast()),
                        skv_processors_of_groups(""));
}

size_t skv_address_space_left(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
    const size_t used = skv_address_space_used(), most = (size_t)limit.rlim_cur;
    if (used == SIZE_MAX) return most;
    return most > used ? most - used : 0;
}

const char *skv_memory_limit(size_t n_bytes)
{
    size_t left = skv_address_space_left();
    return left < SIZE_MAX && left <= n_bytes ? " (ulimit -v)" : "";
}

size_t skv_memory_available(void)
{
    size_t machine = skv_min_size(skv_memory_free(), skv_address_space_left());
    return skv_min_size(machine, skv_memory_of_groups("/proc/self/cgroup", "/sys/fs/cgroup"));
}
