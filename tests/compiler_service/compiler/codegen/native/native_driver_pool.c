/* Drives the thread pool of the artifact runtime by itself, for sanitizers. Prints "ok". */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "native_check.h"
#include "thread_pool.h"

#define MOST_TASKS 400
#define MOST_THREADS 5
typedef struct {
  int64_t tasks;
  int32_t threads;
  unsigned pauses; /* one task in so many waits; 0: none */
  unsigned char runs[MOST_TASKS];
  unsigned char by[MOST_TASKS];
} job;

static void pause_for(long nanoseconds) {
  struct timespec time = {0, nanoseconds};
  nanosleep(&time, NULL);
}

static void work(void *context, int64_t begin, int64_t end, int32_t thread) {
  job *of = context;
  CHECK(0 <= begin && begin < end && end <= of->tasks && thread >= 0 && thread < of->threads);
  for (int64_t i = begin; i < end; i++) {
    of->runs[i]++;
    of->by[i] = (unsigned char)thread;
    if (of->pauses && (unsigned)i * 2654435761u % of->pauses == 0) i % 2 ? pause_for(50000) : (void)sched_yield();
  }
}

/* NOTE: the job lies on the stack, and is another one's memory once the pool says that it is done. */
static void launch(ingot_pool *pool, int32_t threads, int64_t tasks, unsigned pauses) {
  job own = {.tasks = tasks, .threads = threads, .pauses = pauses};
  ingot_pool_run(pool, work, &own, tasks);
  for (int64_t i = 0; i < MOST_TASKS; i++) CHECK(own.runs[i] == (i < tasks));
  memset(&own, 0xff, sizeof(own));
}

/* Every task runs once, whatever number of them follow each other and whoever comes late. */
static void test_every_task_once(void) {
  for (int32_t threads = 1; threads <= MOST_THREADS; threads++) {
    ingot_pool *pool = ingot_pool_create(threads);
    CHECK(pool);
    for (unsigned round = 0; round < 600; round++) {
      int64_t tasks = round % 7 == 0 ? MOST_TASKS : (int64_t)(round * 31 % 40);
      launch(pool, threads, tasks, round % 5 == 0 ? 1 + round % 23 : 0);
      if (round % 100 == 0) pause_for(1000000); /* workers fall asleep */
    }
    ingot_pool_destroy(pool);
  }
}

static void away(void *context, int64_t begin, int64_t end, int32_t thread) {
  work(context, begin, end, thread);
  if (thread) pause_for(300000000);
}

/* What a thread that is away would have done is done by others, but for what it was in the middle of. */
static void test_others_do_what_is_left(void) {
  ingot_pool *pool = ingot_pool_create(2);
  job own = {.tasks = 32, .threads = 2};
  ingot_pool_run(pool, away, &own, own.tasks);
  int by_worker = 0;
  for (int i = 0; i < 32; i++) by_worker += own.by[i];
  CHECK(by_worker <= 2);
  ingot_pool_destroy(pool);
}

static void own_part(void *context, int64_t begin, int64_t end, int32_t thread) {
  work(context, begin, end, thread);
  struct timespec time = {0, 2000000};
  nanosleep(&time, NULL);
}

/* Where all threads are there, each has the part that it had the last time. */
static void test_parts_stay_where_they_were(void) {
  ingot_pool *pool = ingot_pool_create(2);
  int moved = 0;
  for (int round = 0; round < 10; round++) {
    job own = {.tasks = 20, .threads = 2};
    ingot_pool_run(pool, own_part, &own, own.tasks);
    for (int i = 0; i < 20; i++) moved += own.by[i] != i / 10;
  }
  CHECK(moved <= 100); /* of 200; most by far where nobody else computes */
  ingot_pool_destroy(pool);
}

int main(void) {
  test_every_task_once();
  test_others_do_what_is_left();
  test_parts_stay_where_they_were();
  puts("ok");
  return 0;
}
