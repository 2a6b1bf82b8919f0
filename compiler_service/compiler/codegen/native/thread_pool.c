/* thread_pool.c - fork and join; who is through with his own part takes from others.
 *
 * A job is divided among the threads into contiguous ranges, the same at every launch, so that each finds what it made
 * itself in its own caches. A range is a word, the next chunk and the one behind the last, from which chunks are claimed
 * by compare and exchange: by its own thread from the front, by threads that have nothing left from the end of the range
 * with most. So nobody waits for a thread whose core another process has taken, but for the chunk that it was in.
 *
 * A job is over when all of its chunks are done, whether or not every worker has come: one that comes late finds nothing
 * to claim. A chunk is claimed before anything of its job is read, and the job stays as it is until it is done. So it
 * does not matter in which job a thread believes itself.
 *
 * Every worker has a mailbox of its own, a ticket number on its own cache line, which says that there is work. Waiting
 * spins for SPIN_NS, which bridges the gap between two launches of a run, and then sleeps. A sleeper announces itself
 * before it looks at the word again, and the writer looks for sleepers after it wrote: one of the two always sees the
 * other (both sequentially consistent). */
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
#define CHUNKS_PER_THREAD 8 /* so that little is left undone where one is away, and little time goes into claims */
#define CHUNK_BITS 16
#define MOST_CHUNKS (1 << CHUNK_BITS) /* one less of them fit a range */
#define MOST_THREADS ((MOST_CHUNKS - 1) / CHUNKS_PER_THREAD)

/* Chunks that nobody has claimed: the next one in the lower half, the one behind the last in the upper half. */
typedef struct {
  uint32_t word;
  char padding[CACHE_LINE - sizeof(uint32_t)];
} range;

