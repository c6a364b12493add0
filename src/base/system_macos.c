/* macOS: see system.h. Compiled and linked against Apple's headers, and never run. */
#include <execinfo.h>
#include <fcntl.h>
#include <mach/mach.h>
#include <malloc/malloc.h>
#include <pthread/qos.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysctl.h>
#include <unistd.h>

#include "base/system.h"
#include "base/system_posix.h"
#include "base/system_sockets.h"

const char *skv_system_ways(void)
{
    return "macos";
}

/* ---- sockets, files ---- */

void skv_system_quiet_socket(int fd)
{
    const int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
}

int skv_system_send_flags(void)
{
    return MSG_DONTWAIT;
}

bool skv_socket_queued(int fd, size_t *n_bytes)
{
    int n = 0;
    socklen_t size = sizeof n;
    if (getsockopt(fd, SOL_SOCKET, SO_NWRITE, &n, &size) != 0) return false;
    *n_bytes = n > 0 ? (size_t)n : 0;
    return true;
}

struct timespec skv_file_modified(const struct stat *info)
{
    return info->st_mtimespec;
}

/* fsync leaves the bytes in the disk's own cache; some file systems know nothing else. */
int skv_file_sync(int fd)
{
    return fcntl(fd, F_FULLFSYNC) == 0 ? 0 : fsync(fd);
}

bool skv_random_fill(void *out, size_t n_bytes)
{
    arc4random_buf(out, n_bytes);
    return true;
}

/* ---- processors ---- */

/* A number of the system, of 32 or 64 bits; `missing` where it knows none of this name. */
static uint64_t number_of(const char *name, uint64_t missing)
{
    uint64_t value = 0; /* little-endian: a shorter number fills its low half */
    size_t n = sizeof value;
    return sysctlbyname(name, &value, &n, NULL, 0) == 0 ? value : missing;
}

/* Threads that share the work of a step evenly would wait for the efficient cores. */
size_t skv_processors_fast(void)
{
    const uint64_t n = number_of("hw.perflevel0.logicalcpu", 0);
    return n > 0 ? (size_t)n : SIZE_MAX;
}

/* There is no affinity: a quality-of-service class chooses the kind of core for a thread. */
void skv_thread_computes(void)
{
    (void)pthread_set_qos_class_self_np(QOS_CLASS_USER_INITIATED, 0);
}

/* Names that Apple documents; on Intel's processors there are none of them. */
unsigned skv_processor_features(void)
{
    return (number_of("hw.optional.arm.FEAT_DotProd", 0) ? SKV_SYSTEM_DOTPROD : 0u) |
           (number_of("hw.optional.arm.FEAT_I8MM", 0) ? SKV_SYSTEM_I8MM : 0u) |
           (number_of("hw.optional.arm.FEAT_BF16", 0) ? SKV_SYSTEM_BF16 : 0u);
}

bool skv_processor_name(char *out, size_t n)
{
    return n > 0 && sysctlbyname("machdep.cpu.brand_string", out, &n, NULL, 0) == 0;
}

double skv_processors_load(void)
{
    double load;
    return getloadavg(&load, 1) == 1 ? load : -1;
}

/* ---- memory ---- */

/* Pages have 16 KiB, and there is no hint for larger ones. */
void *skv_pages_map(size_t n_bytes)
{
    void *block =
        mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
    return block == MAP_FAILED ? NULL : block;
}

size_t skv_memory_total(void)
{
    return (size_t)number_of("hw.memsize", 0);
}

/* Counts free pages, and pages with data that can be read again. */
size_t skv_memory_free(void)
{
    vm_statistics64_data_t pages;
    mach_msg_type_number_t n = HOST_VM_INFO64_COUNT;
    const mach_port_t host = mach_host_self();
    const kern_return_t code = host_statistics64(host, HOST_VM_INFO64, (host_info64_t)&pages, &n);
    (void)mach_port_deallocate(mach_task_self(), host);
    if (code != KERN_SUCCESS) return SIZE_MAX;
    const size_t n_pages = (size_t)pages.free_count + pages.inactive_count + pages.purgeable_count;
    return n_pages * (size_t)sysconf(_SC_PAGESIZE);
}

size_t skv_memory_peak(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (size_t)usage.ru_maxrss : 0; /* bytes here */
}

/* Gigabytes of every process are the system's own, so a limit could not mean them. */
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
    (void)malloc_zone_pressure_relief(NULL, 0);
}

/* ---- stacks of threads ---- */

int skv_thread_signal_number(void)
{
    return SIGUSR2;
}

size_t skv_threads_list(long *ids, size_t n_max)
{
    thread_act_array_t threads;
    mach_msg_type_number_t n_threads;
    size_t n = 0;
    if (task_threads(mach_task_self(), &threads, &n_threads) != KERN_SUCCESS) return 0;
    for (mach_msg_type_number_t i = 0; i < n_threads; i++) {
        if (n < n_max) ids[n++] = (long)threads[i];
        (void)mach_port_deallocate(mach_task_self(), threads[i]);
    }
    (void)vm_deallocate(mach_task_self(), (vm_address_t)threads, n_threads * sizeof *threads);
    return n;
}

void skv_thread_signal(long id, int which)
{
    const pthread_t thread = pthread_from_mach_thread_np((mach_port_t)id);
    if (thread) (void)pthread_kill(thread, which);
}

void skv_stack_prepare(void)
{
    void *frame[1];
    (void)backtrace(frame, 1); /* loads the unwinder */
}

void skv_stack_write(int fd)
{
    void *frames[48];
    backtrace_symbols_fd(frames, backtrace(frames, 48), fd);
}
