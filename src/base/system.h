/*
 * The one door to the operating system (sockets are in system_sockets.h): operations that differ
 * between Linux, macOS and FreeBSD, system information and limits. The build chooses the
 * implementation (SKV_SYSTEM in CMakeLists.txt): system.c and system_groups.c everywhere,
 * system_linux.c on Linux, and system_posix.c elsewhere, with system_macos.c, or with system_bare.c
 * and one of system_freebsd.c and system_portable.c. tools/tidy.py has the list of headers that no
 * other file may include.
 */
#ifndef SKV_BASE_SYSTEM_H
#define SKV_BASE_SYSTEM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct stat;

/** "linux", "macos", "freebsd" or "portable": the files behind the door. */
const char *skv_system_ways(void);
/** The system's name, its version and its kind of processor, cut to n bytes with their end. */
void skv_system_name(char *out, size_t n);

/* ---- time ---- */

/** Nanoseconds since some fixed moment; never runs backwards. */
uint64_t skv_clock_ns(void);
/** Returns the time that is ns nanoseconds from now, for skv_cond_wait_until. */
struct timespec skv_clock_in(uint64_t ns);
/** Initialises a condition for waits with deadlines by this clock, which setting the time of day
 * does not affect. */
void skv_cond_init(pthread_cond_t *cond);
/** Waits until the condition is signalled or `end` has passed: ETIMEDOUT then, else 0. May return 0
 * early, as every wait for a condition. The condition is one of skv_cond_init. */
int skv_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *end);

/* ---- files ---- */

struct timespec skv_file_modified(const struct stat *info);
/** Until the bytes of a file are on the disk; 0, or -1 with errno. */
int skv_file_sync(int fd);
/** Takes the file's lock for this descriptor, without waiting; false: another one has it. */
bool skv_file_lock(int fd);
/** Opens a terminal (on Linux whatever there is) once more, for writing without waiting; -1: it
 * cannot be. */
int skv_file_open_again(int fd);
/** Descriptors that are open now. */
size_t skv_files_open(void);
/** False: the system has none to give now. */
bool skv_random_fill(void *out, size_t n_bytes);

/* ---- processors ---- */

/** Processors that a thread may run on; at least 1. */
size_t skv_processors_affinity(pthread_t thread);

/** Which processors the calling thread may run on, bit by bit. */
enum { SKV_PROCESSORS_MAX = 1024 };
typedef struct skv_processor_set {
    uint64_t bits[SKV_PROCESSORS_MAX / 64];
} skv_processor_set;
void skv_processors_get(skv_processor_set *out);
/** The same for any thread; false: the system does not tell. */
bool skv_thread_processors(pthread_t thread, skv_processor_set *out);
/** The thread runs on these processors alone from here on; false: the system does not do that. */
bool skv_thread_bind(pthread_t thread, const skv_processor_set *processors);

/**
 * Returns the processor time that control groups allow, in processors, rounded up; SIZE_MAX: no
 * limit. Reads cpu.max (v2), and cpu.cfs_quota_us and cpu.cfs_period_us (v1), of the groups in
 * /proc/self/cgroup and /proc/self/mountinfo. An unreadable file sets no limit. root: "" for the
 * system's own files, else the folder that holds proc/ and the mounted groups.
 */
size_t skv_processors_of_groups(const char *root);
/** Memory nodes, of Linux's files below `root`; 1 where nothing tells. */
size_t skv_memory_nodes(const char *root);

/** The memory nodes with processors that a thread may use. */
enum { SKV_NODES_MAX = 16 };
typedef struct skv_nodes {
    size_t n; /* 1 also where nothing tells, or there are more than SKV_NODES_MAX */
    unsigned number[SKV_NODES_MAX];              /* the system's */
    skv_processor_set processors[SKV_NODES_MAX]; /* of `allowed`, on each */
    size_t n_processors[SKV_NODES_MAX];
} skv_nodes;
/** Finds them in Linux's files below `root`. With n = 1 the other fields are not to be used. */
void skv_nodes_find(const char *root, const skv_processor_set *allowed, skv_nodes *out);

/** Processors of the fast kind, where a system has slower ones too; else SIZE_MAX. */
size_t skv_processors_fast(void);
/** The default number of threads: the smallest of the three; at least 1. */
size_t skv_processors_allowed(void);
/** Called by a thread that will compute: the system places it on fast processors. */
void skv_thread_computes(void);

/** Features that a program cannot detect from the processor alone: AArch64 instructions beyond the
 * base set, and permission to use AMX tiles. */
enum {
    SKV_SYSTEM_DOTPROD = 1,
    SKV_SYSTEM_I8MM = 2,
    SKV_SYSTEM_BF16 = 4,
    SKV_SYSTEM_TILES = 8,
};
unsigned skv_processor_features(void);
/** The processor's name, cut to n bytes with its end; false: the system has none. */
bool skv_processor_name(char *out, size_t n);
/** Returns the number of runnable threads in the last minute; below 0: unknown. */
double skv_processors_load(void);

/* ---- memory ---- */

/** Zeroed pages that become resident when touched, in huge pages where the system has a hint for
 * them; NULL: there is no room. */
void *skv_pages_map(size_t n_bytes);
/** The system's pages of a range, and those that it begins and ends in, lie on a memory node when
 * they are first touched, while it has room. False: the system does not do that, as many containers
 * do not; with n_bytes 0 this is all that is asked. */
bool skv_pages_place(void *at, size_t n_bytes, unsigned node);
/** Whether the calling thread was told where its memory is to lie, as by numactl --interleave. */
bool skv_memory_has_policy(void);
/** Returns the machine's memory in bytes; 0: unknown. */
size_t skv_memory_total(void);
/** Returns the machine's free memory, ignoring limits; SIZE_MAX: unknown. */
size_t skv_memory_free(void);
/** Bytes of memory this process may still take (the limits of the machine, of its control groups
 * and of its address space). */
size_t skv_memory_available(void);
/** Returns the peak resident size of this process, in bytes; 0: unknown. */
size_t skv_memory_peak(void);
/** Returns the size of this process's mappings; SIZE_MAX: unknown. */
size_t skv_address_space_used(void);
/** Returns the address space that `ulimit -v` leaves; all mappings count, files and stacks too.
 * SIZE_MAX: no limit. */
size_t skv_address_space_left(void);
enum { SKV_STACK_BYTES = 16 << 20 }; /* approximate shortage when a thread cannot be started */
/** For the end of a message about memory: " (ulimit -v)" where a limit of the address space leaves
 * no more than n_bytes, else "". */
const char *skv_memory_limit(size_t n_bytes);
/** Returns the memory that the limits of control groups leave, in bytes. `membership` is a file
 * like /proc/self/cgroup, `root` the mount point of the groups. SIZE_MAX: no limit. */
size_t skv_memory_of_groups(const char *membership, const char *root);
/** Makes the allocator return freed memory to the system and use few arenas (one if is_narrow),
 * where supported. */
void skv_heap_bound(bool is_narrow);
/** Makes the allocator return the free memory between its blocks, where supported. */
void skv_heap_trim(void);

/* ---- stacks of threads ---- */

/** Returns the signal that these functions use. */
int skv_thread_signal_number(void);
/** Lists up to n_max threads of this process; none if unknown. */
size_t skv_threads_list(long *ids, size_t n_max);
void skv_thread_signal(long id, int which);
/** Preloads the code that skv_stack_write needs. */
void skv_stack_prepare(void);
/** Writes the calling thread's stack, also in a signal handler: takes no memory and waits for no
 * lock. */
void skv_stack_write(int fd);

#endif
