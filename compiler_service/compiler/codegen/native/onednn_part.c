/* onednn_part.c - a part of a model by oneDNN (https://github.com/uxlfoundation/oneDNN, C API of version 3), found at run time.
 *
 * Behind this text the code generator writes what the part consists of: `the_library`, `tensors`, `steps` and the counts, and the
 * ingot_part. Nothing of oneDNN is needed to compile it; types and numbers are those of its dnnl.h and dnnl_types.h. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ingot_part.h"

/* Whoever loads a model has it, a static program has not: then the part cannot be opened. */
extern void *dlopen(const char *name, int mode) __attribute__((weak));
extern void *dlsym(void *library, const char *name) __attribute__((weak));
#define LAZY_AND_LOCAL 1

#define MAX_RANK 5
#define MAX_SPATIAL 3
enum { ANY = 1, CPU = 1, FLOAT32 = 3, INFERENCE = 96, CONVOLUTION_AUTO = 3, RELU = 32 };
enum { SOURCE_MD = 129, WEIGHTS_MD = 131, RESULT_MD = 133 };
enum { SOURCE = 1, RESULT = 17, WEIGHTS = 33, BIAS = 41 };
#define OF_THE_LIBRARY ((void *)(size_t)-1) /* memory that oneDNN allocates */

/* What the code generator writes: inputs, constants, the result, then what is between steps. Extents below 0 are symbols: -1 the
 * first, -2 the second, ...; those of what steps compute follow from the others. */
typedef struct {
  int32_t rank;
  int64_t extents[MAX_RANK];
} tensor_info;

typedef struct {
  int32_t is_convolution, source, weights, bias, result; /* tensors; no bias: -1 */
  int32_t relu, transposed;                              /* transposed: weights are [n, k] */
  int64_t groups, strides[MAX_SPATIAL], dilations[MAX_SPATIAL], before[MAX_SPATIAL], after[MAX_SPATIAL];
} step_info;

typedef struct {
  const char *library, *name;
  const tensor_info *tensors;
  const step_info *steps;
  int32_t input_count, constant_count, tensor_count, step_count, symbol_count;
} part_info;

typedef struct opaque *handle;
typedef int status; /* 0: success */

/* The functions of oneDNN that are used, in the order of `names`. */
typedef struct {
  status (*engine_create)(handle *, int, size_t);
  status (*engine_destroy)(handle);
  status (*stream_create)(handle *, handle, unsigned);
  status (*stream_destroy)(handle);
  status (*stream_wait)(handle);
  status (*desc_with_tag)(handle *, int, const int64_t *, int, int);
  status (*desc_with_strides)(handle *, int, const int64_t *, int, const int64_t *);
  int (*desc_equal)(handle, handle);
  status (*desc_destroy)(handle);
  status (*memory_create)(handle *, handle, handle, void *);
  status (*memory_desc)(handle, handle *);
  status (*memory_set)(handle, void *);
  status (*memory_get)(handle, void **);
  status (*memory_destroy)(handle);
  status (*attr_create)(handle *);
  status (*attr_set_post_ops)(handle, handle);
  status (*attr_destroy)(handle);
  status (*post_ops_create)(handle *);
  status (*post_ops_append)(handle, int, float, float);
  status (*post_ops_destroy)(handle);
  status (*matmul)(handle *, handle, handle, handle, handle, handle, handle);
  status (*convolution)(handle *, handle, int, int, handle, handle, handle, handle, const int64_t *, const int64_t *,
                        const int64_t *, const int64_t *, handle);
  status (*reorder)(handle *, handle, handle, handle, handle, handle);
  handle (*query)(handle, int, int);
  status (*pd_destroy)(handle);
  status (*primitive_create)(handle *, handle);
  status (*execute)(handle, handle, int, const void *);
  status (*primitive_destroy)(handle);
} functions;

