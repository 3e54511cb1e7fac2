# benchmarks/train_models/tests/test_kinds.py -- Names of a step's kernels, as profilers give them, and what each does.
# SPDX-License-Identifier: Apache-2.0
import unittest

from . import support  # noqa: F401: sets the path

from train_models.kinds import KINDS, by_kind, kind_of

NAMES = {
    "gemm": (
        "nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_NNN",
        "nvjet_sm90_tst_192x192_64x3_1x2_h_bz_coopB_splitK_NTN",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16>(cublasLt::Params)",
        "triton_tem_fused_mm_t_3",
        "vitune_linear",
        "vitune_weight_grad",
        "vitune_weight_grad_finish",
    ),
    "attention": (
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1_cga1x1x1_kernel0_0",
        "void cudnn::fusion::compute_dot_do_o_specialized<true, __nv_bfloat16, 64>(float*)",
        "void cudnn::fusion::convert_dq_to_16bits<__nv_bfloat16>(void*)",
        "void pytorch_flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<64, 128, 128> >(Params)",
        "fmha_cutlassB_bf16_aligned_64x64_k32_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<cutlass::bfloat16_t>::Params)",
        "vitune_attention_backward",
        "vitune_window_attention_backward",
        "triton_per_fused__softmax__softmax_backward_data_4",
    ),
    "norm": (
        "triton_per_fused__to_copy_add_native_layer_norm_backward_view_11",
        "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float, float, 32, 32>(long, long)",
        "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<float, float>(float const*)",
        "vitune_norm_backward",
        "triton_per_fused_sum_norm_train_4",
        "triton_per_fused_add_cat_expand_norm_train_2",
    ),
    "activation": (
        "triton_poi_fused_gelu_gelu_backward_view_9",
        "triton_red_fused_gelu_gelu_backward_sum_view_10",
        "void at::native::vectorized_elementwise_kernel<4, at::native::GeluBackwardCUDAKernelImpl(at::TensorIteratorBase&)>(int)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::threshold_kernel_impl<float>(at::TensorIteratorBase&)>(int)",
    ),
    "convolution": (
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816wgrad_optimized_bf16_128x128_32x4_nhwc_align4>(Params)",
        "void cudnn::engines_precompiled::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float, false, true>(Params)",
        "void at::native::(anonymous namespace)::max_pool_backward_nhwc<c10::BFloat16, int>(...)",
    ),
    "optimizer": (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>,"
        " at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false> >(...)",
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<1>, UnaryOpFunctor<float> >(...)",
    ),
    "sums": (
        "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float, at::native::func_wrapper_t<float> > >(...)",
        "triton_red_fused_sum_view_12",
        "triton_per_fused__to_copy_sum_13",
    ),
    "copies": (
        "Memcpy DtoD (Device -> Device)",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy_alignedK_contig<OpaqueType<2u>, unsigned int, 3>(...)",
        "triton_poi_fused__to_copy_view_5",
        "triton_poi_fused_clone_permute_stack_13",
    ),
    "other": (
        "triton_per_fused__log_softmax_nll_loss_forward_20",
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, LogSoftMaxForwardEpilogue>(float*)",
        "triton_poi_fused_add_mul_3",
    ),
}


class KindsTest(unittest.TestCase):
    def test_every_name_is_of_its_kind(self):
        for kind, names in NAMES.items():
            for name in names:
                with self.subTest(name):
                    self.assertEqual(kind_of(name), kind)
        self.assertEqual(set(NAMES), set(KINDS))

    def test_times_add_up_by_kind_in_the_order_of_tables(self):
        found = by_kind([("triton_red_fused_sum_view_12", 1.0), ("nvjet_x", 2.5), ("nvjet_y", 0.5)])
        self.assertEqual(list(found.items()), [("gemm", 3.0), ("sums", 1.0)])
