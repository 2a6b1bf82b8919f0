/* thread_pool.h - the artifact's own threads. Not public. */
#ifndef INGOT_THREAD_POOL_H
#define INGOT_THREAD_POOL_H

#include "ingot.h"

#pragma GCC visibility push(hidden)

typedef struct ingot_pool ingot_pool;

/* A pool of `threads` >= 1 threads; the caller of ingot_pool_run is one of them. NULL: out of memory or threads. */
ingot_pool *ingot_pool_create(int32_t threads);

/* Stops and joins the workers: no code of this library runs in another thread afterwards, so it may be unloaded. */
void ingot_pool_destroy(ingot_pool *pool);

/* Covers [0, tasks) with one contiguous range per thread, the same ranges at every call, a part of one at a time; threads
 * that are through take parts of others. Returns when all of them are done.
 * Signature of ingot_thread_pool.run. One caller at a time. */
void ingot_pool_run(void *pool, ingot_task task, void *context, int64_t tasks);

/* Nanoseconds of a clock that only goes forward. */
int64_t ingot_now(void);

/* CPUs this process may use: the affinity mask, lowered to the cgroup quota (v2 or v1). At least 1. */
int32_t ingot_cpu_count(void);

/* CPUs that the quota of the cgroups in `membership` (/proc/self/cgroup) under `root` (/sys/fs/cgroup) allows, at least 1;
 * 0 when there is no quota. */
int32_t ingot_cgroup_cpus(const char *membership, const char *root);

#pragma GCC visibility pop

#endif
