# python/tests/test_structs.py -- The package's structs and numbers against the C header, by a C compiler.
# SPDX-License-Identifier: Apache-2.0
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from vitune._runtime import context as _context, errors as _errors, structs as _structs

from .support import ROOT, needs_library

HEADER = ROOT / "include" / "vitune" / "vitune.h"
STRUCTS = {
    "vitune_context_options": _structs.ContextOptions,
    "vitune_strides": _structs.Strides,
    "vitune_attention_desc": _structs.Desc,
    "vitune_selection": _structs.SelectionStruct,
    "vitune_stats": _structs.StatsStruct,
    "vitune_tensor": _structs.TensorStruct,
    "vitune_session_options": _structs.SessionOptions,
}
NUMBERS = {
    **{name: value for value, name in enumerate(_errors.STATUS_NAMES)},
    "VITUNE_NONE": _structs.NONE, "VITUNE_BF16": _structs.BF16, "VITUNE_FP16": _structs.FP16,
    "VITUNE_FP32": _structs.FP32, "VITUNE_BOOL": _structs.BOOL, "VITUNE_U8": _structs.U8,
    "VITUNE_I32": _structs.I32,
    **{f"VITUNE_ON_MISS_{name.upper()}": value for name, value in _structs.ON_MISS.items()},
    **{f"VITUNE_ON_BUSY_{name.upper()}": value for name, value in _structs.ON_BUSY.items()},
    **{f"VITUNE_{name.upper()}": value for name, value in _structs.OBJECTIVE.items()},
    **{f"VITUNE_{name.upper()}": value for value, name in _structs.OUTCOMES.items()},
    "VITUNE_LOG_DEBUG": 0, "VITUNE_LOG_INFO": 1, "VITUNE_LOG_WARNING": 2, "VITUNE_LOG_ERROR": 3,
    "VITUNE_VERSION_MAJOR": _structs.VERSION[0], "VITUNE_VERSION_MINOR": _structs.VERSION[1],
    "VITUNE_VERSION_PATCH": _structs.VERSION[2],
}
COMPILER = shutil.which(os.environ.get("CC", "cc"))


def fields_of_header():
    """Struct -> its fields in order, read from the header: also ones that the package does not know."""
    text = re.sub(r"//[^\n]*", "", HEADER.read_text())
    structs = {}
    for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \w+;", text, re.S):
        declared = re.findall(r"([\w\s\*,\[\]]+);", body)
        structs[name] = [re.search(r"(\w+)\s*(?:\[\d+\])?\s*$", part).group(1)
                         for line in declared for part in line.split(",")]
    return structs


def of_the_compiler():
    """What a C program prints of every struct, field and number."""
    lines = [f'printf("{name} %zu\\n", sizeof({name}));' for name in STRUCTS]
    lines += [f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name}*)0)->{field}));'
              for name, struct in STRUCTS.items() for field, _ in struct._fields_]
    lines += [f'printf("{name} %d\\n", (int){name});' for name in NUMBERS]
    program = '#include <stdio.h>\n#include "vitune/vitune.h"\nint main(void) {\n' + "\n".join(lines) + "\nreturn 0; }\n"
    with tempfile.TemporaryDirectory() as folder:
        source, binary = pathlib.Path(folder) / "layout.c", pathlib.Path(folder) / "layout"
        source.write_text(program)
        subprocess.run([COMPILER, "-std=c99", f"-I{ROOT / 'include'}", str(source), "-o", str(binary)], check=True)
        printed = subprocess.run([str(binary)], check=True, capture_output=True, text=True).stdout
    return {line.split()[0]: [int(word) for word in line.split()[1:]] for line in printed.splitlines()}