static const char *const names[] = {
    "dnnl_engine_create", "dnnl_engine_destroy", "dnnl_stream_create", "dnnl_stream_destroy", "dnnl_stream_wait",
    "dnnl_memory_desc_create_with_tag", "dnnl_memory_desc_create_with_strides", "dnnl_memory_desc_equal",
    "dnnl_memory_desc_destroy", "dnnl_memory_create", "dnnl_memory_get_memory_desc", "dnnl_memory_set_data_handle",
    "dnnl_memory_get_data_handle", "dnnl_memory_destroy",
    "dnnl_primitive_attr_create", "dnnl_primitive_attr_set_post_ops", "dnnl_primitive_attr_destroy",
    "dnnl_post_ops_create", "dnnl_post_ops_append_eltwise", "dnnl_post_ops_destroy",
    "dnnl_matmul_primitive_desc_create", "dnnl_convolution_forward_primitive_desc_create",
    "dnnl_reorder_primitive_desc_create", "dnnl_primitive_desc_query_md", "dnnl_primitive_desc_destroy",
    "dnnl_primitive_create", "dnnl_primitive_execute", "dnnl_primitive_destroy"};

typedef struct {
  int argument;
  handle memory;
} argument;

/* One primitive with what it is called with. */
typedef struct {
  handle primitive;
  argument arguments[4];
  int count;
} call;

/* A tensor in some layout; `desc` belongs to the memory. */
typedef struct {
  handle memory, desc;
} place;

/* Memory of an input or of the result, which each run says anew where it lies. */
typedef struct {
  handle memory;
  int32_t buffer;
} bound_memory;

typedef struct {
  void *items;
  int32_t count, room;
} list;

typedef struct {
  const part_info *part;
  functions api;
  int32_t threads;
  void (*set_threads)(int); /* of the OpenMP that the library brings; NULL: it has another kind of threads, and decides itself */
  int (*get_threads)(void);
  handle engine, stream;
  const void **constants;
  int64_t *symbols;
  int64_t (*extents)[MAX_RANK]; /* by tensor */
  int is_prepared;
  place *current; /* by tensor: what computed it, with all its axes; none where only a run, or the weights, say where it lies */
  list memories, bound, calls; /* of handle, bound_memory, call */
} state;

enum { NO_MEMORY = 2, INCOMPATIBLE = 3, INTERNAL = 4 }; /* of ingot_status */
#define OUT_OF_MEMORY 1                                 /* of dnnl_status_t */

#define TRY(expression)         \
  do {                          \
    status tried = (expression); \
    if (tried) return tried;    \
  } while (0)

static int32_t fail(char *error, int32_t code, const part_info *part, const char *what, const char *detail) {
  snprintf(error, INGOT_PART_ERROR_BYTES, "the part '%s' is computed by oneDNN: %s %s", part->name, what, detail);
  return code;
}

static int32_t fail_with(char *error, const part_info *part, const char *what, status found) {
  char number[16];
  snprintf(number, sizeof(number), "%d", found);
  return fail(error, found == OUT_OF_MEMORY ? NO_MEMORY : INTERNAL, part, what, number);
}

/* A new item at the end, zeroed; NULL: no memory. */
static void *add(list *own, size_t size) {
  if (own->count == own->room) {
    int32_t room = 2 * own->room + 8;
    void *grown = realloc(own->items, size * (size_t)room);
    if (!grown) return NULL;
    own->items = grown;
    own->room = room;
  }
  void *item = (char *)own->items + size * (size_t)own->count++;
  return memset(item, 0, size);
}

/* ---- memory ---- */

static int is_constant(const part_info *part, int32_t tensor) {
  return tensor >= part->input_count && tensor < part->input_count + part->constant_count;
}

static int is_between(const part_info *part, int32_t tensor) {
  return tensor > part->input_count + part->constant_count;
}

static void resolve_extents(state *s) {
  for (int32_t tensor = 0; tensor < s->part->tensor_count; tensor++) {
    for (int32_t i = 0; i < MAX_RANK; i++) {
      int64_t extent = s->part->tensors[tensor].extents[i];
      s->extents[tensor][i] = extent < 0 ? s->symbols[-1 - extent] : extent;
    }
  }
}

