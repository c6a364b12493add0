/* Linux: see system.h. */
#define _GNU_SOURCE /* accept4, F_OFD_SETLK, getrandom, MADV_HUGEPAGE, affinity, POLLRDHUP */
#include "base/system.h"

#include <dirent.h>
#include <execinfo.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <malloc.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/size.h"
#include "base/system_sockets.h"

enum { LINE_BYTES = 512 };

const char *skv_system_ways(void)
{
    return "linux";
}

/* ---- time ---- */

void skv_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(cond, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

int skv_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *end)
{
    return pthread_cond_timedwait(cond, mutex, end);
}

/* ---- waking a thread that polls ---- */

size_t skv_wake_files(void)
{
    return 1;
}

bool skv_wake_open(skv_wake *wake)
{
    wake->fd = wake->ringer = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return wake->fd >= 0;
}

void skv_wake_ring(const skv_wake *wake)
{
    const uint64_t one = 1;
    (void)!write(wake->ringer, &one, sizeof one);
}

void skv_wake_clear(const skv_wake *wake)
{
    uint64_t count;
    (void)!read(wake->fd, &count, sizeof count);
}

void skv_wake_close(skv_wake *wake)
{
    if (wake->fd >= 0) (void)close(wake->fd);
    *wake = (skv_wake){-1, -1};
}

/* ---- sockets ---- */

int skv_socket_open(int family, int type, bool waits)
{
    return socket(family, type | SOCK_CLOEXEC | (waits ? 0 : SOCK_NONBLOCK), 0);
}

int skv_socket_accept(int fd, struct sockaddr_storage *address)
{
    socklen_t n = sizeof *address;
    return accept4(fd, (struct sockaddr *)address, &n, SOCK_CLOEXEC);
}

