/* FreeBSD, beside system_bare.c: see system.h. Compiled against its headers, and never run. */
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/filio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sysctl.h>
#include <unistd.h>

#include "base/system.h"
#include "base/system_sockets.h"

const char *skv_system_ways(void)
{
    return "freebsd";
}

/* ---- sockets, files ---- */

bool skv_socket_queued(int fd, size_t *n_bytes)
{
    int n = 0;
    if (ioctl(fd, FIONWRITE, &n) != 0) return false;
    *n_bytes = n > 0 ? (size_t)n : 0;
    return true;
}

bool skv_random_fill(void *out, size_t n_bytes)
{
    arc4random_buf(out, n_bytes);
    return true;
}

/* ---- processors ---- */

unsigned skv_processor_features(void)
{
#if defined(__aarch64__)
    unsigned long hwcap = 0, hwcap2 = 0; /* with Linux's bits */
    (void)elf_aux_info(AT_HWCAP, &hwcap, sizeof hwcap);
    (void)elf_aux_info(AT_HWCAP2, &hwcap2, sizeof hwcap2);
    return (hwcap & 1ul << 20 ? SKV_SYSTEM_DOTPROD : 0u) |
           (hwcap2 & 1ul << 13 ? SKV_SYSTEM_I8MM : 0u) |
           (hwcap2 & 1ul << 14 ? SKV_SYSTEM_BF16 : 0u);
#else
    return 0;
#endif
}

bool skv_processor_name(char *out, size_t n)
{
    return n > 0 && sysctlbyname("hw.model", out, &n, NULL, 0) == 0;
}

double skv_processors_load(void)
{
    double load;
    return getloadavg(&load, 1) == 1 ? load : -1;
}

/* ---- memory ---- */

/* Superpages are used automatically. */
void *skv_pages_map(size_t n_bytes)
{
    void *block = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    return block == MAP_FAILED ? NULL : block;
}

/* A number of the system, of 32 or 64 bits; `missing` where it knows none of this name. */
static uint64_t number_of(const char *name, uint64_t missing)
{
    uint64_t value = 0; /* little-endian: a shorter number fills its low half */
    size_t n = sizeof value;
    return sysctlbyname(name, &value, &n, NULL, 0) == 0 ? value : missing;
}

size_t skv_memory_total(void)
{
    return (size_t)number_of("hw.physmem", 0);
}

size_t skv_memory_free(void)
{
    const uint64_t n_free = number_of("vm.stats.vm.v_free_count", UINT64_MAX);
    if (n_free == UINT64_MAX) return SIZE_MAX;
    const uint64_t n_inactive = number_of("vm.stats.vm.v_inactive_count", 0);
    return (size_t)(n_free + n_inactive) * (size_t)sysconf(_SC_PAGESIZE);
}