static status plain_desc(const state *s, handle *desc, int rank, const int64_t *extents) {
  int64_t strides[MAX_RANK + 1], stride = 1;
  for (int i = rank - 1; i >= 0; i--) {
    strides[i] = stride;
    stride *= extents[i];
  }
  return s->api.desc_with_strides(desc, rank, extents, FLOAT32, strides);
}

static status make_memory(state *s, handle desc, void *data, place *made) {
  handle *own = add(&s->memories, sizeof(handle));
  if (!own) return OUT_OF_MEMORY;
  TRY(s->api.memory_create(own, desc, s->engine, data));
  made->memory = *own;
  return s->api.memory_desc(*own, &made->desc);
}

/* The bytes of `tensor`, which are row-major or seen with `strides`, with these extents. */
static status seen_as(state *s, int32_t tensor, int rank, const int64_t *extents, const int64_t *strides, place *made) {
  const part_info *part = s->part;
  handle desc = NULL;
  void *data = NULL;
  if (is_between(part, tensor)) TRY(s->api.memory_get(s->current[tensor].memory, &data));
  if (is_constant(part, tensor)) data = (void *)(uintptr_t)s->constants[tensor - part->input_count];
  TRY(strides ? s->api.desc_with_strides(&desc, rank, extents, FLOAT32, strides) : plain_desc(s, &desc, rank, extents));
  status found = make_memory(s, desc, data, made);
  s->api.desc_destroy(desc);
  if (found || data) return found;
  bound_memory *own = add(&s->bound, sizeof(bound_memory));
  if (!own) return OUT_OF_MEMORY;
  own->memory = made->memory;
  own->buffer = tensor;
  return 0;
}

/* ---- calls ---- */

static status add_call(state *s, handle pd, const argument *arguments, int count) {
  call *own = add(&s->calls, sizeof(call));
  if (!own) return OUT_OF_MEMORY;
  memcpy(own->arguments, arguments, sizeof(argument) * (size_t)count);
  own->count = count;
  return s->api.primitive_create(&own->primitive, pd);
}

static status run_call(const state *s, const call *own) {
  return s->api.execute(own->primitive, s->stream, own->count, own->arguments);
}

static status copy(state *s, place from, place to) {
  handle pd = NULL;
  argument arguments[] = {{SOURCE, from.memory}, {RESULT, to.memory}};
  TRY(s->api.reorder(&pd, from.desc, s->engine, to.desc, s->engine, NULL));
  status found = add_call(s, pd, arguments, 2);
  s->api.pd_destroy(pd);
  return found;
}

/* `tensor` in the layout `desc`. */
static status reordered(state *s, place *tensor, handle desc) {
  place from = *tensor;
  if (s->api.desc_equal(from.desc, desc)) return 0;
  TRY(make_memory(s, desc, OF_THE_LIBRARY, tensor));
  return copy(s, from, *tensor);
}

/* Constants are brought into their layout here and now, and not in every run. */
static status packed(state *s, place *tensor, handle desc) {
  int32_t before = s->calls.count;
  TRY(reordered(s, tensor, desc));
  if (s->calls.count == before) return 0;
  call *own = (call *)s->calls.items + before;
  TRY(run_call(s, own));
  TRY(s->api.stream_wait(s->stream));
  s->calls.count = before;
  return s->api.primitive_destroy(own->primitive);
}

/* ---- steps ---- */

typedef struct {
  int rank, weights_rank, bias_rank;
  int64_t source[MAX_RANK + 1], weights[MAX_RANK + 1], bias[MAX_RANK + 1], result[MAX_RANK + 1];
} geometry;

/* A product of matrices: all axes of the source but the last are rows. */
static void of_product(const state *s, const step_info *step, geometry *g) {
  const int64_t *source = s->extents[step->source], *weights = s->extents[step->weights];
  int64_t *result = s->extents[step->result];
  int32_t rank = s->part->tensors[step->source].rank;
  g->rank = g->weights_rank = g->bias_rank = 2;
  g->source[0] = g->bias[0] = 1;
  for (int32_t i = 0; i < rank - 1; i++) g->source[0] *= source[i];
  g->source[1] = g->weights[0] = weights[step->transposed ? 1 : 0];
  g->result[0] = g->source[0];
  g->result[1] = g->weights[1] = g->bias[1] = weights[step->transposed ? 0 : 1];
  for (int32_t i = 0; i < rank - 1; i++) result[i] = source[i];
  result[rank - 1] = g->result[1];
}

