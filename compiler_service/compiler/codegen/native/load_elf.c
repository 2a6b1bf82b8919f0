/* load_elf.c - a shared library inside of a static program.
 *
 * ELF: System V gABI chapters 4 and 5; TLS descriptors of AArch64: "ELF for the Arm 64-bit Architecture", section 5.7. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "load_elf.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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
#else
#define SYMBOL_OF ELF32_R_SYM
#define KIND_OF ELF32_R_TYPE
#endif

/* Thread-local data of the library. It begins with zeros. */
static __thread char thread_data[4096] __attribute__((aligned(64)));

typedef struct {
  uintptr_t module, offset;
} tls_index;

void *ingot_tls_address(const void *index) {
  const tls_index *of = index;
  return thread_data + of->offset + TLS_BIAS;
}

#if defined(__aarch64__)
/* Called with the descriptor in x0; leaves every other register as it is. The second word is the distance from the thread pointer. */
__asm__(".text\n.global ingot_tls_distance\n.hidden ingot_tls_distance\n.type ingot_tls_distance, %function\n"
        "ingot_tls_distance:\n  ldr x0, [x0, #8]\n  ret\n");
void ingot_tls_distance(void);
#endif

void ingot_refuse(int status, const char *what, const char *name) {
  fprintf(stderr, "the library %s %s\n", what, name);
  exit(status);
}

/* Copies each segment to its place in new memory. */
static void place(ingot_loaded *library, const char *data, size_t bytes) {
  const ElfW(Ehdr) *head = (const void *)data;
  if (bytes < sizeof(*head) || memcmp(head->e_ident, ELFMAG, SELFMAG)) ingot_refuse(INGOT_BROKEN, "is no ELF file:", "header");
  const ElfW(Phdr) *segments = (const void *)(data + head->e_phoff);
  size_t span = 0;
  for (int i = 0; i < head->e_phnum; i++) {
    if (segments[i].p_type == PT_TLS && (segments[i].p_filesz || segments[i].p_memsz > sizeof(thread_data))) {
      ingot_refuse(INGOT_LACKING, "has thread-local data that is not zero, or too much of it:", "TLS");
    }
    if (segments[i].p_type == PT_LOAD && segments[i].p_vaddr + segments[i].p_memsz > span) {
      span = segments[i].p_vaddr + segments[i].p_memsz;
    }
  }
  library->base = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (library->base == MAP_FAILED) ingot_refuse(INGOT_LACKING, "has no room:", "memory");
  for (int i = 0; i < head->e_phnum; i++) {
    if (segments[i].p_type != PT_LOAD) continue;
    memcpy(library->base + segments[i].p_vaddr, data + segments[i].p_offset, segments[i].p_filesz);
  }
}

/* The last step: code becomes code. */
static void protect(const ingot_loaded *library, const char *data) {
  const ElfW(Ehdr) *head = (const void *)data;
  const ElfW(Phdr) *segments = (const void *)(data + head->e_phoff);
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  for (int i = 0; i < head->e_phnum; i++) {
    if (segments[i].p_type != PT_LOAD || !(segments[i].p_flags & PF_X)) continue;
    uintptr_t start = (uintptr_t)(library->base + segments[i].p_vaddr) / page * page;
    uintptr_t end = (uintptr_t)(library->base + segments[i].p_vaddr + segments[i].p_memsz);
    __builtin___clear_cache((char *)start, (char *)end); /* a processor may have read what was there before as code */
    if (mprotect((void *)start, end - start, PROT_READ | PROT_EXEC)) ingot_refuse(INGOT_LACKING, "cannot be made executable:", "memory");
  }
}

static uintptr_t value_of(const ingot_loaded *library, uint32_t index) {
  const ElfW(Sym) *symbol = &library->symbols[index];
  const char *name = library->names + symbol->st_name;
  if (symbol->st_shndx != SHN_UNDEF) return (uintptr_t)library->base + symbol->st_value;
  for (size_t i = 0; i < library->offered_count; i++) {
    if (!strcmp(library->offered[i].name, name)) return library->offered[i].address;
  }
  if (ELF32_ST_BIND(symbol->st_info) != STB_WEAK) ingot_refuse(INGOT_LACKING, "asks for a function that is not offered:", name);
  return 0;
}

