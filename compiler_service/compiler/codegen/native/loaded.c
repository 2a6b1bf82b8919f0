/* loaded.c - model.so inside of a static program, for main.c under an emulator of another machine.
 *
 * The program needs nothing of that machine's: it loads `model.so` of the working directory by itself, gives it the functions of its own C library, and takes
 * the weights from `weights.bin` beside it. That they are of another C library than the one the model will meet changes no result: what a model asks of it
 * is memory, threads and text. Whatever else a library may ask for is refused by name.
 *
 * ELF: System V gABI chapters 4 and 5; TLS descriptors of AArch64: "ELF for the Arm 64-bit Architecture", section 5.7. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
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

/* Exit status. */
#define LACKING 3 /* this program offers less than the library asks for */
#define BROKEN 4  /* no machine could load the library */

typedef struct {
  const char *name;
  uintptr_t address;
} function;

/* Every kind of relocation that a model has, by architecture. */
enum {
#if defined(__x86_64__)
  ABSOLUTE = R_X86_64_64, DATA = R_X86_64_GLOB_DAT, CALL = R_X86_64_JUMP_SLOT, OWN = R_X86_64_RELATIVE,
  TLS_MODULE = R_X86_64_DTPMOD64, TLS_OFFSET = R_X86_64_DTPOFF64, TLS_DESCRIPTOR = -1, TLS_BIAS = 0
#elif defined(__aarch64__)
  ABSOLUTE = R_AARCH64_ABS64, DATA = R_AARCH64_GLOB_DAT, CALL = R_AARCH64_JUMP_SLOT, OWN = R_AARCH64_RELATIVE,
  TLS_MODULE = R_AARCH64_TLS_DTPMOD, TLS_OFFSET = R_AARCH64_TLS_DTPREL, TLS_DESCRIPTOR = R_AARCH64_TLSDESC, TLS_BIAS = 0
#elif defined(__arm__)
  ABSOLUTE = R_ARM_ABS32, DATA = R_ARM_GLOB_DAT, CALL = R_ARM_JUMP_SLOT, OWN = R_ARM_RELATIVE,
  TLS_MODULE = R_ARM_TLS_DTPMOD32, TLS_OFFSET = R_ARM_TLS_DTPOFF32, TLS_DESCRIPTOR = -1, TLS_BIAS = 0
#else
  ABSOLUTE = R_RISCV_64, DATA = ABSOLUTE, CALL = R_RISCV_JUMP_SLOT, OWN = R_RISCV_RELATIVE,
  TLS_MODULE = R_RISCV_TLS_DTPMOD64, TLS_OFFSET = R_RISCV_TLS_DTPREL64, TLS_DESCRIPTOR = -1, TLS_BIAS = 0x800
#endif
};

#if UINTPTR_MAX > UINT32_MAX
#define SYMBOL_OF ELF64_R_SYM
#define KIND_OF ELF64_R_TYPE
#define map_memory mmap
#define tell_time clock_gettime
#else
#define SYMBOL_OF ELF32_R_SYM
#define KIND_OF ELF32_R_TYPE

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

/* Thread-local data of the library. It begins with zeros. */
static __thread char thread_data[4096] __attribute__((aligned(64)));

typedef struct {
  uintptr_t module, offset;
} tls_index;

static void *tls_address(const tls_index *of) { return thread_data + of->offset + TLS_BIAS; }

#if defined(__aarch64__)
/* Called with the descriptor in x0; leaves every other register as it is. The second word is the distance from the thread pointer. */
__asm__(".text\n.global ingot_tls_distance\n.hidden ingot_tls_distance\n.type ingot_tls_distance, %function\n"
        "ingot_tls_distance:\n  ldr x0, [x0, #8]\n  ret\n");
void ingot_tls_distance(void);
#endif

static int count_cpus(size_t bytes, const cpu_set_t *set) { return CPU_COUNT_S(bytes, set); }

