# cmake/torch_operators.cmake -- libvitune_torch.so: the operators for PyTorch.
#
# One binary serves every PyTorch from 2.10 on, with and without CUDA: it uses the stable ABI alone, and neither
# Python nor libvitune is linked. The headers of that ABI come along (third_party/torch, of PyTorch 2.11), so that the
# library is built whether this machine has PyTorch or not: pip's isolated builds see none.
# SPDX-License-Identifier: Apache-2.0

# The loader must find PyTorch's functions in libtorch_cpu.so, which the process has loaded. An empty
# library of that name takes its place in the link, so that the headers alone are needed.
set(torch_stub_source ${CMAKE_CURRENT_BINARY_DIR}/torch_stub/stub.cpp)
file(CONFIGURE OUTPUT ${torch_stub_source} CONTENT "")
add_library(vitune_torch_stub SHARED ${torch_stub_source})
set_target_properties(vitune_torch_stub PROPERTIES OUTPUT_NAME torch_cpu
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/torch_stub)

# vitune_torch_compiled(target): what its sources are compiled with.
function(vitune_torch_compiled target)
  target_compile_definitions(${target} PRIVATE TORCH_TARGET_VERSION=0x020a000000000000)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_include_directories(${target} SYSTEM PRIVATE ${PROJECT_SOURCE_DIR}/third_party/torch)
  target_link_libraries(${target} PRIVATE vitune_options)
  target_compile_options(${target} PRIVATE ${vitune_fast})
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endfunction()

file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/native/*.cpp)
add_library(vitune_torch_objects OBJECT ${sources})
vitune_torch_compiled(vitune_torch_objects)

# vitune_torch_module(name [file...]): the operators, and what else is given, as one library.
function(vitune_torch_module name)
  # A module: the preset for other machines links no C++ runtime into modules, and exceptions of
  # these must reach PyTorch's.
  add_library(${name} MODULE $<TARGET_OBJECTS:vitune_torch_objects> ${ARGN})
  vitune_torch_compiled(${name})
  target_link_libraries(${name} PRIVATE ${CMAKE_DL_LIBS})
  target_link_options(${name} PRIVATE -Wl,--no-as-needed $<TARGET_FILE:vitune_torch_stub> -Wl,--as-needed
                      -Wl,--allow-shlib-undefined -Wl,-z,undefs)
  add_dependencies(${name} vitune_torch_stub)
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX SKIP_BUILD_RPATH ON)
endfunction()

vitune_torch_module(vitune_torch)
