# python/tests/test_context.py -- The low-level Context: real launches without PyTorch, against a plain reference.
# SPDX-License-Identifier: Apache-2.0
import math
import threading
import unittest

import vitune

from .support import DEVICE, FOLDER, attention_row, from_bf16, needs_device, needs_library, random_bf16, to_bf16

#: Tolerance for a 16-bit result of numbers of about 1.
TOLERANCE = 0.02


@needs_device
class ContextTest(unittest.TestCase):
    def setUp(self):
        self.messages = []
        self.context = vitune.Context(0, database=FOLDER / "context.db", shipped_database="",
                                      log=lambda level, text: self.messages.append((level, text)))
        self.addCleanup(self.context.close)

    def compare(self, desc, heads_per_kv=1, bias=None, mask=None):
        """Launches `desc` (contiguous BNHD tensors) on random data and checks every row; returns the outcome."""
        kv_heads = desc.heads // heads_per_kv
        q = random_bf16(1, desc.batch * desc.nq * desc.heads * desc.d)
        k = random_bf16(2, desc.batch * desc.nk * kv_heads * desc.d)
        v = random_bf16(3, desc.batch * desc.nk * kv_heads * desc.d)
        size = 2 * len(q)
        out = DEVICE.upload(b"\xff" * size)  # NaN
        lse_size = 4 * desc.batch * desc.heads * desc.nq
        lse = DEVICE.upload(b"\xff" * lse_size) if desc.lse else None
        self.context.forward(desc, *(DEVICE.upload(to_bf16(x)) for x in (q, k, v)), out,
                             bias=None if bias is None else DEVICE.upload(to_bf16(bias)),
                             mask=None if mask is None else DEVICE.upload(bytes(mask)), lse=lse)
        got = from_bf16(DEVICE.download(out, size))
        got_lse = memoryview(DEVICE.download(lse, lse_size)).cast("f") if desc.lse else None

        def row(x, heads, b, n, rows, h):
            start = ((b * rows + n) * heads + h) * desc.d
            return x[start:start + desc.d]
        for b in range(desc.batch):
            for h in range(desc.heads):
                kv = h // heads_per_kv
                keys = [row(k, kv_heads, b, n, desc.nk, kv) for n in range(desc.nk)]
                values = [row(v, kv_heads, b, n, desc.nk, kv) for n in range(desc.nk)]
                for n in range(desc.nq):
                    extra = [-math.inf if (desc.causal and j > n) or (mask is not None and not mask[b * desc.nk + j])
                             else 0 if bias is None else bias[n * desc.nk + j] for j in range(desc.nk)]
                    wanted, wanted_lse = attention_row(row(q, desc.heads, b, n, desc.nq, h), keys, values,
                                                       desc.scale or desc.d ** -0.5, extra)
                    for mine, theirs in zip(row(got, desc.heads, b, n, desc.nq, h), wanted):
                        self.assertAlmostEqual(mine, theirs, delta=TOLERANCE)
                    if got_lse is not None:
                        mine = got_lse[(b * desc.heads + h) * desc.nq + n]
                        self.assertTrue(mine == wanted_lse or abs(mine - wanted_lse) < TOLERANCE, (mine, wanted_lse))

    def test_plain_attention_is_that_of_the_reference(self):
        self.compare(vitune.AttentionDesc(batch=2, heads=2, nq=21, nk=21, d=16))

    def test_causal_with_fewer_keys_than_queries_and_lse(self):
        self.compare(vitune.AttentionDesc(batch=1, heads=2, nq=9, nk=5, d=16, causal=1, lse=1))

    def test_grouped_heads_and_a_scale(self):
        self.compare(vitune.AttentionDesc(batch=1, heads=4, kv_heads=2, nq=6, nk=11, d=8, scale=0.3), heads_per_kv=2)

    def test_a_bias_for_all_and_a_mask_with_a_row_without_any_key(self):
        bias = random_bf16(4, 7 * 10)
        self.compare(vitune.AttentionDesc(batch=2, heads=2, nq=7, nk=10, d=16, bias_type=vitune.BF16, bias_batches=1,
                                          bias_strides=(0, 0, 10, 1)), bias=bias)
        mask = [1, 0] * 5 + [0] * 10
        self.compare(vitune.AttentionDesc(batch=2, heads=1, nq=3, nk=10, d=16, mask_type=vitune.BOOL, lse=1,
                                          mask_strides=(10, 0, 0, 1)), mask=mask)

    def test_query_and_stats_say_what_serves(self):
        desc = vitune.AttentionDesc(batch=1, heads=1, nq=8, nk=8, d=16)
        before = self.context.query(desc)
        self.assertFalse(before.loaded)
        self.context.prepare(desc)
        selection = self.context.query(desc)
        self.assertTrue(selection.loaded)
        self.assertEqual(selection.outcome, "default")
        self.assertEqual(selection.problem, desc.text())
        self.assertIn("k", selection.config)
        self.assertEqual(len(selection.kernel_key), 64)
        self.compare(desc)
        stats = self.context.stats()
        self.assertEqual((stats.default_calls, stats.exact_calls, stats.kernels_loaded), (1, 0, 1))

    def test_what_cannot_be_served_is_an_exception_of_its_kind(self):
        desc = vitune.AttentionDesc(batch=1, heads=1, nq=8, nk=8, d=16)
        place = DEVICE.allocate(256)
        with self.assertRaisesRegex(vitune.InvalidArgument, "out is NULL"):
            self.context.forward(desc, place, place, place, 0)
        with self.assertRaisesRegex(vitune.Unsupported, "256"):
            self.context.prepare(vitune.AttentionDesc(d=256))
        with vitune.Context(0, on_miss="error", shipped_database="", database=FOLDER / "miss.db") as strict:
            with self.assertRaises(vitune.NotPrepared):
                strict.prepare(desc)

    def test_a_call_with_too_many_or_too_few_addresses_is_refused(self):
        problem = vitune.Problem("norm bf16 m=5 d=64 weight")
        right = [DEVICE.allocate(tensor.bytes) if tensor.given else 0 for tensor in problem.tensors]
        needed = max(place for place, tensor in enumerate(problem.tensors) if tensor.given)  # not without this one
        for addresses in ([], right[:needed], [*right, 0], right * 3):
            with self.subTest(count=len(addresses)):
                with self.assertRaisesRegex(vitune.InvalidArgument, f"{len(addresses)} (addresses|tensors) are given: .* have {len(right)}|out is NULL"):
                    self.context.run(problem, addresses)
        self.context.run(problem, right[:needed + 1])
        with self.assertRaisesRegex(vitune.InvalidArgument, "workspace_bytes is -1"):
            self.context.run(problem, right, workspace=right[0], workspace_bytes=-1)
        self.context.run(problem, right)

    def test_a_closed_context_refuses_without_harm(self):
        self.context.close()
        with self.assertRaises(vitune.VituneError) as caught:
            self.context.stats()
        self.assertEqual(caught.exception.status_name, "VITUNE_INVALID_CONTEXT")
        self.context.close()

    def test_threads_share_a_context(self):
        errors = []

        def call():
            try:
                self.compare(vitune.AttentionDesc(batch=1, heads=1, nq=5, nk=5, d=8))
            except BaseException as error:  # a thread's failure must reach the test
                errors.append(error)
        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])
        self.assertEqual(self.context.stats().default_calls, 4)

    def test_messages_reach_the_callback(self):
        folder = FOLDER / "no_database"
        folder.mkdir(exist_ok=True)
        damaged = folder / "vitune.db"
        damaged.write_bytes(b"no database" * 1000)
        damaged.chmod(0o600)
        messages = []
        with vitune.Context(0, database=damaged, log=lambda level, text: messages.append((level, text))):
            pass
        self.assertTrue(any(level == 2 and str(damaged) in text for level, text in messages), messages)


