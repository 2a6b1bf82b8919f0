/* memory.c - arena and scratch memory. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

#ifdef INGOT_GUARDED
/* For tests: a block lies between pages that nobody may touch, ends where the second begins, and is full of the byte that
 * the environment names. What is read before it was written, or beyond a block, shows. */
#define PAGE ((size_t)1 << 16)
#define GUARD ((size_t)1 << 22)

static size_t guarded_size(size_t bytes) { return round_up(bytes ? bytes : 1, INGOT_ALIGNMENT); }

void *ingot_allocate(size_t bytes) {
  if (bytes > (size_t)-1 / 4) return NULL;
  size_t size = guarded_size(bytes), body = round_up(size, PAGE);
  char *start = mmap(NULL, body + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return NULL;
  if (mprotect(start + GUARD, body, PROT_READ | PROT_WRITE)) {
    munmap(start, body + 2 * GUARD);
    return NULL;
  }
  const char *poison = getenv("INGOT_POISON");
  memset(start + GUARD, poison ? atoi(poison) : 0, body);
  return start + GUARD + body - size;
}

void ingot_free(void *block, size_t bytes) {
  if (!block) return;
  size_t size = guarded_size(bytes), body = round_up(size, PAGE);
  munmap((char *)block + size - body - GUARD, body + 2 * GUARD);
}
#else
/* A mapping aligned to a huge page: more is mapped than asked for, and both ends are cut off. */
static void *map_huge(size_t bytes) {
  size_t size = round_up(bytes, INGOT_HUGE_PAGE), mapped = size + INGOT_HUGE_PAGE;
  char *start = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return NULL;
  char *block = (char *)round_up((size_t)start, INGOT_HUGE_PAGE);
  size_t before = (size_t)(block - start), after = mapped - size - before;
  if (before) munmap(start, before);
  if (after) munmap(block + size, after);
#ifdef MADV_HUGEPAGE
  madvise(block, size, MADV_HUGEPAGE); /* a wish: fewer TLB misses where the kernel grants it */
#endif
  return block;
}

void *ingot_allocate(size_t bytes) {
  if (bytes > (size_t)-1 / 2) return NULL;
  if (bytes >= INGOT_HUGE_PAGE) return map_huge(bytes);
  void *block = NULL;
  return posix_memalign(&block, INGOT_ALIGNMENT, bytes ? bytes : INGOT_ALIGNMENT) ? NULL : block;
}

void ingot_free(void *block, size_t bytes) {
  if (!block) return;
  if (bytes >= INGOT_HUGE_PAGE) {
    munmap(block, round_up(bytes, INGOT_HUGE_PAGE));
  } else {
    free(block);
  }
}
#endif
