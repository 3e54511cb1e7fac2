# python/vitune/_runtime/structs.py -- The structs and enumerators of include/vitune/vitune.h, for ctypes.
# SPDX-License-Identifier: Apache-2.0
"""Field by field what the C header declares; tests/test_structs.py compares the two with a C compiler."""
from __future__ import annotations

import ctypes
from ctypes import c_char, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

VERSION = (0, 1, 0)

NONE, BF16, FP16, FP32, BOOL, U8, I32 = range(7)
ON_MISS = {"environment": 0, "nearest": 1, "default": 2, "compile": 3, "error": 4}
ON_BUSY = {"wait": 0, "default": 1}
OBJECTIVE = {"cold": 0, "warm": 1}
#: Outcomes of problems that are served by no winner of this GPU, neither their own nor a near problem's.
NOT_TUNED_HERE = ("default", "transferred")
OUTCOMES = {1: "exact", 2: "nearest", 3: "default", 4: "transferred"}

#: void (*)(void* user, int32_t level, const char* message)
LogCallback = ctypes.CFUNCTYPE(None, c_void_p, c_int32, c_char_p)


class ContextOptions(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("device", c_int32), ("objective", c_int32), ("on_miss", c_int32),
        ("on_busy", c_int32), ("read_only", c_int32), ("no_compile", c_int32), ("check_pointers", c_int32),
        ("refresh_seconds", c_int32), ("database", c_char_p), ("shipped_database", c_char_p),
        ("log", LogCallback), ("log_user", c_void_p), ("lock_wait_ms", c_int32), ("trust_owner", c_uint32),
    ]


class Strides(ctypes.Structure):
    """Strides in elements of a [batch, head, row, d] tensor whose last dimension is contiguous."""

    _fields_ = [("batch", c_int64), ("head", c_int64), ("row", c_int64)]


class Desc(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("dtype", c_int32), ("causal", c_int32), ("batch", c_int64), ("heads", c_int64),
        ("kv_heads", c_int64), ("nq", c_int64), ("nk", c_int64), ("d", c_int64), ("dv", c_int64),
        ("scale", c_double), ("q", Strides), ("k", Strides), ("v", Strides), ("o", Strides),
        ("bias_type", c_int32), ("mask_type", c_int32), ("bias_batches", c_int64), ("mask_batches", c_int64),
        ("bias_strides", c_int64 * 4), ("mask_strides", c_int64 * 4), ("lse", c_int32), ("alignment", c_int32),
        ("q_bytes", c_int64), ("k_bytes", c_int64), ("v_bytes", c_int64), ("o_bytes", c_int64),
        ("bias_bytes", c_int64), ("mask_bytes", c_int64), ("lse_bytes", c_int64),
    ]


class SelectionStruct(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("outcome", c_int32), ("loaded", c_int32), ("compiled", c_int32),
        ("low_confidence", c_int32), ("cold_us", c_double), ("warm_us", c_double), ("predicted_us", c_double),
        ("max_error", c_double), ("rms_error", c_double), ("problem", c_char * 1024), ("row", c_char * 1024),
        ("config", c_char * 512), ("kernel_key", c_char * 72), ("source", c_char * 32), ("reason", c_char * 512),
    ]


class StatsStruct(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("exact_calls", c_uint64), ("nearest_calls", c_uint64), ("default_calls", c_uint64),
        ("failed_calls", c_uint64), ("problems", c_uint64), ("kernels_loaded", c_uint64),
        ("kernels_compiled", c_uint64), ("rejected", c_uint64), ("without_block_list", c_uint64),
        ("transferred_calls", c_uint64),
    ]


class TensorStruct(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("name", c_char * 32), ("given", c_int32), ("output", c_int32), ("type", c_int32),
        ("alignment", c_int32), ("extents", c_int64 * 4), ("strides", c_int64 * 4), ("bytes", c_int64),
    ]


class SessionOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("no_graph", c_int32), ("reserved", c_int32)]