ssize_t skv_socket_send(int fd, const void *data, size_t n)
{
    return send(fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t skv_socket_send_parts(int fd, struct iovec *parts, size_t n_parts)
{
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = n_parts};
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool skv_socket_queued(int fd, size_t *n_bytes)
{
    int n = 0;
    const bool told = ioctl(fd, SIOCOUTQ, &n) == 0;
    *n_bytes = told && n > 0 ? (size_t)n : 0;
    return true;
}

bool skv_socket_has_left(int fd, const skv_wake *wake, int wait_ms)
{
    struct pollfd fds[2] = {{.fd = fd, .events = POLLRDHUP},
                            {.fd = wake ? wake->fd : -1, .events = POLLIN}};
    (void)poll(fds, wake ? 2 : 1, wait_ms);
    return fds[0].revents != 0;
}

/* ---- files ---- */

struct timespec skv_file_modified(const struct stat *info)
{
    return info->st_mtim;
}

int skv_file_sync(int fd)
{
    return fsync(fd);
}

bool skv_file_lock(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

int skv_file_open_again(int fd)
{
    char path[32];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
}

size_t skv_files_open(void)
{
    size_t n = 0;
    DIR *files = opendir("/proc/self/fd");
    while (files && readdir(files)) n++;
    if (files) (void)closedir(files);
    return n;
}

bool skv_random_fill(void *out, size_t n_bytes)
{
    return getrandom(out, n_bytes, GRND_NONBLOCK) == (ssize_t)n_bytes;
}

/* ---- processors ---- */

size_t skv_processors_affinity(pthread_t thread)
{
    cpu_set_t sets[8]; /* one holds 1024 processors, and the call fails when they do not fit */
    if (pthread_getaffinity_np(thread, sizeof sets, sets) != 0) return 1;
    return skv_max_size(1, (size_t)CPU_COUNT_S(sizeof sets, sets));
}

void skv_processors_get(skv_processor_set *out)
{
    (void)skv_thread_processors(pthread_self(), out);
}

bool skv_thread_processors(pthread_t thread, skv_processor_set *out)
{
    cpu_set_t its;
    CPU_ZERO(&its);
    *out = (skv_processor_set){0};
    if (pthread_getaffinity_np(thread, sizeof its, &its) != 0) return false;
    for (size_t i = 0; i < SKV_PROCESSORS_MAX; i++) {
        if (CPU_ISSET(i, &its)) out->bits[i / 64] |= UINT64_C(1) << i % 64;
    }
    return true;
}

bool skv_thread_bind(pthread_t thread, const skv_processor_set *processors)
{
    cpu_set_t its;
    CPU_ZERO(&its);
    for (size_t i = 0; i < SKV_PROCESSORS_MAX; i++) {
        if (processors->bits[i / 64] >> i % 64 & 1) CPU_SET(i, &its);
    }
    return pthread_setaffinity_np(thread, sizeof its, &its) == 0;
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
#if defined(__x86_64__)
    const long request = 0x1023, tile_data = 18; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    return syscall(SYS_arch_prctl, request, tile_data) == 0 ? SKV_SYSTEM_TILES : 0;
#elif defined(__aarch64__)
    const unsigned long asimddp = 1ul << 20;                /* HWCAP_ASIMDDP */
    const unsigned long i8mm = 1ul << 13, bf16 = 1ul << 14; /* HWCAP2_I8MM, HWCAP2_BF16 */
    const unsigned long hwcap = getauxval(AT_HWCAP), hwcap2 = getauxval(AT_HWCAP2);
    return (hwcap & asimddp ? SKV_SYSTEM_DOTPROD : 0u) | (hwcap2 & i8mm ? SKV_SYSTEM_I8MM : 0u) |
           (hwcap2 & bf16 ? SKV_SYSTEM_BF16 : 0u);
#else
    return 0;
#endif
}

/* Copies the text after `key` and a colon from the first line that begins with it. */
static bool read_field(const char *path, const char *key, char out[LINE_BYTES])
{
    bool found = false;
    FILE *file = fopen(path, "r");
    while (file && !found && fgets(out, LINE_BYTES, file)) {
        const char *colon = strchr(out, ':');
        found = strncmp(out, key, strlen(key)) == 0 && colon;
        if (!found) continue;
        const char *value = colon + 1 + strspn(colon + 1, " \t");
        memmove(out, value, strlen(value) + 1);
        out[strcspn(out, "\n")] = 0;
    }
    if (file) (void)fclose(file);
    return found;
}

bool skv_processor_name(char *out, size_t n)
{
    char name[LINE_BYTES];
    if (!read_field("/proc/cpuinfo", "model name", name) || !name[0]) return false;
    (void)snprintf(out, n, "%.*s", LINE_BYTES - 1, name);
    return true;
}

double skv_processors_load(void)
{
    double load;
    return getloadavg(&load, 1) == 1 ? load : -1;
}

/* ---- memory ---- */

void *skv_pages_map(size_t n_bytes)
{
    void *block = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) return NULL;
    /* Huge pages save page-table walks in the weights and the KV cache. Only a hint. */
    (void)madvise(block, n_bytes, MADV_HUGEPAGE);
    return block;
}

bool skv_pages_place(void *at, size_t n_bytes, unsigned node)
{
    enum { PREFERRED = 1, BITS = 8 * sizeof(unsigned long) }; /* MPOL_PREFERRED */
    unsigned long nodes[SKV_PROCESSORS_MAX / BITS] = {0};
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)at / page * page;
    if (node >= SKV_PROCESSORS_MAX) return false;
    nodes[node / BITS] = 1UL << node % BITS;
    return syscall(SYS_mbind, first, (uintptr_t)at + n_bytes - first, PREFERRED, nodes,
                   (unsigned long)SKV_PROCESSORS_MAX, 0) == 0;
}

bool skv_memory_has_policy(void)
{
    int policy = 0; /* MPOL_DEFAULT */
    return syscall(SYS_get_mempolicy, &policy, NULL, 0, NULL, 0) == 0 && policy != 0;
}

/* A line "NAME: N kB" of /proc/meminfo, in bytes; 0: none. */
static size_t meminfo(const char *name)
{
    char line[LINE_BYTES];
    size_t n_bytes;
    if (!read_field("/proc/meminfo", name, line)) return 0;
    return skv_size_mul(strtoull(line, NULL, 10), 1024, &n_bytes) ? n_bytes : 0;
}

size_t skv_memory_total(void)
{
    return meminfo("MemTotal:");
}

size_t skv_memory_free(void)
{
    const size_t n_bytes = meminfo("MemAvailable:");
    return n_bytes > 0 ? n_bytes : SIZE_MAX;
}

size_t skv_memory_peak(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (size_t)usage.ru_maxrss * 1024 : 0;
}

size_t skv_address_space_used(void)
{
    size_t used = SIZE_MAX;
    char line[LINE_BYTES];
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fgets(line, sizeof line, file) &&
        !skv_size_mul(strtoull(line, NULL, 10), (size_t)sysconf(_SC_PAGESIZE), &used)) {
        used = SIZE_MAX;
    }
    if (file) (void)fclose(file);
    return used;
}

/* Each arena but the first takes 64 MiB of address space. */
void skv_heap_bound(bool is_narrow)
{
#ifdef __GLIBC__
    (void)mallopt(M_ARENA_MAX, is_narrow ? 1 : 4);
    (void)mallopt(M_MMAP_THRESHOLD, 64 << 10);
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 20);
#else
    (void)is_narrow;
#endif
}

void skv_heap_trim(void)
{
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}

/* ---- stacks of threads ---- */

int skv_thread_signal_number(void)
{
    return SIGRTMIN + 4;
}

size_t skv_threads_list(long *ids, size_t n_max)
{
    size_t n = 0;
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *task;
    while (tasks && n < n_max && (task = readdir(tasks))) {
        const long id = strtol(task->d_name, NULL, 10);
        if (id > 0) ids[n++] = id;
    }
    if (tasks) (void)closedir(tasks);
    return n;
}

void skv_thread_signal(long id, int which)
{
    (void)syscall(SYS_tgkill, (long)getpid(), id, (long)which);
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
