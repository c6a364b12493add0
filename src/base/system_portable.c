/* A system of which little is known but POSIX, and Linux in tests of that: see system.h. */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/system.h"
#include "base/system_posix.h"
#include "base/system_sockets.h"

void skv_system_quiet_socket(int fd)
{
    (void)fd;
}

int skv_system_send_flags(void)
{
    return MSG_NOSIGNAL | MSG_DONTWAIT;
}

bool skv_socket_queued(int fd, size_t *n_bytes)
{
    (void)fd;
    (void)n_bytes;
    return false;
}

struct timespec skv_file_modified(const struct stat *info)
{
    return info->st_mtim;
}

int skv_file_sync(int fd)
{
    return fsync(fd);
}

bool skv_random_fill(void *out, size_t n_bytes)
{
    const int source = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    const bool drawn = source >= 0 && read(source, out, n_bytes) == (ssize_t)n_bytes;
    if (source >= 0) (void)close(source);
    return drawn;
}

size_t skv_processors_fast(void)
{
    return SIZE_MAX;
}

void skv_thread_computes(void)
{
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

size_t skv_memory_peak(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (size_t)usage.ru_maxrss * 1024 : 0;
}

size_t skv_address_space_used(void)
{
    return SIZE_MAX;
}

void skv_heap_bound(bool is_narrow)
{
    (void)is_narrow;
}

void skv_heap_trim(void)
{
}

int skv_thread_signal_number(void)
{
    return SIGUSR2;
}

size_t skv_threads_list(long *ids, size_t n_max)
{
    (void)ids;
    (void)n_max;
    return 0;
}

void skv_thread_signal(long id, int which)
{
    (void)id;
    (void)which;
}

void skv_stack_prepare(void)
{
}

void skv_stack_write(int fd)
{
    (void)fd;
}