typedef struct {
  uint32_t ticket;   /* written by the caller: there is work of number `ticket` */
  uint32_t sleeping; /* written by the worker */
  char padding[CACHE_LINE - 2 * sizeof(uint32_t)];
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
  int64_t grain;        /* tasks of a chunk; the last one may have fewer */
  int32_t participants; /* threads that have a range of this job, the caller included */
  int32_t stopping;
  int64_t spin_ns;
  int32_t worker_count;
  range *ranges; /* of the caller, then of each worker */
  worker *workers;
  void *allocation;
  char padding[CACHE_LINE];
  uint32_t left; /* chunks of this job that are not done */
  uint32_t caller_sleeping;
  pthread_mutex_t mutex;
  pthread_cond_t done;
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

/* Whether `word` came to be `value`, or anything else where `is_other`, within `limit` nanoseconds. After YIELD_NS the CPU
 * is offered to others at every look: on a busy machine the thread that is waited for may be queued behind this very loop. */
static int spin_until(const uint32_t *word, uint32_t value, int is_other, int64_t limit) {
  int64_t start = limit > 0 ? ingot_now() : 0, waited = 0;
  do {
    for (int i = 0; i < SPINS_PER_CLOCK; i++) {
      if ((__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) == is_other) return 1;
      relax();
    }
    if (waited > YIELD_NS) sched_yield();
    if (limit > 0) waited = ingot_now() - start;
  } while (waited < limit);
  return 0;
}

static uint32_t packed(uint32_t next, uint32_t end) { return end << CHUNK_BITS | next; }

static uint32_t unclaimed(uint32_t word) { return (word >> CHUNK_BITS) - (word & (MOST_CHUNKS - 1)); }

/* A chunk of `from`, from its front or its end, or -1. */
static int64_t claim(range *from, int is_own) {
  uint32_t word = __atomic_load_n(&from->word, __ATOMIC_ACQUIRE);
  while (unclaimed(word)) {
    uint32_t next = word & (MOST_CHUNKS - 1), end = word >> CHUNK_BITS;
    uint32_t rest = is_own ? packed(next + 1, end) : packed(next, end - 1);
    if (__atomic_compare_exchange_n(&from->word, &word, rest, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      return is_own ? next : end - 1;
  }
  return -1;
}

/* A chunk of whoever has most of them left, or -1. */
static int64_t claim_of_others(struct ingot_pool *pool) {
  for (;;) {
    range *richest = NULL;
    uint32_t most = 0;
    for (int32_t i = 0; i <= pool->worker_count; i++) {
      uint32_t has = unclaimed(__atomic_load_n(&pool->ranges[i].word, __ATOMIC_ACQUIRE));
      if (has > most) {
        most = has;
        richest = &pool->ranges[i];
      }
    }
    if (!richest) return -1;
    int64_t chunk = claim(richest, 0);
    if (chunk >= 0) return chunk;
  }
}

static void run_chunk(const struct ingot_pool *pool, int64_t chunk, int32_t thread) {
  int64_t begin = chunk * pool->grain, end = begin + pool->grain;
  pool->task(pool->context, begin, end < pool->tasks ? end : pool->tasks, thread);
}

/* Chunks are done, and perhaps all of them. */
static void finish(struct ingot_pool *pool, uint32_t chunks) {
  if (__atomic_sub_fetch(&pool->left, chunks, __ATOMIC_SEQ_CST)) return;
  if (!__atomic_load_n(&pool->caller_sleeping, __ATOMIC_SEQ_CST)) return;
  pthread_mutex_lock(&pool->mutex);
  pthread_cond_signal(&pool->done);
  pthread_mutex_unlock(&pool->mutex);
}

/* Work as long as there is something to claim. What a thread has done is told at its end, once: until then the job cannot
 * be over, and so stays what it is. */
static void take_part(struct ingot_pool *pool, int32_t thread) {
  uint32_t done = 0;
  int64_t chunk;
  while ((chunk = claim(&pool->ranges[thread], 1)) >= 0 || (chunk = claim_of_others(pool)) >= 0) {
    run_chunk(pool, chunk, thread);
    done++;
  }
  if (done) finish(pool, done);
}

/* The ticket that is not `last` any more. It may be several launches ahead. */
static uint32_t await_ticket(worker *self, uint32_t last) {
  if (!spin_until(&self->ticket, last, 1, self->pool->spin_ns)) {
    pthread_mutex_lock(&self->mutex);
    __atomic_store_n(&self->sleeping, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&self->ticket, __ATOMIC_SEQ_CST) == last) pthread_cond_wait(&self->wake, &self->mutex);
    __atomic_store_n(&self->sleeping, 0, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&self->mutex);
  }
  return __atomic_load_n(&self->ticket, __ATOMIC_ACQUIRE);
}

static void post_ticket(worker *to) {
  __atomic_store_n(&to->ticket, to->ticket + 1, __ATOMIC_SEQ_CST);
  if (!__atomic_load_n(&to->sleeping, __ATOMIC_SEQ_CST)) return;
  pthread_mutex_lock(&to->mutex);
  pthread_cond_signal(&to->wake);
  pthread_mutex_unlock(&to->mutex);
}

static void await_chunks(struct ingot_pool *pool) {
  if (spin_until(&pool->left, 0, 0, pool->spin_ns)) return;
  pthread_mutex_lock(&pool->mutex);
  __atomic_store_n(&pool->caller_sleeping, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&pool->left, __ATOMIC_SEQ_CST)) pthread_cond_wait(&pool->done, &pool->mutex);
  __atomic_store_n(&pool->caller_sleeping, 0, __ATOMIC_SEQ_CST);
  pthread_mutex_unlock(&pool->mutex);
}

static void *worker_main(void *argument) {
  worker *self = argument;
#ifdef __linux__
  prctl(PR_SET_NAME, "ingot-worker", 0, 0, 0);
#endif
  for (uint32_t ticket = 0;;) {
    ticket = await_ticket(self, ticket);
    if (__atomic_load_n(&self->pool->stopping, __ATOMIC_ACQUIRE)) return NULL;
    take_part(self->pool, self->index);
  }
}

/* Chunks of a job, the same for every launch of it, in one range for each thread. */
static void divide(struct ingot_pool *pool, int32_t chunks) {
  int32_t share = chunks / pool->participants, rest = chunks % pool->participants;
  uint32_t begin = 0;
  for (int32_t i = 0; i < pool->participants; i++) {
    uint32_t end = begin + (uint32_t)share + (i < rest);
    __atomic_store_n(&pool->ranges[i].word, packed(begin, end), __ATOMIC_RELEASE);
    begin = end;
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
  int64_t most = (int64_t)CHUNKS_PER_THREAD * pool->participants;
  pool->grain = (tasks + most - 1) / most;
  int32_t chunks = (int32_t)((tasks + pool->grain - 1) / pool->grain);
  __atomic_store_n(&pool->left, (uint32_t)chunks, __ATOMIC_RELEASE);
  divide(pool, chunks);
  for (int32_t i = 0; i < pool->participants - 1; i++) post_ticket(&pool->workers[i]);
  take_part(pool, 0);
  await_chunks(pool);
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
  if (threads > MOST_THREADS) threads = MOST_THREADS;
  size_t count = (size_t)(threads - 1), bytes = sizeof(range) * (count + 1) + sizeof(worker) * count;
  struct ingot_pool *pool = calloc(1, sizeof(*pool));
  if (!pool) return NULL;
  if (posix_memalign(&pool->allocation, CACHE_LINE, bytes)) {
    free(pool);
    return NULL;
  }
  memset(pool->allocation, 0, bytes);
  pool->ranges = pool->allocation;
  pool->workers = (worker *)(pool->ranges + count + 1);
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
  __atomic_store_n(&pool->stopping, 1, __ATOMIC_RELEASE);
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
