// include/vitune/vitune.h -- The C interface of libvitune: tuned kernels for vision transformers.
//
// Plain C99. A program makes one context per GPU, describes an attention problem once and calls
// vitune_attention_forward() with device pointers and its own stream. The context finds the kernel
// in a database that `vitune tune` filled; a problem that was never tuned is served by the kernel
// predicted to be fastest among those tuned for its class, on a GPU that nobody tuned by a kernel
// made here by the config of a winner on a like GPU, else by a default one.
//
//   vitune_context* context = NULL;
//   vitune_context_create(NULL, &context);
//   vitune_attention_desc desc = VITUNE_ATTENTION_DESC_INIT;
//   desc.batch = 32, desc.heads = 12, desc.nq = desc.nk = 197, desc.d = 64;
//   desc.q = desc.k = desc.v = vitune_packed_strides(12, 197, 64);
//   desc.o = vitune_bnhd_strides(12, 197, 64);
//   vitune_attention_forward(context, &desc, q, k, v, NULL, NULL, out, NULL, NULL, 0, stream);
//
// Versions: every struct begins with its size in bytes, which the INIT macros fill in; fields are
// only ever added at the end, and zero means "as before". A newer library serves older programs.
//
// Errors: every function that can fail returns a vitune_status; vitune_last_error() then has a
// sentence. No call crashes on a bad argument that can be told from a good one without reading
// through the pointer of a tensor.
//
// Threads: a context may be used by any number of threads at once. vitune_context_destroy() must
// be the last call on it. See docs/using_the_library.md on streams, graphs and errors.
// SPDX-License-Identifier: Apache-2.0
#ifndef VITUNE_VITUNE_H_
#define VITUNE_VITUNE_H_

#include <stddef.h>
#include <stdint.h>

#define VITUNE_VERSION_MAJOR 0
#define VITUNE_VERSION_MINOR 1
#define VITUNE_VERSION_PATCH 0

#if defined(__GNUC__)
#define VITUNE_API __attribute__((visibility("default")))
#else
#define VITUNE_API
#endif

// Marks functions whose status must be looked at: a compiler warns where it is dropped.
#if (defined(__cplusplus) && __cplusplus >= 201703L) || \
    (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 202311L)
#define VITUNE_NODISCARD [[nodiscard]]
#elif defined(__GNUC__)
#define VITUNE_NODISCARD __attribute__((warn_unused_result))
#else
#define VITUNE_NODISCARD
#endif

