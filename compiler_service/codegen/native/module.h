/* module.h - what generated code and the artifact runtime (runtime.c) say to each other. Not public.
 *
 * The compiler emits one ingot_module per model; runtime.c is linked against it. */
#ifndef INGOT_MODULE_H
#define INGOT_MODULE_H

#include "ingot.h"

#pragma GCC visibility push(hidden)

/* Computes tasks [begin, end). `scratch` is private to the thread, 64-byte aligned, kernel.scratch bytes. */
typedef void (*ingot_kernel_function)(void *const *buffers, const int64_t *symbols, int64_t begin, int64_t end,
                                      void *scratch);

typedef struct {
  const char *name;
  ingot_kernel_function function;
  int64_t scratch; /* bytes per thread */
} ingot_kernel;

/* One run in progress. Generated code calls `launch` for every step. */
typedef struct ingot_frame ingot_frame;
struct ingot_frame {
  void *const *inputs;  /* data pointers, by input index */
  void *const *outputs; /* data pointers, by output index */
  const char *weights;
  char *arena;
  const int64_t *symbols; /* by symbol index */
  void (*launch)(ingot_frame *frame, int32_t kernel, void *const *buffers, const int64_t *symbols, int64_t tasks);
};

/* A dimension of an input as the compiler knows it: a fixed extent, or (extent < 0) checked by `resolve`. */
typedef struct {
  uint32_t abi_version;
  const char *compiler_version;
  const char *name;
  int32_t input_count, output_count, kernel_count, symbol_count;
  const ingot_tensor_info *inputs;
  const ingot_tensor_info *outputs;
  const ingot_kernel *kernels;
  int64_t weights_size;
  const void *bundled_weights; /* or NULL */

  /* Symbols from input extents. Ranks and fixed extents have been checked by the runtime. Returns -1 when all constraints
   * hold, else the index of the first constraint that does not; expected/received are then filled in. */
  int32_t (*resolve)(const int64_t *const *input_shapes, int64_t *symbols, int64_t *expected, int64_t *received);
  const char *const *constraint_messages; /* each ends so that " EXPECTED, received RECEIVED" may follow */

  int64_t (*arena_size)(const int64_t *symbols);                              /* bytes; -1: more than an int64 holds */
  void (*output_shapes)(const int64_t *symbols, int64_t *const *output_shapes); /* extents of every output */
  void (*execute)(ingot_frame *frame);                                        /* every launch, in order */

  const char *features; /* LLVM names of the CPU features that the kernels use, "avx2,fma"; checked by ingot_create */
} ingot_module;

extern const ingot_module ingot_this_module;

#pragma GCC visibility pop

#endif
