/* thread_pool.c - fork and join with a static split.
 *
 * Every worker has a mailbox of its own, a ticket number on its own cache line. A launch writes the job once, then the
 * next ticket into the mailbox of each worker that takes part; a worker answers by copying the ticket to `finished`.
 * Waiting spins for SPIN_NS, which bridges the gap between two launches of a run, and then sleeps. A sleeper announces
 * itself before it looks at the word again, and the writer looks for sleepers after it wrote: one of the two always sees
 * the other (both sequentially consistent). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#define CACHE_LINE 128 /* two 64-byte lines: adjacent lines are prefetched in pairs */
#define SPIN_NS 80000
#define YIELD_NS 5000
#define SPINS_PER_CLOCK 32
#define STACK_BYTES (1 << 20)

typedef struct {
  uint32_t ticket;   /* written by the caller: work number `ticket` is waiting */
  uint32_t sleeping; /* written by the worker */
  char padding[CACHE_LINE - 2 * sizeof(uint32_t)];
  uint32_t finished; /* written by the worker: the last ticket it is done with */
  int32_t index;
  struct ingot_pool *pool;
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t wake;
} worker;

struct ingot_pool {
  ingot_task task;
  void *context;
  int64_t tasks;
  int32_t participants; /* threads that take part in this job, the caller included */
  int32_t stopping;
  int64_t spin_ns;
  int32_t worker_count;
  uint32_t caller_sleeping;
  pthread_mutex_t mutex;
  pthread_cond_t done;
  worker *workers;
  void *allocation;
};

int64_t ingot_now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__) || (defined(__ARM_ARCH) && __ARM_ARCH >= 7)
  __asm__ __volatile__("yield" ::: "memory");
#endif
}

/* Whether `word` became `value` within `limit` nanoseconds. After YIELD_NS the CPU is offered to others at every look:
 * on a busy machine the thread that is waited for may be queued behind this very loop. */
static int spin_until(const uint32_t *word, uint32_t value, int64_t limit) {
  int64_t start = limit > 0 ? ingot_now() : 0, waited = 0;
  do {
    for (int i = 0; i < SPINS_PER_CLOCK; i++) {
      if (__atomic_load_n(word, __ATOMIC_ACQUIRE) == value) return 1;
      relax();
    }
    if (waited > YIELD_NS) sched_yield();
    if (limit > 0) waited = ingot_now() - start;
  } while (waited < limit);
  return 0;
}

static void run_share(const struct ingot_pool *pool, int32_t thread) {
  int64_t share = pool->tasks / pool->participants, rest = pool->tasks % pool->participants;
  int64_t begin = share * thread + (thread < rest ? thread : rest);
  int64_t end = begin + share + (thread < rest ? 1 : 0);
  pool->task(pool->context, begin, end, thread);
}

static void await_ticket(worker *self, uint32_t ticket) {
  if (spin_until(&self->ticket, ticket, self->pool->spin_ns)) return;
  pthread_mutex_lock(&self->mutex);
  __atomic_store_n(&self->sleeping, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&self->ticket, __ATOMIC_SEQ_CST) != ticket) pthread_cond_wait(&self->wake, &self->mutex);
  __atomic_store_n(&self->sleeping, 0, __ATOMIC_SEQ_CST);
  pthread_mutex_unlock(&self->mutex);
}

static void post_ticket(worker *to) {
  __atomic_store_n(&to->ticket, to->ticket + 1, __ATOMIC_SEQ_CST);
  if (!__atomic_load_n(&to->sleeping, __ATOMIC_SEQ_CST)) return;
  pthread_mutex_lock(&to->mutex);
  pthread_cond_signal(&to->wake);
  pthread_mutex_unlock(&to->mutex);
}

