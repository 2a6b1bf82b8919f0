/* runtime.h - shared by the files of the artifact runtime. Not public. */
#ifndef INGOT_RUNTIME_H
#define INGOT_RUNTIME_H

#include "module.h"

#pragma GCC visibility push(hidden)

#define INGOT_ERROR_BYTES 1024
#define INGOT_ALIGNMENT 64
#define INGOT_HUGE_PAGE ((size_t)2 << 20)

/* Formats a message into `buffer` of INGOT_ERROR_BYTES and returns `status`. */
ingot_status ingot_fail(char *buffer, ingot_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "float32", or "dtype 99" for a number that ONNX does not define. */
const char *ingot_dtype_name(ingot_dtype dtype);

/* Whether input `index` is left to its default. */
int ingot_is_default(const ingot_tensor *tensor, int32_t index);

/* Checks count, dtype, rank, extents and data pointers of the inputs against the module. */
ingot_status ingot_check_inputs(char *error, const ingot_tensor *inputs, int32_t count);

/* The same for outputs; `shapes[i]` are the extents that this run gives output i. Data pointers and extents only when
 * `with_data`; outputs that the model owns must come without a pointer. */
ingot_status ingot_check_outputs(char *error, const ingot_tensor *outputs, int32_t count, int64_t *const *shapes,
                                 int with_data);

/* Whether memory that is large enough serves the next run too. In tests (memory.c) each run gets what it asks for. */
#ifdef INGOT_GUARDED
#define INGOT_KEEPS_MEMORY 0
#else
#define INGOT_KEEPS_MEMORY 1
#endif

/* Memory aligned for any kernel, or NULL. Blocks of INGOT_HUGE_PAGE and more are mapped, so that freeing returns them. */
void *ingot_allocate(size_t bytes);
void ingot_free(void *block, size_t bytes);

/* Makes a slot at least `bytes` and at most `most` bytes large; with `keep` its contents stay. 0 when there is no memory: the
 * slot is as it was. */
int32_t ingot_reserve(ingot_slot *slot, int64_t bytes, int32_t keep, size_t most);
/* Bytes of all slots; frees them. */
size_t ingot_slots_size(const ingot_slot *slots, int32_t count);
void ingot_free_slots(ingot_slot *slots, int32_t count);

/* Opens the parts of other code generators; `states` has room for one of each kernel. `opened`: as many kernels as there is something to
 * close of, also where it fails. */
ingot_status ingot_open_parts(void **states, int32_t *opened, const char *weights, int32_t threads, char *error);
void ingot_close_parts(void *const *states, int32_t opened);

/* From here on this thread does with denormal numbers what the model asks for. The result goes to ingot_restore_float_mode,
 * which gives the thread back as it was: it belongs to the host. */
uint64_t ingot_enter_float_mode(void);
void ingot_restore_float_mode(uint64_t before);

/* NULL when this CPU has every feature of the comma-separated list of LLVM names, else the first that it lacks.
 * `name` holds it. Features that cannot be asked for on this architecture count as present. */
const char *ingot_missing_feature(const char *features, char *name, size_t capacity);

#pragma GCC visibility pop

#endif
