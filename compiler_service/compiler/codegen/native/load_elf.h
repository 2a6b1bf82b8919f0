/* load_elf.h - a shared library inside of a static program, which has no loader of the system's. Not public.
 *
 * The program needs nothing of the machine: it gives the library functions of its own C library, and refuses by name whatever else
 * it may ask for. */
#ifndef INGOT_LOAD_ELF_H
#define INGOT_LOAD_ELF_H

#include <link.h>
#include <stddef.h>
#include <stdint.h>

/* Exit status of a program that cannot load its library. */
#define INGOT_LACKING 3 /* this program offers less than the library asks for */
#define INGOT_BROKEN 4  /* no machine could load the library */

/* A function that libraries may call. */
typedef struct {
  const char *name;
  uintptr_t address;
} ingot_offered;

typedef struct {
  const ingot_offered *offered; /* to be set before ingot_load */
  size_t offered_count;
  char *base;
  const ElfW(Sym) *symbols;
  const char *names;
  uint32_t symbol_count;
} ingot_loaded;

/* Copies the segments of a file to memory of their own, links and protects them. One library a program may have thread-local data. Ends
 * the program, with a sentence on standard error, where that cannot be done. */
void ingot_load(ingot_loaded *library, const char *data, size_t bytes);

/* The address of what the library exports; ends the program where there is no such symbol. */
uintptr_t ingot_exported(const ingot_loaded *library, const char *name);

/* What __tls_get_addr is to a library. */
void *ingot_tls_address(const void *index);

/* Ends the program: "the library WHAT NAME". */
void ingot_refuse(int status, const char *what, const char *name);

#endif
