/* measure.c - runs one candidate of the tuner and times it, for a device that has no compiler.
 *
 * The device's measuring server starts this program, says on standard input what to load and to call, and then how many rounds to run; how
 * long they took goes to standard output. Everything is a row of int64 in the byte order of the machine:
 *
 *   plan     VERSION, whether to lock, counts of libraries, of buffers and of launches
 *            for each library: its descriptor
 *            for each buffer: bytes, descriptor of its content or -1, copies, whether it is a result
 *            for each launch: its library, tasks, bytes of scratch, count of buffers, count of symbols, length of its name; the bytes of the
 *                             name; its buffers; its symbols
 *   answer   VERSION, whether it is locked
 *   N > 0    run N times: answers nanoseconds
 *   0        answers the bytes of the results
 *
 * The end of standard input ends the program. Once it is locked it can do nothing but compute, read that input and write that output. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "load_elf.h"
#include "runtime.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define VERSION 1
#define MOST_NAME 255
#define MOST_COUNT 65536

const ingot_module ingot_this_module = {.name = "candidate"}; /* float_mode.c asks whether denormals are kept */

typedef struct {
  int64_t size, stride, copies, is_result;
  char *memory; /* `copies` blocks of `stride` bytes */
} buffer;

typedef struct {
  ingot_kernel_function function;
  int64_t tasks, buffer_count;
  int64_t *buffers, *symbols;
  void **pointers;
  void *scratch;
} launch;

static ingot_loaded *libraries;
static buffer *buffers;
static launch *launches;
static int64_t library_count, buffer_count, launch_count, turn;
static int has_copies;
static const volatile int32_t goes_on;

static int bcompare(const void *a, const void *b, size_t bytes) { return memcmp(a, b, bytes); }

static const ingot_offered FUNCTIONS[] = {
    {"bcmp", (uintptr_t)bcompare},
    {"memcmp", (uintptr_t)memcmp},
    {"memcpy", (uintptr_t)memcpy},
    {"memmove", (uintptr_t)memmove},
    {"memset", (uintptr_t)memset},
};

/* 0 at the end of standard input. */
static int take(void *into, size_t bytes) {
  for (char *at = into; bytes;) {
    ssize_t count = read(0, at, bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return 0;
    at += count;
    bytes -= (size_t)count;
  }
  return 1;
}

static void give(const void *data, size_t bytes) {
  for (const char *at = data; bytes;) {
    ssize_t count = write(1, at, bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) _exit(INGOT_LACKING);
    at += count;
    bytes -= (size_t)count;
  }
}

static void row(int64_t *numbers, size_t count) {
  if (!take(numbers, count * sizeof(*numbers))) _exit(INGOT_BROKEN);
}

static int64_t within(int64_t number, int64_t least, int64_t most, const char *what) {
  if (number < least || number > most) ingot_refuse(INGOT_BROKEN, "comes with a plan that is out of range:", what);
  return number;
}

static void *room(size_t bytes) {
  void *block = ingot_allocate(bytes);
  if (!block) ingot_refuse(INGOT_LACKING, "needs more memory than there is for", "its buffers");
  memset(block, 0, bytes);
  return block;
}

/* What a descriptor holds; it is closed. */
static char *contents(int64_t descriptor, size_t *bytes) {
  struct stat about;
  if (fstat((int)descriptor, &about)) ingot_refuse(INGOT_BROKEN, "comes with a plan that names no file:", "descriptor");
  *bytes = (size_t)about.st_size;
  char *data = *bytes ? mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, (int)descriptor, 0) : NULL;
  if (data == MAP_FAILED) ingot_refuse(INGOT_LACKING, "cannot be mapped:", strerror(errno));
  close((int)descriptor);
  return data;
}

static void prepare_library(ingot_loaded *own) {
  int64_t descriptor;
  size_t bytes = 0;
  row(&descriptor, 1);
  own->offered = FUNCTIONS;
  own->offered_count = sizeof(FUNCTIONS) / sizeof(*FUNCTIONS);
  char *data = contents(descriptor, &bytes);
  ingot_load(own, data, bytes);
  if (bytes) munmap(data, bytes);
}

static void prepare_buffer(buffer *own) {
  int64_t numbers[4];
  row(numbers, 4);
  own->size = within(numbers[0], 0, INT64_MAX / 4, "a size");
  own->copies = within(numbers[2], 1, MOST_COUNT, "copies");
  own->is_result = numbers[3];
  own->stride = own->size ? (own->size + INGOT_ALIGNMENT - 1) / INGOT_ALIGNMENT * INGOT_ALIGNMENT : INGOT_ALIGNMENT;
  if (own->stride > INT64_MAX / own->copies) ingot_refuse(INGOT_BROKEN, "comes with a plan that is out of range:", "a size");
  own->memory = room((size_t)(own->stride * own->copies));
  has_copies |= own->copies > 1;
  if (numbers[1] < 0) return;
  size_t bytes = 0;
  char *data = contents(numbers[1], &bytes);
  if ((int64_t)bytes != own->size) ingot_refuse(INGOT_BROKEN, "comes with a content of another size than", "its buffer");
  for (int64_t copy = 0; copy < own->copies && bytes; copy++) memcpy(own->memory + copy * own->stride, data, bytes);
  if (bytes) munmap(data, bytes);
}