#ifdef __cplusplus
extern "C" {
#endif

// The result of a call.
typedef int32_t vitune_status;
enum {
  VITUNE_OK = 0,
  VITUNE_INVALID_ARGUMENT = 1,  // null, misaligned, overlapping, contradictory, wrong size
  VITUNE_UNSUPPORTED = 2,       // well formed, but outside what the kernels do
  VITUNE_NO_DEVICE = 3,         // no driver, no such GPU, or a pointer of another one
  VITUNE_NOT_PREPARED = 4,     // nothing is loaded for this problem, and loading is not allowed now
  VITUNE_NO_COMPILER = 5,      // no stored kernel fits and libnvrtc cannot be opened
  VITUNE_DATABASE = 6,         // the database is damaged, foreign, newer or locked
  VITUNE_DEVICE_ERROR = 7,     // a call of the CUDA driver failed
  VITUNE_INVALID_CONTEXT = 8,  // null, destroyed, or made before a fork()
  VITUNE_OUT_OF_MEMORY = 9,    // host memory
  VITUNE_DISABLED = 10,        // VITUNE_DISABLE is set in the environment
  VITUNE_INTERNAL = 11         // a fault of the library: please report it
};

// Element types. q, k, v and out are VITUNE_BF16 or VITUNE_FP16; the others are
// VITUNE_UNSUPPORTED there. VITUNE_U8: whole numbers from 0 to 255; VITUNE_I32: offsets.
typedef int32_t vitune_dtype;
enum {
  VITUNE_NONE = 0,
  VITUNE_BF16 = 1,
  VITUNE_FP16 = 2,
  VITUNE_FP32 = 3,
  VITUNE_BOOL = 4,
  VITUNE_U8 = 5,
  VITUNE_I32 = 6
};

// The choice of a kernel for a problem without a verified winner of its own.
typedef int32_t vitune_on_miss;
enum {
  VITUNE_ON_MISS_ENVIRONMENT = 0,  // as VITUNE_MISS says; nearest if that is not set
  VITUNE_ON_MISS_NEAREST = 1,      // the tuned kernel predicted to be fastest, else a default one
  VITUNE_ON_MISS_DEFAULT = 2,      // always a default kernel
  VITUNE_ON_MISS_COMPILE = 3,      // as nearest, but if no kernel of the best choice is stored, it
                                   // is compiled, even where a lesser choice has a stored one
  VITUNE_ON_MISS_ERROR = 4         // VITUNE_NOT_PREPARED
};

// The behaviour of other threads while one loads the kernel of a problem for the first time.
typedef int32_t vitune_on_busy;
enum { VITUNE_ON_BUSY_WAIT = 0, VITUNE_ON_BUSY_DEFAULT = 1 };

// Which of the two timings chose the winner.
typedef int32_t vitune_objective;
enum { VITUNE_COLD = 0, VITUNE_WARM = 1 };

// How a kernel was found.
typedef int32_t vitune_outcome;
enum {
  VITUNE_EXACT = 1,       // tuned for this very problem on this kind of GPU
  VITUNE_NEAREST = 2,     // tuned for another problem of its class, predicted to be fastest here
  VITUNE_DEFAULT = 3,     // not tuned
  VITUNE_TRANSFERRED = 4  // not tuned on this kind of GPU; the config of a winner on a like one
};

// How grave a message is.
typedef int32_t vitune_log_level;
enum { VITUNE_LOG_DEBUG = 0, VITUNE_LOG_INFO = 1, VITUNE_LOG_WARNING = 2, VITUNE_LOG_ERROR = 3 };

// Receives the library's messages, from any thread, one at a time per context; it must not call
// back into the context. `message` is UTF-8, valid during the call only.
typedef void (*vitune_log_callback)(void* user, vitune_log_level level, const char* message);

// How a context works. All zeros but `size` is a good choice.
typedef struct vitune_context_options {
  size_t size;                   // sizeof(vitune_context_options)
  int32_t device;                // ordinal of the GPU, as the driver counts
  vitune_objective objective;    // VITUNE_COLD or VITUNE_WARM
  vitune_on_miss on_miss;        // VITUNE_ON_MISS_...
  vitune_on_busy on_busy;        // VITUNE_ON_BUSY_...
  int32_t read_only;             // 1: never writes the database, not even what was missed
  int32_t no_compile;            // 1: never opens libnvrtc; only stored kernels are used
  int32_t check_pointers;        // 1: asks the driver about every pointer of every call (slow); 0:
                                 // of the first call of each problem only
  int32_t refresh_seconds;       // > 0: one thread looks for new winners that often; 0: only
                                 // vitune_context_refresh() does
  const char* database;          // path; NULL: VITUNE_DB and so on (docs/environment.md)
  const char* shipped_database;  // read-only layer below it; NULL: the one installed with the
                                 // library, "": none
  vitune_log_callback log;       // NULL: warnings and errors go to stderr
  void* log_user;
  int32_t lock_wait_ms;  // how long a database that another process writes to is waited for; 0: 250
  uint32_t trust_owner;  // > 0: a database may also be this user's (number as in stat(2)); 0: only
                         // the own one's and root's. Whoever writes it decides what the GPU runs
} vitune_context_options;
#define VITUNE_CONTEXT_OPTIONS_INIT \
  { sizeof(vitune_context_options), 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, 0, 0 }

// Strides in elements of a [batch, head, row, d] tensor whose last dimension is contiguous.
typedef struct vitune_strides {
  int64_t batch;
  int64_t head;
  int64_t row;
} vitune_strides;

// An attention problem: out = softmax(scale * q k^T + bias, where mask and causal leave) v.
//
// Shapes: q, out [batch, heads, nq, d]; k, v [batch, kv_heads, nk, d]; bias and mask broadcast to
// [batch, heads, nq, nk]; lse [batch, heads, nq], fp32, contiguous. The sums and the softmax are
// fp32. Semantics are those of PyTorch's scaled_dot_product_attention with causal aligned top left;
// a row without any key gives 0, and -inf as its log-sum-exp.
typedef struct vitune_attention_desc {
  size_t size;         // sizeof(vitune_attention_desc)
  vitune_dtype dtype;  // VITUNE_BF16 or VITUNE_FP16
  int32_t causal;      // 1: query i sees keys 0..i
  int64_t batch;       // >= 1
  int64_t heads;       // >= 1
  int64_t kv_heads;    // divides heads; 0: as many as heads
  int64_t nq;          // query rows
  int64_t nk;          // key rows
  int64_t d;           // head size of q and k: 8 to 128 in steps of 8
  int64_t dv;          // head size of v and out; 0: d. Must equal d
  double scale;        // of q k^T; 0: 1 / sqrt(d)
  vitune_strides q, k, v, o;
  vitune_dtype bias_type;   // VITUNE_NONE or a floating type; added after scaling
  vitune_dtype mask_type;   // VITUNE_NONE or VITUNE_BOOL: one byte, nonzero = attend
  int64_t bias_batches;     // batch entries of bias: batch b uses entry b % bias_batches; 0: batch
  int64_t mask_batches;     // the same of mask
  int64_t bias_strides[4];  // of batch entry, head, query row, key, in elements; 0 broadcasts
  int64_t mask_strides[4];
  int32_t lse;        // 1: also writes the natural log-sum-exp of each row
  int32_t alignment;  // vitune_prepare, vitune_query: what q, k, v, o will be aligned to, in
                      // bytes: 2, 4, 8 or 16; 0: 16. A call looks at its pointers instead
  // Sizes of the buffers in bytes, counted from the pointers; 0: not stated. What is stated is
  // checked by every function: a view beyond its buffer is VITUNE_INVALID_ARGUMENT.
  int64_t q_bytes, k_bytes, v_bytes, o_bytes, bias_bytes, mask_bytes, lse_bytes;
} vitune_attention_desc;
#define VITUNE_ATTENTION_DESC_INIT                                                                 \
  {                                                                                                \
    sizeof(vitune_attention_desc), VITUNE_BF16, 0, 1, 1, 0, 1, 1, 64, 0, 0.0, {0, 0, 0},           \
        {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, 0, 0, 0, 0, {0, 0, 0, 0}, {0, 0, 0, 0}, 0, 0, 0, 0, 0, 0, \
        0, 0, 0                                                                                    \
  }

// Which kernel serves a problem, from which row, and why. Texts are UTF-8 and end with 0.
typedef struct vitune_selection {
  size_t size;              // sizeof(vitune_selection)
  vitune_outcome outcome;   // VITUNE_EXACT, VITUNE_NEAREST, VITUNE_DEFAULT or VITUNE_TRANSFERRED
  int32_t loaded;           // 1: a call of this problem needs nothing more
  int32_t compiled;         // 1: compiled by this process; 0: from a database
  int32_t low_confidence;   // 1: clocks or neighbours moved while the row was measured
  double cold_us, warm_us;  // of the row, on its own problem; 0: not measured on this kind of GPU
  double predicted_us;      // of this problem; 0: not predicted
  double max_error, rms_error;  // of the row against fp64, absolute; negative: not known
  char problem[1024];           // canonical text of the problem that was asked
  char row[1024];               // canonical text of the row's problem; empty for VITUNE_DEFAULT
  char config[512];             // "family=sm80.resident kBlockN=104 ..."
  char kernel_key[72];          // 64 hexadecimal digits
  char source[32];              // where the row is: "user", "site", "shipped"; or empty
  char reason[512];             // why this one; then how many were passed over, and the first why
} vitune_selection;
#define VITUNE_SELECTION_INIT \
  { sizeof(vitune_selection), 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, "", "", "", "", "", "" }

// Counts of what a context has done so far.
typedef struct vitune_stats {
  size_t size;           // sizeof(vitune_stats)
  uint64_t exact_calls;  // launches, by how their kernel was found
  uint64_t nearest_calls;
  uint64_t default_calls;
  uint64_t failed_calls;  // calls of vitune_attention_forward() that launched nothing
  uint64_t problems;      // different problems (with their alignment) that were asked for
  uint64_t kernels_loaded;
  uint64_t kernels_compiled;
  uint64_t rejected;            // stored kernels that were passed over: damaged, for another
                                // architecture, of other sources, or refused by the driver
  uint64_t without_block_list;  // how often the databases were opened and the user's block list
                                // could not be read whole: from then on default kernels only
  uint64_t transferred_calls;   // launches of kernels by VITUNE_TRANSFERRED
} vitune_stats;
#define VITUNE_STATS_INIT \
  { sizeof(vitune_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

typedef struct vitune_context vitune_context;

// The version of the library that is loaded: major * 10000 + minor * 100 + patch.
VITUNE_API int32_t vitune_version(void);

// The name of a status, "VITUNE_OK" and so on; never NULL.
VITUNE_API const char* vitune_status_name(vitune_status status);

// One sentence on the last call of this thread that did not return VITUNE_OK: what was tried, on
// what, what to do. Empty before that. Valid until the thread's next call.
VITUNE_API const char* vitune_last_error(void);

// Opens the driver and the databases and retains the GPU's primary context (so that it works beside
// the CUDA runtime and PyTorch). `options` may be NULL. On failure *context is NULL. A database
// that cannot be used is not a failure: one warning, and the context serves without it; where it is
// the user's, with the list of kernels that must not run, default kernels are all it serves. The
// library stays loaded to the end of the process: dlclose() leaves it and its contexts as they are.
VITUNE_NODISCARD VITUNE_API vitune_status
vitune_context_create(const vitune_context_options* options, vitune_context** context);

// Writes what vitune_context_flush() would, unloads the kernels and ends the context. Graphs that
// captured its launches must not be replayed afterwards. NULL and a context that is destroyed
// already are VITUNE_INVALID_CONTEXT, without harm.
VITUNE_API vitune_status vitune_context_destroy(vitune_context* context);

// Finds the kernel of a problem and loads it, compiling it if need be, so that a later call only
// launches: before the first call, and before a capture.
VITUNE_NODISCARD VITUNE_API vitune_status vitune_prepare(vitune_context* context,
                                                         const vitune_attention_desc* desc);

// How many bytes of scratch memory a call of the problem needs on this device, mostly 0. Prepares
// the problem. New winners may need more: ask again after vitune_context_refresh().
VITUNE_NODISCARD VITUNE_API vitune_status vitune_workspace_bytes(vitune_context* context,
                                                                 const vitune_attention_desc* desc,
                                                                 size_t* bytes);

// Launches attention on `stream` (a CUstream or cudaStream_t; NULL is the default stream) and
// returns at once. Pointers are device addresses; `bias`, `mask` and `lse` are NULL unless the
// description asks for them. `out` and `lse` must not overlap anything else.
//
// `workspace` is scratch memory of the caller's, of at least vitune_workspace_bytes() and aligned
// to 256 bytes; NULL and 0 where a call needs none. It must not overlap a tensor. What it holds
// before does not matter. Calls on one stream may share it; two that run at the same time must not:
// kernels wait for each other's CTAs through it, and might never end.
//
// The first call of a problem prepares it. While `stream` is being captured nothing is loaded: then
// an unprepared problem is VITUNE_NOT_PREPARED, and the capture goes on.
VITUNE_NODISCARD VITUNE_API vitune_status vitune_attention_forward(
    vitune_context* context, const vitune_attention_desc* desc, const void* q, const void* k,
    const void* v, const void* bias, const void* mask, void* out, float* lse, void* workspace,
    size_t workspace_bytes, void* stream);

// Says which kernel would serve a problem. Loads and launches nothing.
VITUNE_NODISCARD VITUNE_API vitune_status vitune_query(vitune_context* context,
                                                       const vitune_attention_desc* desc,
                                                       vitune_selection* selection);

// The same for a problem of any operator given as text (docs/problems.md): to prepare it, to ask
// for its workspace, to say which kernel would serve it. Pointers are taken to be aligned as well
// as the text says.
VITUNE_NODISCARD VITUNE_API vitune_status vitune_prepare_text(vitune_context* context,
                                                              const char* problem);
VITUNE_NODISCARD VITUNE_API vitune_status vitune_workspace_bytes_text(vitune_context* context,
                                                                      const char* problem,
                                                                      size_t* bytes);
VITUNE_NODISCARD VITUNE_API vitune_status vitune_query_text(vitune_context* context,
                                                            const char* problem,
                                                            vitune_selection* selection);

// Says in some lines for people what a problem is and what would serve it: its tensors with what
// lies where, the least time that the device could take, the kernel and why it was chosen, what was
// passed over. Cut to fit `capacity` bytes with its final 0; `length`, if not NULL, receives the
// length of the whole text without the 0. Loads and launches nothing.
VITUNE_NODISCARD VITUNE_API vitune_status vitune_explain_text(vitune_context* context,
                                                              const char* problem, char* text,
                                                              size_t capacity, size_t* length);

// A problem of any operator, read from its text once and then called as often as one likes. It
// belongs to no context and is never changed, so that any thread may use it with any context.
typedef struct vitune_problem vitune_problem;

// Reads a text such as "norm bf16 m=6304 d=768 weight bias" (docs/problems.md).
VITUNE_NODISCARD VITUNE_API vitune_status vitune_problem_create(const char* text,
                                                                vitune_problem** problem);
// No call with it may be going on or follow. NULL is let pass.
VITUNE_API void vitune_problem_destroy(vitune_problem* problem);

// One tensor of a problem.
typedef struct vitune_tensor {
  size_t size;         // sizeof(vitune_tensor)
  char name[32];       // "x", "residual", "out"
  int32_t given;       // 0: the problem does without it, and its pointer is NULL
  int32_t output;      // 1: is written
  vitune_dtype type;   // VITUNE_BF16 to VITUNE_I32, never VITUNE_NONE
  int32_t alignment;   // of its pointer at least, in bytes
  int64_t extents[4];  // outermost dimension first; 1 where one element serves all
  int64_t strides[4];  // in elements
  int64_t bytes;       // from the pointer to one past the last element
} vitune_tensor;
#define VITUNE_TENSOR_INIT \
  { sizeof(vitune_tensor), "", 0, 0, 0, 0, {0, 0, 0, 0}, {0, 0, 0, 0}, 0 }

// How many tensors a call has, and the one at `place`, from 0 on. All problems of an operator have
// the same, in the same order: docs/problems.md lists them.
VITUNE_NODISCARD VITUNE_API vitune_status vitune_problem_tensors(const vitune_problem* problem,
                                                                 size_t* count);
VITUNE_NODISCARD VITUNE_API vitune_status vitune_problem_tensor(const vitune_problem* problem,
                                                                size_t place,
                                                                vitune_tensor* tensor);

// Launches the problem on `stream` as vitune_attention_forward() does. `tensors` are `count` device
// addresses, one for each of vitune_problem_tensors(), NULL where a tensor is not given; the last
// ones may be left out where they are not given, as by callers that know fewer. Outputs must not
// overlap anything else, but for those that docs/problems.md says may lie exactly on an input.
// `workspace`: of at least vitune_workspace_bytes_text() bytes, aligned to 256, apart from all
// tensors.
VITUNE_NODISCARD VITUNE_API vitune_status vitune_run(vitune_context* context,
                                                     const vitune_problem* problem,
                                                     void* const* tensors, size_t count,
                                                     void* workspace, size_t workspace_bytes,
                                                     void* stream);

// A model file (docs/model_file.md) that is open: its graph, and its weights on the context's
// device. The context must live longer. Any number of threads may ask it and make sessions.
typedef struct vitune_model vitune_model;

// Opens a file that vitune.export() wrote and checks all that it says; loads nothing yet.
VITUNE_NODISCARD VITUNE_API vitune_status vitune_model_open(vitune_context* context,
                                                            const char* path, vitune_model** model);
// Frees its weights. No session of it may be left. NULL is let pass.
VITUNE_API void vitune_model_destroy(vitune_model* model);

// How many inputs and results a pass has.
VITUNE_NODISCARD VITUNE_API vitune_status vitune_model_counts(const vitune_model* model,
                                                              size_t* inputs, size_t* outputs);

// The input at `place`, or behind the inputs the result, in a pass of `batch` images; it lies row
// after row. VITUNE_UNSUPPORTED where it has more than four dimensions.
VITUNE_NODISCARD VITUNE_API vitune_status vitune_model_tensor(const vitune_model* model,
                                                              size_t place, int64_t batch,
                                                              vitune_tensor* tensor);

// A text of the file: "source", "license", "vitune.preprocess" ...; "" where it has none. As
// vitune_explain_text() for `capacity` and `length`.
VITUNE_NODISCARD VITUNE_API vitune_status vitune_model_text(const vitune_model* model,
                                                            const char* key, char* text,
                                                            size_t capacity, size_t* length);

// A model's pass for one batch: kernels, one arena for all values, a CUDA graph.
typedef struct vitune_session vitune_session;

// How a session works. All zeros but `size` is a good choice.
typedef struct vitune_session_options {
  size_t size;       // sizeof(vitune_session_options)
  int32_t no_graph;  // 1: launches one by one in place of a CUDA graph
  int32_t reserved;  // 0
} vitune_session_options;
#define VITUNE_SESSION_OPTIONS_INIT \
  { sizeof(vitune_session_options), 0, 0 }

// Prepares all problems of a pass of `batch` images, loads the weights that it reads (once for all
// sessions of the model), takes memory for its values and runs once. `options` may be NULL.
VITUNE_NODISCARD VITUNE_API vitune_status
vitune_session_create(vitune_model* model, int64_t batch, const vitune_session_options* options,
                      vitune_session** session);
// Nothing that it was asked to run may be going on. NULL is let pass.
VITUNE_API void vitune_session_destroy(vitune_session* session);

// Runs the pass on `stream` and returns at once. `inputs` and `outputs` are device addresses, as
// many as vitune_model_counts() says; one that is NULL, or that of vitune_session_buffer(), is not
// copied. One thread and one stream at a time: a session has one arena.
VITUNE_NODISCARD VITUNE_API vitune_status vitune_session_run(vitune_session* session,
                                                             const void* const* inputs,
                                                             void* const* outputs, void* stream);

// The same for `images` images, 1 to the session's batch: of tensors that grow with the batch so
// many images are copied, and what the other rows hold does not count. VITUNE_UNSUPPORTED for fewer
// than the batch where results may depend on other images.
VITUNE_NODISCARD VITUNE_API vitune_status vitune_session_run_images(vitune_session* session,
                                                                    int64_t images,
                                                                    const void* const* inputs,
                                                                    void* const* outputs,
                                                                    void* stream);

// Makes the session again where the context has other kernels for it since (after
// vitune_context_refresh(), or by its own looks at the databases): `renewed`, which may be NULL, is
// then 1, and vitune_session_buffer() gives other addresses. Nothing that it was asked to run may
// be going on. After an error it is as it was.
VITUNE_NODISCARD VITUNE_API vitune_status vitune_session_refresh(vitune_session* session,
                                                                 int32_t* renewed);

// The steps of the session, a line each: the path of the module, a tab, the problem. As
// vitune_explain_text() for `capacity` and `length`.
VITUNE_NODISCARD VITUNE_API vitune_status vitune_session_text(const vitune_session* session,
                                                              char* text, size_t capacity,
                                                              size_t* length);

// Where the session has the input at `place`, or behind the inputs the result: to be written and
// read there between passes, without a copy.
VITUNE_NODISCARD VITUNE_API vitune_status vitune_session_buffer(const vitune_session* session,
                                                                size_t place, void** address);

// Device memory of all weights that the model has loaded, and of the session's values.
VITUNE_NODISCARD VITUNE_API vitune_status vitune_session_bytes(const vitune_session* session,
                                                               size_t* weights, size_t* arena);

VITUNE_API vitune_status vitune_context_stats(vitune_context* context, vitune_stats* stats);

// Looks whether the databases have changed and takes over new winners of problems in use. Kernels
// in use stay loaded until the context is destroyed, since captured graphs refer to them.
// `changed`, if not NULL, receives the number of problems that are now served by another kernel.
VITUNE_API vitune_status vitune_context_refresh(vitune_context* context, int32_t* changed);

// Writes to the user's database which problems were asked for without a winner of their own, how
// often, and the time they took as predicted: `vitune show --misses`, `vitune tune --from-misses`.
VITUNE_API vitune_status vitune_context_flush(vitune_context* context);

// The canonical text of a problem (docs/problems.md), cut to fit `capacity` bytes with its final 0.
// `length`, if not NULL, receives the length of the whole text without the 0.
VITUNE_NODISCARD VITUNE_API vitune_status vitune_problem_text(const vitune_attention_desc* desc,
                                                              char* text, size_t capacity,
                                                              size_t* length);

// The description of a problem given as text, "bf16 b=32 h=12 n=197 d=64" for example. `desc->size`
// must be set.
VITUNE_NODISCARD VITUNE_API vitune_status vitune_problem_parse(const char* text,
                                                               vitune_attention_desc* desc);

// Strides of the usual layouts: a [B,N,H,D] tensor, a [B,H,N,D] tensor, and q, k or v as views of
// one [B,N,3,H,D] tensor.
static inline vitune_strides vitune_bnhd_strides(int64_t heads, int64_t rows, int64_t d) {
  vitune_strides strides;
  strides.batch = rows * heads * d;
  strides.head = d;
  strides.row = heads * d;
  return strides;
}
static inline vitune_strides vitune_bhnd_strides(int64_t heads, int64_t rows, int64_t d) {
  vitune_strides strides;
  strides.batch = heads * rows * d;
  strides.head = rows * d;
  strides.row = d;
  return strides;
}
static inline vitune_strides vitune_packed_strides(int64_t heads, int64_t rows, int64_t d) {
  return vitune_bnhd_strides(3 * heads, rows, d);
}

#ifdef __cplusplus
}
#endif

#endif  // VITUNE_VITUNE_H_