#: Name -> (result, arguments) of every function that the package calls.
FUNCTIONS = {
    "vitune_version": (c_int32, []),
    "vitune_status_name": (c_char_p, [c_int32]),
    "vitune_last_error": (c_char_p, []),
    "vitune_context_create": (c_int32, [ctypes.POINTER(ContextOptions), ctypes.POINTER(c_void_p)]),
    "vitune_context_destroy": (c_int32, [c_void_p]),
    "vitune_prepare": (c_int32, [c_void_p, ctypes.POINTER(Desc)]),
    "vitune_attention_forward": (c_int32, [c_void_p, ctypes.POINTER(Desc)] + [c_void_p] * 8 + [c_size_t, c_void_p]),
    "vitune_workspace_bytes": (c_int32, [c_void_p, ctypes.POINTER(Desc), ctypes.POINTER(c_size_t)]),
    "vitune_prepare_text": (c_int32, [c_void_p, c_char_p]),
    "vitune_workspace_bytes_text": (c_int32, [c_void_p, c_char_p, ctypes.POINTER(c_size_t)]),
    "vitune_query_text": (c_int32, [c_void_p, c_char_p, ctypes.POINTER(SelectionStruct)]),
    "vitune_explain_text": (c_int32, [c_void_p, c_char_p, c_char_p, c_size_t, ctypes.POINTER(c_size_t)]),
    "vitune_problem_create": (c_int32, [c_char_p, ctypes.POINTER(c_void_p)]),
    "vitune_problem_destroy": (None, [c_void_p]),
    "vitune_problem_tensors": (c_int32, [c_void_p, ctypes.POINTER(c_size_t)]),
    "vitune_problem_tensor": (c_int32, [c_void_p, c_size_t, ctypes.POINTER(TensorStruct)]),
    "vitune_run": (c_int32, [c_void_p, c_void_p, ctypes.POINTER(c_void_p), c_size_t, c_void_p, c_size_t, c_void_p]),
    "vitune_query": (c_int32, [c_void_p, ctypes.POINTER(Desc), ctypes.POINTER(SelectionStruct)]),
    "vitune_context_stats": (c_int32, [c_void_p, ctypes.POINTER(StatsStruct)]),
    "vitune_context_refresh": (c_int32, [c_void_p, ctypes.POINTER(c_int32)]),
    "vitune_context_flush": (c_int32, [c_void_p]),
    "vitune_problem_text": (c_int32, [ctypes.POINTER(Desc), c_char_p, c_size_t, ctypes.POINTER(c_size_t)]),
    "vitune_model_open": (c_int32, [c_void_p, c_char_p, ctypes.POINTER(c_void_p)]),
    "vitune_model_destroy": (None, [c_void_p]),
    "vitune_model_counts": (c_int32, [c_void_p, ctypes.POINTER(c_size_t), ctypes.POINTER(c_size_t)]),
    "vitune_model_tensor": (c_int32, [c_void_p, c_size_t, c_int64, ctypes.POINTER(TensorStruct)]),
    "vitune_model_text": (c_int32, [c_void_p, c_char_p, c_char_p, c_size_t, ctypes.POINTER(c_size_t)]),
    "vitune_session_create": (c_int32, [c_void_p, c_int64, ctypes.POINTER(SessionOptions), ctypes.POINTER(c_void_p)]),
    "vitune_session_destroy": (None, [c_void_p]),
    "vitune_session_run": (c_int32, [c_void_p, ctypes.POINTER(c_void_p), ctypes.POINTER(c_void_p), c_void_p]),
    "vitune_session_run_images": (c_int32, [c_void_p, c_int64, ctypes.POINTER(c_void_p), ctypes.POINTER(c_void_p), c_void_p]),
    "vitune_session_refresh": (c_int32, [c_void_p, ctypes.POINTER(c_int32)]),
    "vitune_session_text": (c_int32, [c_void_p, c_char_p, c_size_t, ctypes.POINTER(c_size_t)]),
    "vitune_session_buffer": (c_int32, [c_void_p, c_size_t, ctypes.POINTER(c_void_p)]),
    "vitune_session_bytes": (c_int32, [c_void_p, ctypes.POINTER(c_size_t), ctypes.POINTER(c_size_t)]),
    "vitune_problem_parse": (c_int32, [c_char_p, ctypes.POINTER(Desc)]),
}