static void of_convolution(const state *s, const step_info *step, geometry *g) {
  const int64_t *source = s->extents[step->source], *weights = s->extents[step->weights];
  int64_t *result = s->extents[step->result];
  int grouped = step->groups > 1;
  g->rank = s->part->tensors[step->source].rank;
  g->weights_rank = g->rank + grouped;
  g->bias_rank = 1;
  g->bias[0] = weights[0];
  g->weights[0] = step->groups;
  g->weights[grouped] = weights[0] / step->groups;
  for (int i = 1; i < g->rank; i++) g->weights[grouped + i] = weights[i];
  result[0] = source[0];
  result[1] = weights[0];
  for (int i = 0; i < g->rank - 2; i++) {
    int64_t window = (weights[2 + i] - 1) * (step->dilations[i] + 1) + 1;
    result[2 + i] = (source[2 + i] + step->before[i] + step->after[i] - window) / step->strides[i] + 1;
  }
  for (int i = 0; i < g->rank; i++) {
    g->source[i] = source[i];
    g->result[i] = result[i];
  }
}

static status ending_in_relu(const state *s, const step_info *step, handle *attr) {
  handle operations = NULL;
  if (!step->relu) return 0;
  TRY(s->api.attr_create(attr));
  TRY(s->api.post_ops_create(&operations));
  status found = s->api.post_ops_append(operations, RELU, 0.0f, 0.0f);
  if (!found) found = s->api.attr_set_post_ops(*attr, operations);
  s->api.post_ops_destroy(operations);
  return found;
}

typedef struct {
  handle source, weights, bias, result, attr;
} wishes;

static status wish(const state *s, const step_info *step, const geometry *g, wishes *w) {
  const functions *api = &s->api;
  TRY(api->desc_with_tag(&w->weights, g->weights_rank, g->weights, FLOAT32, ANY));
  if (step->bias >= 0) TRY(plain_desc(s, &w->bias, g->bias_rank, g->bias));
  TRY(ending_in_relu(s, step, &w->attr));
  if (!step->is_convolution) {
    TRY(plain_desc(s, &w->source, g->rank, g->source));
    return plain_desc(s, &w->result, g->rank, g->result);
  }
  TRY(api->desc_with_tag(&w->source, g->rank, g->source, FLOAT32, ANY));
  return api->desc_with_tag(&w->result, g->rank, g->result, FLOAT32, ANY);
}

/* The primitive of a step. It chooses the layout of the weights, and around convolutions the others. */
static status choose(const state *s, const step_info *step, const geometry *g, handle *pd) {
  const functions *api = &s->api;
  wishes w = {NULL, NULL, NULL, NULL, NULL};
  status found = wish(s, step, g, &w);
  if (!found && step->is_convolution) {
    found = api->convolution(pd, s->engine, INFERENCE, CONVOLUTION_AUTO, w.source, w.weights, w.bias, w.result,
                             step->strides, step->dilations, step->before, step->after, w.attr);
  } else if (!found) {
    found = api->matmul(pd, s->engine, w.source, w.weights, w.bias, w.result, w.attr);
  }
  handle descs[] = {w.source, w.weights, w.bias, w.result};
  for (int i = 0; i < 4; i++) {
    if (descs[i]) api->desc_destroy(descs[i]);
  }
  if (w.attr) api->attr_destroy(w.attr);
  return found;
}

/* What was computed with all axes of the tensor, row-major, so that it can be seen with others. */
static status make_plain(state *s, int32_t tensor) {
  handle desc = NULL;
  TRY(plain_desc(s, &desc, s->part->tensors[tensor].rank, s->extents[tensor]));
  status found = s->current[tensor].memory ? reordered(s, &s->current[tensor], desc)
                                           : make_memory(s, desc, OF_THE_LIBRARY, &s->current[tensor]);
  s->api.desc_destroy(desc);
  return found;
}

