/* loaded.c - model.so inside of a static program, for main.c under an emulator of another machine.
 *
 * The program needs nothing of that machine's: it loads `model.so` of the working directory by itself, gives it the functions of its own C library, and takes
 * the weights from `weights.bin` beside it. That they are of another C library than the one the model will meet changes no result: what a model asks of it
 * is memory, threads and text. Whatever else a library may ask for is refused by name. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "load_elf.h"
#include "runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LIBRARY "model.so"
#define WEIGHTS "weights.bin"

#if UINTPTR_MAX > UINT32_MAX
#define map_memory mmap
#define tell_time clock_gettime
#else
/* Offsets and times are twice as long in this C library as in the one that the model was linked for. */
static void *map_memory(void *start, size_t bytes, int access, int flags, int file, int32_t offset) {
  return mmap(start, bytes, access, flags, file, offset);
}

static int tell_time(clockid_t clock, int32_t *seconds_and_rest) {
  struct timespec now;
  int failed = clock_gettime(clock, &now);
  seconds_and_rest[0] = (int32_t)now.tv_sec;
  seconds_and_rest[1] = (int32_t)now.tv_nsec;
  return failed;
}
#endif

static int count_cpus(size_t bytes, const cpu_set_t *set) { return CPU_COUNT_S(bytes, set); }

static const ingot_offered FUNCTIONS[] = {
#define SAME(name) {#name, (uintptr_t)name}
    {"__errno_location", (uintptr_t)__errno_location},
    {"__isoc99_sscanf", (uintptr_t)sscanf},
    {"__sched_cpucount", (uintptr_t)count_cpus},
    {"__tls_get_addr", (uintptr_t)ingot_tls_address},
    {"clock_gettime", (uintptr_t)tell_time},
    {"mmap", (uintptr_t)map_memory},
    SAME(abort), SAME(bcmp), SAME(calloc), SAME(fclose), SAME(fgets), SAME(fopen), SAME(free), SAME(getauxval),
    SAME(getpid), SAME(madvise), SAME(malloc), SAME(memchr), SAME(memcmp), SAME(memcpy), SAME(memmove), SAME(memset),
    SAME(mprotect), SAME(munmap), SAME(posix_memalign), SAME(prctl), SAME(pthread_attr_destroy),
    SAME(pthread_attr_init), SAME(pthread_attr_setstacksize), SAME(pthread_cond_destroy), SAME(pthread_cond_init),
    SAME(pthread_cond_signal), SAME(pthread_cond_wait), SAME(pthread_create), SAME(pthread_join),
    SAME(pthread_mutex_destroy), SAME(pthread_mutex_init), SAME(pthread_mutex_lock), SAME(pthread_mutex_unlock),
    SAME(pthread_sigmask), SAME(sched_getaffinity), SAME(sched_yield), SAME(sigfillset), SAME(snprintf), SAME(sscanf), SAME(strchr),
    SAME(strcmp), SAME(strcspn), SAME(strlen), SAME(strncmp), SAME(strrchr), SAME(strstr), SAME(strtol),
    SAME(strtoll), SAME(sysconf), SAME(vsnprintf),
};

static ingot_loaded model = {.offered = FUNCTIONS, .offered_count = sizeof(FUNCTIONS) / sizeof(*FUNCTIONS)};

/* The whole file in memory of its own; NULL where it is empty. */
static char *read_all(const char *path, size_t *bytes) {
  struct stat about;
  int file = open(path, O_RDONLY);
  if (file < 0 || fstat(file, &about)) ingot_refuse(INGOT_BROKEN, "cannot read", path);
  *bytes = (size_t)about.st_size;
  char *data = *bytes ? mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0) : NULL;
  if (data == MAP_FAILED) ingot_refuse(INGOT_LACKING, "cannot map", path);
  close(file);
  return data;
}

__attribute__((constructor)) static void load(void) {
  size_t bytes = 0;
  char *data = read_all(LIBRARY, &bytes);
  ingot_load(&model, data, bytes);
}

/* ---- what main.c calls, answered by the library ---- */

#define PASS(type, name, parameters, arguments) \
  type name parameters { return ((type(*) parameters)ingot_exported(&model, #name))arguments; }

PASS(uint32_t, ingot_abi_version, (void), ())
PASS(const char *, ingot_compiler_version, (void), ())
PASS(size_t, ingot_weights_size, (void), ())
PASS(int32_t, ingot_input_count, (void), ())
PASS(int32_t, ingot_output_count, (void), ())
PASS(int32_t, ingot_kernel_count, (void), ())
PASS(const ingot_tensor_info *, ingot_input_info, (int32_t index), (index))
PASS(const ingot_tensor_info *, ingot_output_info, (int32_t index), (index))
PASS(int32_t, ingot_input_has_default, (int32_t index), (index))
PASS(const char *, ingot_last_error, (const ingot_model *of), (of))
PASS(ingot_status, ingot_output_shapes,
     (ingot_model * of, const ingot_tensor *inputs, int32_t input_count, ingot_tensor *outputs, int32_t output_count),
     (of, inputs, input_count, outputs, output_count))
PASS(ingot_status, ingot_run,
     (ingot_model * of, const ingot_tensor *inputs, int32_t input_count, ingot_tensor *outputs, int32_t output_count),
     (of, inputs, input_count, outputs, output_count))

void ingot_destroy(ingot_model *of) { ((void (*)(ingot_model *))ingot_exported(&model, "ingot_destroy"))(of); }

const char *ingot_dtype_name(ingot_dtype dtype) {
  static char number[16];
  snprintf(number, sizeof(number), "dtype %d", (int)dtype);
  return number;
}

ingot_status ingot_create(const ingot_options *given, ingot_model **created) {
  ingot_options options = *given;
  options.weights = read_all(WEIGHTS, &options.weights_size);
  return ((ingot_status(*)(const ingot_options *, ingot_model **))ingot_exported(&model, "ingot_create"))(&options, created);
}
