/* What FreeBSD and the portable ways have in common: POSIX alone, and nothing told of the process
 * itself. See system.h. */
#include <signal.h>
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

struct timespec skv_file_modified(const struct stat *info)
{
    return info->st_mtim;
}

int skv_file_sync(int fd)
{
    return fsync(fd);
}

size_t skv_processors_fast(void)
{
    return SIZE_MAX;
}

void skv_thread_computes(void)
{
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

/* ---- where threads stand: not told ---- */

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
