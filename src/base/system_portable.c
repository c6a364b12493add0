/* A system of which little is known but POSIX, and Linux in tests of that, beside system_bare.c:
 * see system.h. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/system.h"
#include "base/system_sockets.h"

const char *skv_system_ways(void)
{
    return "portable";
}

bool skv_socket_queued(int fd, size_t *n_bytes)
{
    (void)fd;
    (void)n_bytes;
    return false;
}

bool skv_random_fill(void *out, size_t n_bytes)
{
    const int source = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    const bool drawn = source >= 0 && read(source, out, n_bytes) == (ssize_t)n_bytes;
    if (source >= 0) (void)close(source);
    return drawn;
}

unsigned skv_processor_features(void)
{
    return 0;
}

bool skv_processor_name(char *out, size_t n)
{
    (void)out;
    (void)n;
    return false;
}

double skv_processors_load(void)
{
    return -1;
}

void *skv_pages_map(size_t n_bytes)
{
    const int zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
    if (zero < 0) return NULL;
    void *block = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, zero, 0);
    (void)close(zero);
    return block == MAP_FAILED ? NULL : block;
}

size_t skv_memory_total(void)
{
    const long n_pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return n_pages > 0 && page > 0 ? (size_t)n_pages * (size_t)page : 0;
}

/* The memory that other processes use is unknown. */
size_t skv_memory_free(void)
{
    const size_t total = skv_memory_total();
    return total > 0 ? total : SIZE_MAX;
}
