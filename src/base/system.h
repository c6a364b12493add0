/*
 * What the system tells and allows this process: the time, processors and memory. Limits of
 * control groups are those of the process's group and of the groups around it.
 */
#ifndef SKV_BASE_SYSTEM_H
#define SKV_BASE_SYSTEM_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/** Nanoseconds since some fixed moment; never runs backwards. */
uint64_t skv_clock_ns(void);
/** The moment in so many nanoseconds, and a condition whose waits end by this clock: the time of
 * day may be set meanwhile. */
struct timespec skv_clock_in(uint64_t ns);
void skv_cond_init(pthread_cond_t *cond);

/** Processors that a thread may run on; at least 1. */
size_t skv_processors_affinity(pthread_t thread);

/**
 * Processors' worth of time that control groups allow, rounded up; SIZE_MAX: no limit. Reads
 * cpu.max (v2), and cpu.cfs_quota_us and cpu.cfs_period_us (v1), of the groups that
 * /proc/self/cgroup and /proc/self/mountinfo name. What cannot be read sets no limit. root: "" for
 * the system's own files, else the folder that holds proc/ and what is mounted.
 */
size_t skv_processors_of_groups(const char *root);

/** The default number of threads: the smaller of the two; at least 1. */
size_t skv_processors_allowed(void);

/** Bytes of memory this process may still take (the limits of the machine, of its control groups
 * and of its address space). */
size_t skv_memory_available(void);
/** What `ulimit -v` leaves: all that is mapped counts, files and stacks too. SIZE_MAX: no limit. */
size_t skv_address_space_left(void);
enum { SKV_STACK_BYTES = 16 << 20 }; /* about what a thread that cannot be started lacked */
/** For the end of a message about memory: " (ulimit -v)" where a limit of the address space leaves
 * no more than n_bytes, else "". */
const char *skv_memory_limit(size_t n_bytes);
/** What the limits of control groups leave, in bytes: `membership` is a file like
 * /proc/self/cgroup, `root` where the groups are mounted. SIZE_MAX: no limit. */
size_t skv_memory_of_groups(const char *membership, const char *root);

#endif