@needs_library
class NoDeviceTest(unittest.TestCase):
    def test_words_are_checked_before_anything_is_opened(self):
        for name in ("objective", "on_miss", "on_busy"):
            with self.assertRaisesRegex(vitune.InvalidArgument, f"{name} is 'often': use "):
                vitune.Context(0, **{name: "often"})

    def test_numbers_that_the_c_interface_cannot_hold_are_refused(self):
        for name, number in (("device", 2**32), ("device", -2**31 - 1), ("refresh_seconds", 2**31), ("lock_wait_ms", 2**40),
                             ("trust_owner", -1), ("trust_owner", 2**32), ("device", "0"), ("device", 0.0)):
            with self.subTest(name=name, number=number):
                with self.assertRaisesRegex(vitune.InvalidArgument, f"{name} is .*: it must be"):
                    vitune.Context(**{name: number})
        for name, number in (("batch", 2**64 + 1), ("nq", -2**63 - 1), ("dtype", 2**32 + vitune.BF16), ("causal", "yes"),
                             ("bias_strides", (0, 0, 2**64, 1)), ("mask_strides", (0, 0, 1, 1, 1)), ("d", 64.0)):
            with self.subTest(name=name, number=number):
                with self.assertRaisesRegex(vitune.InvalidArgument, name):
                    vitune.AttentionDesc(**{name: number})
                with self.assertRaisesRegex(vitune.InvalidArgument, name):
                    setattr(vitune.AttentionDesc(), name, number)
        for strides in (vitune.bnhd_strides, vitune.bhnd_strides, vitune.packed_strides):
            with self.assertRaisesRegex(vitune.InvalidArgument, "strides"):
                strides(2**30, 2**30, 64)

    def test_texts_that_a_zero_byte_would_cut_are_refused(self):
        norm, attention = "norm bf16 m=5 d=64 weight", "bf16 b=1 h=1 n=8 d=16"
        for call, text in ((vitune.Problem, norm), (vitune.AttentionDesc.parse, attention)):
            call(text)
            for odd in (text + "\0 lse", "\0", text + "\udc80", None, text.encode()):
                with self.subTest(call=call, text=odd):
                    with self.assertRaisesRegex(vitune.InvalidArgument, "problem is "):
                        call(odd)
        for name in ("database", "shipped_database"):
            with self.assertRaisesRegex(vitune.InvalidArgument, f"{name} is .* zero byte"):
                vitune.Context(**{name: str(FOLDER / "a.db") + "\0.old"})

    @unittest.skipIf(DEVICE is not None, "there is a device here")
    def test_without_a_driver_the_error_says_so(self):
        with self.assertRaisesRegex(vitune.NoDevice, "libcuda"):
            vitune.Context(0)