static const function FUNCTIONS[] = {
#define SAME(name) {#name, (uintptr_t)name}
    {"__errno_location", (uintptr_t)__errno_location},
    {"__isoc99_sscanf", (uintptr_t)sscanf},
    {"__sched_cpucount", (uintptr_t)count_cpus},
    {"__tls_get_addr", (uintptr_t)tls_address},
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

typedef struct {
  char *base;
  const ElfW(Sym) *symbols;
  const char *names;
  uint32_t symbol_count;
} library;

static library model;

static void refuse(int status, const char *what, const char *name) {
  fprintf(stderr, "library " LIBRARY ": %s %s\n", what, name);
  exit(status);
}

/* The whole file in memory of its own; NULL where it is empty. */
static char *read_all(const char *path, size_t *bytes) {
  struct stat about;
  int file = open(path, O_RDONLY);
  if (file < 0 || fstat(file, &about)) refuse(BROKEN, "cannot read", path);
  *bytes = (size_t)about.st_size;
  char *data = *bytes ? mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0) : NULL;
  if (data == MAP_FAILED) refuse(LACKING, "cannot map", path);
  close(file);
  return data;
}

/* Copies each segment to its place in new memory. */
static void place(const char *data, size_t bytes) {
  const ElfW(Ehdr) *head = (const void *)data;
  if (bytes < sizeof(*head) || memcmp(head->e_ident, ELFMAG, SELFMAG)) refuse(BROKEN, "is no ELF file:", "header");
  const ElfW(Phdr) *segments = (const void *)(data + head->e_phoff);
  size_t span = 0;
  for (int i = 0; i < head->e_phnum; i++) {
    if (segments[i].p_type == PT_TLS && (segments[i].p_filesz || segments[i].p_memsz > sizeof(thread_data))) {
      refuse(LACKING, "has thread-local data that is not zero, or too much of it:", "TLS");
    }
    if (segments[i].p_type == PT_LOAD && segments[i].p_vaddr + segments[i].p_memsz > span) {
      span = segments[i].p_vaddr + segments[i].p_memsz;
    }
  }
  model.base = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (model.base == MAP_FAILED) refuse(LACKING, "has no room:", "memory");
  for (int i = 0; i < head->e_phnum; i++) {
    if (segments[i].p_type != PT_LOAD) continue;
    memcpy(model.base + segments[i].p_vaddr, data + segments[i].p_offset, segments[i].p_filesz);
  }
}

/* The last step: code becomes code. */
static void protect(const char *data) {
  const ElfW(Ehdr) *head = (const void *)data;
  const ElfW(Phdr) *segments = (const void *)(data + head->e_phoff);
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  for (int i = 0; i < head->e_phnum; i++) {
    if (segments[i].p_type != PT_LOAD || !(segments[i].p_flags & PF_X)) continue;
    uintptr_t start = (uintptr_t)(model.base + segments[i].p_vaddr) / page * page;
    uintptr_t end = (uintptr_t)(model.base + segments[i].p_vaddr + segments[i].p_memsz);
    if (mprotect((void *)start, end - start, PROT_READ | PROT_EXEC)) refuse(LACKING, "cannot be made executable:", "memory");
  }
}

static uintptr_t value_of(uint32_t index) {
  const ElfW(Sym) *symbol = &model.symbols[index];
  const char *name = model.names + symbol->st_name;
  if (symbol->st_shndx != SHN_UNDEF) return (uintptr_t)model.base + symbol->st_value;
  for (size_t i = 0; i < sizeof(FUNCTIONS) / sizeof(*FUNCTIONS); i++) {
    if (!strcmp(FUNCTIONS[i].name, name)) return FUNCTIONS[i].address;
  }
  if (ELF32_ST_BIND(symbol->st_info) != STB_WEAK) refuse(LACKING, "asks for a function that is not offered:", name);
  return 0;
}

static void relocate_one(uintptr_t *where, int kind, uint32_t symbol, uintptr_t addend) {
  if (kind == OWN) {
    *where = (uintptr_t)model.base + addend;
  } else if (kind == CALL || kind == DATA || kind == ABSOLUTE) {
    *where = value_of(symbol) + addend;
  } else if (kind == TLS_MODULE) {
    *where = 1;
  } else if (kind == TLS_OFFSET) {
    *where = model.symbols[symbol].st_value + addend - TLS_BIAS;
#if defined(__aarch64__)
  } else if (kind == TLS_DESCRIPTOR) {
    where[0] = (uintptr_t)ingot_tls_distance;
    where[1] = (uintptr_t)(thread_data - (char *)__builtin_thread_pointer()) + model.symbols[symbol].st_value + addend;
#endif
  } else {
    char number[16];
    snprintf(number, sizeof(number), "%d", kind);
    refuse(LACKING, "has a relocation of an unknown kind:", number);
  }
}