static void finish_ticket(worker *self, uint32_t ticket) {
  struct ingot_pool *pool = self->pool;
  __atomic_store_n(&self->finished, ticket, __ATOMIC_SEQ_CST);
  if (!__atomic_load_n(&pool->caller_sleeping, __ATOMIC_SEQ_CST)) return;
  pthread_mutex_lock(&pool->mutex);
  pthread_cond_signal(&pool->done);
  pthread_mutex_unlock(&pool->mutex);
}

static void await_worker(struct ingot_pool *pool, const worker *of) {
  if (spin_until(&of->finished, of->ticket, pool->spin_ns)) return;
  pthread_mutex_lock(&pool->mutex);
  __atomic_store_n(&pool->caller_sleeping, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&of->finished, __ATOMIC_SEQ_CST) != of->ticket) pthread_cond_wait(&pool->done, &pool->mutex);
  __atomic_store_n(&pool->caller_sleeping, 0, __ATOMIC_SEQ_CST);
  pthread_mutex_unlock(&pool->mutex);
}

static void *worker_main(void *argument) {
  worker *self = argument;
#ifdef __linux__
  prctl(PR_SET_NAME, "ingot-worker", 0, 0, 0);
#endif
  for (uint32_t ticket = 1;; ticket++) {
    await_ticket(self, ticket);
    if (self->pool->stopping) return NULL;
    run_share(self->pool, self->index);
    finish_ticket(self, ticket);
  }
}

void ingot_pool_run(void *pool_pointer, ingot_task task, void *context, int64_t tasks) {
  struct ingot_pool *pool = pool_pointer;
  if (tasks <= 1 || pool->worker_count == 0) {
    if (tasks > 0) task(context, 0, tasks, 0);
    return;
  }
  pool->task = task;
  pool->context = context;
  pool->tasks = tasks;
  pool->participants = tasks <= pool->worker_count ? (int32_t)tasks : pool->worker_count + 1;
  for (int32_t i = 0; i < pool->participants - 1; i++) post_ticket(&pool->workers[i]);
  run_share(pool, 0);
  for (int32_t i = 0; i < pool->participants - 1; i++) await_worker(pool, &pool->workers[i]);
}

static int start_worker(struct ingot_pool *pool, int32_t index, const pthread_attr_t *attributes) {
  worker *self = &pool->workers[index];
  self->index = index + 1;
  self->pool = pool;
  pthread_mutex_init(&self->mutex, NULL);
  pthread_cond_init(&self->wake, NULL);
  return pthread_create(&self->thread, attributes, worker_main, self);
}

ingot_pool *ingot_pool_create(int32_t threads) {
  size_t stride = sizeof(worker), count = (size_t)(threads - 1);
  struct ingot_pool *pool = calloc(1, sizeof(*pool));
  if (!pool) return NULL;
  if (count && posix_memalign(&pool->allocation, CACHE_LINE, stride * count)) {
    free(pool);
    return NULL;
  }
  if (count) memset(pool->allocation, 0, stride * count);
  pool->workers = pool->allocation;
  /* With more threads than CPUs a spinning thread keeps the one it waits for from running. */
  pool->spin_ns = threads <= ingot_cpu_count() ? SPIN_NS : 0;
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->done, NULL);

  /* Signals belong to the host's threads: workers are created with all of them blocked. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  int failed = 0;
  for (int32_t i = 0; i < threads - 1 && !failed; i++) {
    failed = start_worker(pool, i, &attributes);
    if (!failed) pool->worker_count++;
  }
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (failed) {
    ingot_pool_destroy(pool);
    return NULL;
  }
  return pool;
}

void ingot_pool_destroy(ingot_pool *pool) {
  if (!pool) return;
  pool->stopping = 1;
  for (int32_t i = 0; i < pool->worker_count; i++) post_ticket(&pool->workers[i]);
  for (int32_t i = 0; i < pool->worker_count; i++) {
    pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->workers[i].wake);
    pthread_mutex_destroy(&pool->workers[i].mutex);
  }
  pthread_cond_destroy(&pool->done);
  pthread_mutex_destroy(&pool->mutex);
  free(pool->allocation);
  free(pool);
}