static status source_of(state *s, const step_info *step, const geometry *g, handle desc, place *source) {
  if (is_between(s->part, step->source) && step->is_convolution) {
    TRY(reordered(s, &s->current[step->source], desc));
    *source = s->current[step->source];
    return 0;
  }
  if (is_between(s->part, step->source)) TRY(make_plain(s, step->source));
  TRY(seen_as(s, step->source, g->rank, g->source, NULL, source));
  return reordered(s, source, desc);
}

static status weights_of(state *s, const step_info *step, const geometry *g, handle desc, place *weights) {
  int64_t transposed[] = {1, g->weights[0]};
  TRY(seen_as(s, step->weights, g->weights_rank, g->weights, step->transposed ? transposed : NULL, weights));
  return packed(s, weights, desc);
}

/* Where a step writes. A convolution whose layout is not row-major writes beside the result, and is copied there. */
static status result_of(state *s, const step_info *step, const geometry *g, handle desc, place *written, place *copied) {
  if (is_between(s->part, step->result)) {
    if (!step->is_convolution) {
      TRY(make_plain(s, step->result));
      return seen_as(s, step->result, g->rank, g->result, NULL, written);
    }
    TRY(make_memory(s, desc, OF_THE_LIBRARY, written));
    s->current[step->result] = *written;
    return 0;
  }
  TRY(seen_as(s, step->result, g->rank, g->result, NULL, written));
  if (s->api.desc_equal(written->desc, desc)) return 0;
  *copied = *written;
  return make_memory(s, desc, OF_THE_LIBRARY, written);
}

static status bind(state *s, const step_info *step, const geometry *g, handle pd) {
  place source, weights, written, bias = {NULL, NULL}, copied = {NULL, NULL};
  const functions *api = &s->api;
  TRY(source_of(s, step, g, api->query(pd, SOURCE_MD, 0), &source));
  TRY(weights_of(s, step, g, api->query(pd, WEIGHTS_MD, 0), &weights));
  if (step->bias >= 0) TRY(seen_as(s, step->bias, g->bias_rank, g->bias, NULL, &bias));
  TRY(result_of(s, step, g, api->query(pd, RESULT_MD, 0), &written, &copied));
  argument arguments[] = {
      {SOURCE, source.memory}, {WEIGHTS, weights.memory}, {RESULT, written.memory}, {BIAS, bias.memory}};
  TRY(add_call(s, pd, arguments, step->bias >= 0 ? 4 : 3));
  return copied.memory ? copy(s, written, copied) : 0;
}

static status prepare(state *s) {
  resolve_extents(s);
  for (int32_t i = 0; i < s->part->step_count; i++) {
    const step_info *step = &s->part->steps[i];
    geometry g;
    handle pd = NULL;
    memset(&g, 0, sizeof(g));
    if (step->is_convolution) {
      of_convolution(s, step, &g);
    } else {
      of_product(s, step, &g);
    }
    TRY(choose(s, step, &g, &pd));
    status found = bind(s, step, &g, pd);
    s->api.pd_destroy(pd);
    if (found) return found;
  }
  s->is_prepared = 1;
  return 0;
}

static void forget(state *s) {
  const functions *api = &s->api;
  for (int32_t i = 0; i < s->calls.count; i++) {
    handle primitive = ((call *)s->calls.items)[i].primitive;
    if (primitive) api->primitive_destroy(primitive);
  }
  for (int32_t i = 0; i < s->memories.count; i++) {
    handle memory = ((handle *)s->memories.items)[i];
    if (memory) api->memory_destroy(memory);
  }
  s->calls.count = s->memories.count = s->bound.count = 0;
  memset(s->current, 0, sizeof(place) * (size_t)s->part->tensor_count);
  s->is_prepared = 0;
}

/* ---- ingot_part ---- */

static void close_part(void *opened) {
  state *s = opened;
  if (!s) return;
  if (s->current && s->api.engine_destroy) forget(s);
  if (s->stream) s->api.stream_destroy(s->stream);
  if (s->engine) s->api.engine_destroy(s->engine);
  free(s->calls.items);
  free(s->memories.items);
  free(s->bound.items);
  free((void *)s->constants);
  free(s->symbols);
  free(s->extents);
  free(s->current);
  free(s);
}