static void relocate(uintptr_t table, size_t bytes, int with_addends) {
  size_t size = with_addends ? sizeof(ElfW(Rela)) : sizeof(ElfW(Rel));
  for (size_t at = 0; at < bytes; at += size) {
    const ElfW(Rela) *entry = (const void *)(model.base + table + at);
    uintptr_t *where = (uintptr_t *)(model.base + entry->r_offset);
    uint32_t symbol = (uint32_t)SYMBOL_OF(entry->r_info);
    int kind = (int)KIND_OF(entry->r_info);
    uintptr_t addend = with_addends ? (uintptr_t)entry->r_addend : kind == CALL || kind == TLS_MODULE ? 0 : *where;
    relocate_one(where, kind, symbol, addend);
  }
}

static const ElfW(Dyn) *dynamic_of(const char *data) {
  const ElfW(Ehdr) *head = (const void *)data;
  const ElfW(Phdr) *segments = (const void *)(data + head->e_phoff);
  for (int i = 0; i < head->e_phnum; i++) {
    if (segments[i].p_type == PT_DYNAMIC) return (const void *)(model.base + segments[i].p_vaddr);
  }
  refuse(BROKEN, "has no dynamic section:", "PT_DYNAMIC");
  return NULL;
}

static void link_library(const ElfW(Dyn) *dynamic) {
  uintptr_t found[DT_NUM] = {0};
  for (; dynamic->d_tag != DT_NULL; dynamic++) {
    if (dynamic->d_tag > 0 && dynamic->d_tag < DT_NUM) found[dynamic->d_tag] = (uintptr_t)dynamic->d_un.d_val;
  }
  if (found[DT_INIT] || found[DT_INIT_ARRAYSZ]) refuse(LACKING, "wants to run code when it is loaded:", "DT_INIT");
  if (!found[DT_HASH]) refuse(BROKEN, "does not say how many symbols it has:", "DT_HASH");
  model.symbols = (const void *)(model.base + found[DT_SYMTAB]);
  model.names = model.base + found[DT_STRTAB];
  model.symbol_count = ((const uint32_t *)(model.base + found[DT_HASH]))[1];
  relocate(found[DT_RELA], found[DT_RELASZ], 1);
  relocate(found[DT_REL], found[DT_RELSZ], 0);
  relocate(found[DT_JMPREL], found[DT_PLTRELSZ], found[DT_PLTREL] == DT_RELA);
}

__attribute__((constructor)) static void load(void) {
  size_t bytes = 0;
  char *data = read_all(LIBRARY, &bytes);
  place(data, bytes);
  link_library(dynamic_of(data));
  protect(data);
}

/* ---- what main.c calls, answered by the library ---- */

static uintptr_t exported(const char *name) {
  for (uint32_t i = 1; i < model.symbol_count; i++) {
    if (model.symbols[i].st_shndx != SHN_UNDEF && !strcmp(model.names + model.symbols[i].st_name, name)) return value_of(i);
  }
  refuse(BROKEN, "lacks the function", name);
  return 0;
}

#define PASS(type, name, parameters, arguments) \
  type name parameters { return ((type(*) parameters)exported(#name))arguments; }

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

void ingot_destroy(ingot_model *of) { ((void (*)(ingot_model *))exported("ingot_destroy"))(of); }

const char *ingot_dtype_name(ingot_dtype dtype) {
  static char number[16];
  snprintf(number, sizeof(number), "dtype %d", (int)dtype);
  return number;
}

ingot_status ingot_create(const ingot_options *given, ingot_model **created) {
  ingot_options options = *given;
  options.weights = read_all(WEIGHTS, &options.weights_size);
  return ((ingot_status(*)(const ingot_options *, ingot_model **))exported("ingot_create"))(&options, created);
}
