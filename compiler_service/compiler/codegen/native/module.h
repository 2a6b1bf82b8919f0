/* module.h - what generated code and the artifact runtime (runtime.c) say to each other. Not public.
 *
 * The compiler emits one ingot_module per model; runtime.c is linked against it. */
#ifndef INGOT_MODULE_H
#define INGOT_MODULE_H

#include "ingot.h"
#include "ingot_part.h"

#pragma GCC visibility push(hidden)

/* Computes tasks [begin, end). `scratch` is private to the thread, 64-byte aligned, kernel.scratch bytes. What takes long looks at
 * `stop`, and returns with its work undone when it is no longer 0. */
typedef void (*ingot_kernel_function)(void *const *buffers, const int64_t *symbols, int64_t begin, int64_t end,
                                      void *scratch, const volatile int32_t *stop);

typedef struct {
  const char *name;
  ingot_kernel_function function;
  int64_t scratch;          /* bytes per thread */
  const ingot_part *part;   /* in place of `function`: a part that another code generator made; else NULL */
  const int64_t *constants; /* of a part: offsets in the weights, `constant_count` of them */
  int32_t constant_count;
} ingot_kernel;

/* Memory that a run sizes. Generated code exchanges slots; `reserve` makes one at least `bytes` large, with its contents
 * where `keep`, and returns 0 when there is no memory. */
typedef struct {
  void *data;
  int64_t size; /* bytes */
} ingot_slot;

/* One run in progress. Generated code calls `launch` for every step. */
typedef struct ingot_frame ingot_frame;
struct ingot_frame {
  void *const *inputs;  /* data pointers, by input index */
  void *const *outputs; /* data pointers, by output index */
  const char *weights;
  char *arena;
  int64_t *symbols; /* by symbol index: first those that `resolve` gives, then those that the run defines */
  void (*launch)(ingot_frame *frame, int32_t kernel, void *const *buffers, const int64_t *symbols, int64_t tasks);
  ingot_slot *slots; /* by slot index */
  int32_t (*reserve)(ingot_frame *frame, ingot_slot *slot, int64_t bytes, int32_t keep);
  int64_t expected, received;   /* of the constraint that `execute` found broken */
  const volatile int32_t *stop; /* never NULL; not 0: the run is to end */
  int32_t failed;               /* the status of a part that failed, which ends the run, or 0 */
};

/* What functions return besides the index of a broken constraint. */
#define INGOT_DONE (-1)
#define INGOT_NO_MEMORY (-2) /* or a size that an int64 does not hold */
#define INGOT_LEFT (-3)      /* because of `stop` or `failed` */

/* What an input is where the caller gives none. */
typedef struct {
  int64_t offset;       /* bytes into the weights; -1: the caller must give it */
  const int64_t *shape; /* `rank` extents */
} ingot_default;

typedef struct {
  uint32_t abi_version;
  const char *compiler_version;
  const char *name;
  int32_t input_count, output_count, kernel_count, symbol_count, slot_count;
  const ingot_tensor_info *inputs;
  const ingot_tensor_info *outputs;
  const ingot_kernel *kernels;
  int64_t weights_size;
  const void *bundled_weights; /* or NULL */

  /* Symbols from input extents. Ranks and fixed extents have been checked by the runtime. Returns INGOT_DONE when all
   * constraints hold, INGOT_NO_MEMORY, or the index of the first constraint that does not; expected/received are then
   * filled in. */
  int32_t (*resolve)(const int64_t *const *input_shapes, int64_t *symbols, int64_t *expected, int64_t *received);
  const char *const *constraint_messages; /* each ends so that " EXPECTED, received RECEIVED" may follow */

  int64_t (*arena_size)(const int64_t *symbols);                              /* bytes; -1: more than an int64 holds */
  /* Extents of every output; before the run -1 for those that the run defines. INGOT_DONE or INGOT_NO_MEMORY. */
  int32_t (*output_shapes)(const int64_t *symbols, int64_t *const *output_shapes, int32_t after);
  int32_t (*execute)(ingot_frame *frame); /* every step, in order */
  const int32_t *output_slots;            /* where an output is whose extents the run defines, else -1 */

  const ingot_default *defaults; /* by input */

  const char *features; /* LLVM names of the CPU features that the kernels use, "avx2,fma"; checked by ingot_create */
  int32_t keeps_denormals; /* whether results below the least normal number are kept where zero is faster */

  const char *plan_digest; /* of the plan.json that this was generated from, "sha256:..." */
} ingot_module;

extern const ingot_module ingot_this_module;

#pragma GCC visibility pop

#endif