static int32_t find_functions(state *s, char *error) {
  const part_info *part = s->part;
  if (!dlopen || !dlsym) return fail(error, INCOMPATIBLE, part, "this program cannot load", part->library);
  void *library = dlopen(part->library, LAZY_AND_LOCAL); /* stays: others in this process may hold what it made */
  if (!library) return fail(error, INCOMPATIBLE, part, "there is no library", part->library);
  for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
    void *function = dlsym(library, names[i]);
    if (!function) return fail(error, INCOMPATIBLE, part, "the library is of another version: it lacks", names[i]);
    memcpy((char *)&s->api + i * sizeof(function), &function, sizeof(function));
  }
  void *set = dlsym(library, "omp_set_num_threads"), *get = dlsym(library, "omp_get_max_threads");
  memcpy(&s->set_threads, &set, sizeof(set));
  memcpy(&s->get_threads, &get, sizeof(get));
  return 0;
}

/* OpenMP counts for each thread that calls it; it has the `threads` it had before when the part is through. Returns those. */
static int with_threads(const state *s, int threads) {
  if (!s->set_threads || !s->get_threads) return 0;
  int before = s->get_threads();
  s->set_threads(threads);
  return before;
}

static int32_t start(state *s, const void *const *constants, char *error) {
  const part_info *part = s->part;
  s->constants = calloc((size_t)part->constant_count + 1, sizeof(*s->constants));
  s->symbols = calloc((size_t)part->symbol_count + 1, sizeof(*s->symbols));
  s->extents = calloc((size_t)part->tensor_count, sizeof(*s->extents));
  s->current = calloc((size_t)part->tensor_count, sizeof(*s->current));
  if (!s->constants || !s->symbols || !s->extents || !s->current) return fail(error, NO_MEMORY, part, "no memory for", "its state");
  for (int32_t i = 0; i < part->constant_count; i++) s->constants[i] = constants[i];
  int32_t code = find_functions(s, error);
  if (code) return code;
  int before = with_threads(s, s->threads);
  status found = s->api.engine_create(&s->engine, CPU, 0);
  if (!found) found = s->api.stream_create(&s->stream, s->engine, 1);
  if (!found && part->symbol_count == 0) found = prepare(s);
  with_threads(s, before);
  return found ? fail_with(error, part, "it could not be prepared, status", found) : 0;
}

static int32_t open_of(const part_info *part, const void *const *constants, int32_t threads, void **opened, char *error) {
  state *s = calloc(1, sizeof(*s));
  if (!s) return fail(error, NO_MEMORY, part, "no memory for", "its state");
  s->part = part;
  s->threads = threads;
  int32_t code = start(s, constants, error);
  if (code) {
    close_part(s);
    return code;
  }
  *opened = s;
  return 0;
}

static status run_steps(state *s, void *const *buffers) {
  status found = 0;
  if (!s->is_prepared) found = prepare(s);
  for (int32_t i = 0; !found && i < s->bound.count; i++) {
    const bound_memory *own = &((bound_memory *)s->bound.items)[i];
    found = s->api.memory_set(own->memory, buffers[own->buffer]);
  }
  for (int32_t i = 0; !found && i < s->calls.count; i++) found = run_call(s, &((call *)s->calls.items)[i]);
  return found ? found : s->api.stream_wait(s->stream);
}

static int32_t run_part(void *opened, void *const *buffers, const int64_t *symbols, char *error) {
  state *s = opened;
  for (int32_t i = 0; i < s->part->symbol_count; i++) {
    if (s->symbols[i] != symbols[i]) forget(s);
    s->symbols[i] = symbols[i];
  }
  int before = with_threads(s, s->threads);
  status found = run_steps(s, buffers);
  with_threads(s, before);
  if (!found) return 0;
  forget(s);
  return fail_with(error, s->part, "a run failed with status", found);
}

/* ---- written by the code generator ---- */