/* Buffers of the copies that this run has its turn with. */
static void point(launch *own) {
  for (int64_t i = 0; i < own->buffer_count; i++) {
    const buffer *of = &buffers[own->buffers[i]];
    own->pointers[i] = of->memory + turn % of->copies * of->stride;
  }
}

static void prepare_launch(launch *own) {
  int64_t numbers[6];
  char name[MOST_NAME + 1] = {0};
  row(numbers, 6);
  const ingot_loaded *library = &libraries[within(numbers[0], 0, library_count - 1, "a library")];
  own->tasks = within(numbers[1], 0, INT64_MAX, "tasks");
  own->scratch = room((size_t)within(numbers[2], 0, INT64_MAX / 4, "scratch"));
  own->buffer_count = within(numbers[3], 0, MOST_COUNT, "buffers");
  size_t symbols = (size_t)within(numbers[4], 0, MOST_COUNT, "symbols");
  if (!take(name, (size_t)within(numbers[5], 1, MOST_NAME, "a name"))) _exit(INGOT_BROKEN);
  own->buffers = room((size_t)own->buffer_count * sizeof(int64_t));
  own->pointers = room((size_t)own->buffer_count * sizeof(void *));
  own->symbols = room(symbols * sizeof(int64_t));
  row(own->buffers, (size_t)own->buffer_count);
  row(own->symbols, symbols);
  for (int64_t i = 0; i < own->buffer_count; i++) within(own->buffers[i], 0, buffer_count - 1, "a buffer");
  own->function = (ingot_kernel_function)ingot_exported(library, name);
  point(own);
}

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#elif defined(__arm__)
#define ARCHITECTURE AUDIT_ARCH_ARM
#else
#define ARCHITECTURE AUDIT_ARCH_RISCV64
#endif

#define AT(field) (uint32_t)offsetof(struct seccomp_data, field)
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT(field))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, what)
#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), RETURN(SECCOMP_RET_ALLOW)
/* `number`, where its first argument is `first`; all others go on. */
#define ALLOW_ON(number, first)                                                                            \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4), LOAD(args[0]), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, first, 0, 1), \
      RETURN(SECCOMP_RET_ALLOW), RETURN(SECCOMP_RET_KILL_PROCESS)

/* From here on any other system call ends the process. Whether the kernel of the machine can do that. */
static int lock(void) {
  struct sock_filter rules[] = {
      LOAD(arch), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0), RETURN(SECCOMP_RET_KILL_PROCESS), LOAD(nr),
#ifdef __NR_clock_gettime
      ALLOW(__NR_clock_gettime),
#endif
#ifdef __NR_clock_gettime32 /* what machines of 32 bits have, and had before Linux 5.1 */
      ALLOW(__NR_clock_gettime32),
#endif
#ifdef __NR_clock_gettime64
      ALLOW(__NR_clock_gettime64),
#endif
      ALLOW(__NR_exit_group), ALLOW(__NR_restart_syscall), ALLOW_ON(__NR_read, 0), ALLOW_ON(__NR_write, 1),
      RETURN(SECCOMP_RET_KILL_PROCESS),
  };
  struct sock_fprog program = {.len = sizeof(rules) / sizeof(*rules), .filter = rules};
  return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int64_t timed(int64_t times) {
  int64_t start = now();
  for (int64_t i = 0; i < times; i++, turn++) {
    for (int64_t k = 0; k < launch_count; k++) {
      launch *own = &launches[k];
      if (has_copies) point(own);
      own->function(own->pointers, own->symbols, 0, own->tasks, own->scratch, &goes_on);
    }
  }
  return now() - start;
}

static void give_results(void) {
  for (int64_t i = 0; i < buffer_count; i++) {
    if (buffers[i].is_result) give(buffers[i].memory, (size_t)buffers[i].size);
  }
}

int main(void) {
  int64_t plan[5], answer[2] = {VERSION, 0}, times = 0;
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* who started it is gone: nobody wants to know any more */
  row(plan, 5);
  if (plan[0] != VERSION) ingot_refuse(INGOT_BROKEN, "comes with a plan of", "another version");
  library_count = within(plan[2], 1, MOST_COUNT, "libraries");
  buffer_count = within(plan[3], 0, MOST_COUNT, "buffers");
  launch_count = within(plan[4], 1, MOST_COUNT, "launches");
  libraries = room((size_t)library_count * sizeof(*libraries));
  buffers = room((size_t)buffer_count * sizeof(*buffers));
  launches = room((size_t)launch_count * sizeof(*launches));
  for (int64_t i = 0; i < library_count; i++) prepare_library(&libraries[i]);
  for (int64_t i = 0; i < buffer_count; i++) prepare_buffer(&buffers[i]);
  for (int64_t i = 0; i < launch_count; i++) prepare_launch(&launches[i]);
  ingot_enter_float_mode();
  now(); /* what the first call sets up needs other calls */
  answer[1] = plan[1] ? lock() : 0;
  give(answer, sizeof(answer));
  while (take(&times, sizeof(times))) {
    if (times > 0) {
      int64_t nanoseconds = timed(times);
      give(&nanoseconds, sizeof(nanoseconds));
    } else {
      give_results();
    }
  }
  return 0;
}