static void relocate_one(const ingot_loaded *library, uintptr_t *where, int kind, uint32_t symbol, uintptr_t addend) {
  if (kind == OWN) {
    *where = (uintptr_t)library->base + addend;
  } else if (kind == CALL || kind == DATA || kind == ABSOLUTE) {
    *where = value_of(library, symbol) + addend;
  } else if (kind == TLS_MODULE) {
    *where = 1;
  } else if (kind == TLS_OFFSET) {
    *where = library->symbols[symbol].st_value + addend - TLS_BIAS;
#if defined(__aarch64__)
  } else if (kind == TLS_DESCRIPTOR) {
    where[0] = (uintptr_t)ingot_tls_distance;
    where[1] = (uintptr_t)(thread_data - (char *)__builtin_thread_pointer()) + library->symbols[symbol].st_value + addend;
#endif
  } else {
    char number[16];
    snprintf(number, sizeof(number), "%d", kind);
    ingot_refuse(INGOT_LACKING, "has a relocation of an unknown kind:", number);
  }
}

static void relocate(const ingot_loaded *library, uintptr_t table, size_t bytes, int with_addends) {
  size_t size = with_addends ? sizeof(ElfW(Rela)) : sizeof(ElfW(Rel));
  for (size_t at = 0; at < bytes; at += size) {
    const ElfW(Rela) *entry = (const void *)(library->base + table + at);
    uintptr_t *where = (uintptr_t *)(library->base + entry->r_offset);
    uint32_t symbol = (uint32_t)SYMBOL_OF(entry->r_info);
    int kind = (int)KIND_OF(entry->r_info);
    uintptr_t addend = with_addends ? (uintptr_t)entry->r_addend : kind == CALL || kind == TLS_MODULE ? 0 : *where;
    relocate_one(library, where, kind, symbol, addend);
  }
}

static const ElfW(Dyn) *dynamic_of(const ingot_loaded *library, const char *data) {
  const ElfW(Ehdr) *head = (const void *)data;
  const ElfW(Phdr) *segments = (const void *)(data + head->e_phoff);
  for (int i = 0; i < head->e_phnum; i++) {
    if (segments[i].p_type == PT_DYNAMIC) return (const void *)(library->base + segments[i].p_vaddr);
  }
  ingot_refuse(INGOT_BROKEN, "has no dynamic section:", "PT_DYNAMIC");
  return NULL;
}

static void link_library(ingot_loaded *library, const ElfW(Dyn) *dynamic) {
  uintptr_t found[DT_NUM] = {0};
  for (; dynamic->d_tag != DT_NULL; dynamic++) {
    if (dynamic->d_tag > 0 && dynamic->d_tag < DT_NUM) found[dynamic->d_tag] = (uintptr_t)dynamic->d_un.d_val;
  }
  if (found[DT_INIT] || found[DT_INIT_ARRAYSZ]) ingot_refuse(INGOT_LACKING, "wants to run code when it is loaded:", "DT_INIT");
  if (!found[DT_HASH]) ingot_refuse(INGOT_BROKEN, "does not say how many symbols it has:", "DT_HASH");
  library->symbols = (const void *)(library->base + found[DT_SYMTAB]);
  library->names = library->base + found[DT_STRTAB];
  library->symbol_count = ((const uint32_t *)(library->base + found[DT_HASH]))[1];
  relocate(library, found[DT_RELA], found[DT_RELASZ], 1);
  relocate(library, found[DT_REL], found[DT_RELSZ], 0);
  relocate(library, found[DT_JMPREL], found[DT_PLTRELSZ], found[DT_PLTREL] == DT_RELA);
}

void ingot_load(ingot_loaded *library, const char *data, size_t bytes) {
  place(library, data, bytes);
  link_library(library, dynamic_of(library, data));
  protect(library, data);
}

uintptr_t ingot_exported(const ingot_loaded *library, const char *name) {
  for (uint32_t i = 1; i < library->symbol_count; i++) {
    const ElfW(Sym) *symbol = &library->symbols[i];
    if (symbol->st_shndx != SHN_UNDEF && !strcmp(library->names + symbol->st_name, name)) return value_of(library, i);
  }
  ingot_refuse(INGOT_BROKEN, "lacks the function", name);
  return 0;
}