@unittest.skipIf(COMPILER is None or not HEADER.is_file(), "no C compiler or no header")
class StructTest(unittest.TestCase):
    def test_have_the_fields_of_the_header_in_its_order(self):
        header = fields_of_header()
        for name, struct in STRUCTS.items():
            self.assertEqual([field for field, _ in struct._fields_], header[name], name)

    def test_have_the_sizes_offsets_and_numbers_of_the_compiler(self):
        printed = of_the_compiler()
        for name, struct in STRUCTS.items():
            self.assertEqual([ctypes.sizeof(struct)], printed[name], name)
            for field, _ in struct._fields_:
                place = getattr(struct, field)
                self.assertEqual([place.offset, place.size], printed[f"{name}.{field}"], f"{name}.{field}")
        for name, value in NUMBERS.items():
            self.assertEqual([value], printed[name], name)

    def test_declare_every_function_of_the_header_that_the_library_has(self):
        declared = set(re.findall(r"^(?:VITUNE_NODISCARD )?VITUNE_API [^;]*?\b(vitune_\w+)\(", HEADER.read_text(), re.M))
        self.assertEqual(set(_structs.FUNCTIONS), declared)


@needs_library
class DescTest(unittest.TestCase):
    def test_texts_come_back_as_they_went(self):
        for text in ("attention bf16 b=32 h=12 nq=197 nk=197 d=64 layout=packed",
                     "attention fp16 b=8 h=16 hkv=4 nq=64 nk=32 d=64 layout=bnhd causal lse",
                     "attention bf16 b=2048 h=3 nq=49 nk=49 d=32 layout=packed bias=bf16:64x3x49x49"):
            self.assertEqual(_context.AttentionDesc.parse(text).text(), text)

    def test_without_strides_all_tensors_are_bnhd(self):
        desc = _context.AttentionDesc(batch=2, heads=4, kv_heads=2, nq=10, nk=7, d=32)
        self.assertEqual(desc.text(), "attention bf16 b=2 h=4 hkv=2 nq=10 nk=7 d=32 layout=bnhd")

    def test_element_types_may_be_texts(self):
        desc = _context.AttentionDesc(dtype="fp16", batch=2, heads=4, nq=10, nk=7, d=32, bias_type="fp32", mask_type="none")
        self.assertEqual((desc.dtype, desc.bias_type, desc.mask_type), (_structs.FP16, _structs.FP32, _structs.NONE))
        for name, value in (("dtype", "float"), ("mask_type", "bf16"), ("nq", "7")):
            with self.assertRaisesRegex(_errors.InvalidArgument, f"{name} is '"):
                setattr(desc, name, value)

    def test_what_is_shown_says_what_it_is(self):
        text = "attention bf16 b=2 h=4 nq=10 nk=7 d=32 layout=bnhd"
        desc = _context.AttentionDesc(batch=2, heads=4, nq=10, nk=7, d=32)
        self.assertEqual(repr(desc), f"AttentionDesc.parse({text!r})")
        self.assertEqual(eval(repr(desc), {"AttentionDesc": _context.AttentionDesc}).text(), text)
        self.assertEqual(repr(_context.AttentionDesc(batch=2, d=33)),
                         "AttentionDesc(dtype=1, batch=2, heads=1, kv_heads=0, nq=1, nk=1, d=33)")  # it is none
        self.assertEqual(repr(_context.Problem(text)), f"Problem({text!r})")

    def test_mistakes_are_named(self):
        with self.assertRaisesRegex(_errors.InvalidArgument, "no field 'head'"):
            _context.AttentionDesc(head=4)
        with self.assertRaisesRegex(_errors.InvalidArgument, "heads="):
            _context.AttentionDesc.parse("bf16 b=1 heads=1 n=8 d=64")
        with self.assertRaisesRegex(_errors.Unsupported, "256") as caught:
            _context.AttentionDesc.parse("bf16 b=1 h=1 n=8 d=256")
        self.assertEqual(caught.exception.status_name, "VITUNE_UNSUPPORTED")
        self.assertIsInstance(caught.exception, NotImplementedError)
