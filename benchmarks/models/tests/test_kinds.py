# benchmarks/models/tests/test_kinds.py -- Names of kernels, as profilers give them, and what each does.
# SPDX-License-Identifier: Apache-2.0
import unittest

from . import support  # noqa: F401: sets the path

from models.kinds import KINDS, by_kind, kind_of, short_name

ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::{}, std::array<char*, 2ul> >(int, {})"
NAMES = {
    "gemm": (
        "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT",
        "nvjet_tst_192x192_64x4_1x2_h_bz_coopB_bias_TNT",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>(cutlass_80_tensorop::Params)",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int> > >(Params)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, true>(cublasLt::cublasSplitKParams<float>)",
        "void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 128, 16, 4, 4, false>(...)",
        "triton_tem_fused_addmm_gelu_view_7",
        "triton_tem_fused_mm_3",
        "triton_red_fused_addmm_2",
        "triton_poi_fused_addmm_11",
        "vitune_linear_forward",
    ),
    "attention": (
        "vitune_attention_forward",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0",
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t> >(...)",
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>::Params)",
        "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 6, false, false>(...)",
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, c10::BFloat16>(...)",
        "triton_per_fused__softmax_add_mul_4",
        "triton_tem_fused_flex_attention_0",
    ),
    "norm": (
        "vitune_norm",
        "vitune_group_norm_apply",
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, false>(int, float, ...)",
        "void at::native::batch_norm_transform_input_channels_last_kernel<c10::BFloat16, float, c10::BFloat16, 4>(...)",
        "void cudnn::bn_fw_inf_1C11_kernel_NCHW<float, float, true, 1>(float, ...)",
        "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float, float, 4>(...)",
        "triton_per_fused_add_addmm_native_layer_norm_view_5",
        "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_3",
        "triton_poi_fused__native_batch_norm_legit_no_training_relu_9",
    ),
    "activation": (
        ELEMENTWISE.format("GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#2}", "..."),
        ELEMENTWISE.format("(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}", "..."),
        ELEMENTWISE.format("(anonymous namespace)::launch_clamp_scalar(at::TensorIteratorBase&)", "..."),
        "triton_poi_fused_addmm_gelu_view_6",
        "triton_poi_fused_mul_silu_2",
    ),
    "copies": (
        "Memcpy DtoD (Device -> Device)",
        "Memset (Device)",
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda> >",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>(int, ...)",
        "void at::native::roll_cuda_kernel<c10::BFloat16>(c10::BFloat16 const*, c10::BFloat16*, long, long, long, long)",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy_alignedK_contig<OpaqueType<2u>, unsigned int, 3>(...)",
        ELEMENTWISE.format("FillFunctor<c10::BFloat16>", "..."),
        "void at::native::transform_bias_rescale_qkv_kernel<c10::BFloat16, float, true>(...)",
        "triton_poi_fused_clone_permute_roll_view_8",
        "triton_poi_fused__scaled_dot_product_cudnn_attention_clone_1",
        "triton_poi_fused__to_copy_0",
    ),
    "convolution": (
        "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_stage3_warpsize2x2x1",
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_128x128_32x5_nhwc_align8>(...)",
        "void cudnn::engines_precompiled::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float, false, true>(...)",
        "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, c10::BFloat16, int>(...)",
        "void conv2d_grouped_direct_kernel<false, true, false, false, 0, 0, int, __nv_bfloat16>(...)",
        "triton_poi_fused_convolution_0",
        "triton_tem_fused_convolution_2",
    ),
    "other": (
        ELEMENTWISE.format("CUDAFunctor_add<c10::BFloat16>", "..."),
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor<c10::BFloat16> > >",
        "void at::native::unrolled_elementwise_kernel<at::native::BUnaryFunctor<float, float, at::native::binary_internal::MulFunctor>>",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, at::native::MeanOps<float> > >(...)",
        "void at::native::(anonymous namespace)::max_pool_forward_nhwc<c10::BFloat16, int>(...)",
        "triton_poi_fused_add_addmm_clone_3",
        "triton_red_fused_mean_4",
        "a_kernel_that_nobody_knows",
    ),
}  # fmt: skip


class KindsTest(unittest.TestCase):
    def test_every_name_is_of_its_kind(self):
        for kind, names in NAMES.items():
            for name in names:
                with self.subTest(name):
                    self.assertEqual(kind_of(name), kind)
        self.assertEqual(set(NAMES), set(KINDS))

    def test_times_add_up_by_kind_in_the_order_of_tables(self):
        found = by_kind([("Memset (Device)", 1.0), ("nvjet_x", 2.5), ("Memcpy DtoD", 0.25)])
        self.assertEqual(list(found.items()), [("gemm", 2.5), ("copies", 1.25)])

    def test_names_are_cut_to_what_they_say(self):
        name = ELEMENTWISE.format("(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)", "...")
        self.assertEqual(short_name(name, 44), "vectorized_elementwise_kernel<4, silu_kernel")
