# cmake/torch_operators.cmake -- libvitune_torch.so: the operators for PyTorch, where its headers are found.
#
# One binary serves every PyTorch from 2.10 on, with and without CUDA: it uses the stable ABI alone
# (headers of any of them will do), and neither Python nor libvitune is linked.
# SPDX-License-Identifier: Apache-2.0
set(VITUNE_TORCH_INCLUDE "" CACHE PATH
    "PyTorch's headers (site-packages/torch/include); empty: those of VITUNE_TORCH_PYTHON")
set(VITUNE_TORCH_PYTHON "python3" CACHE STRING "A Python that may have PyTorch installed")

set(torch_include "${VITUNE_TORCH_INCLUDE}")
if(NOT torch_include)
  # Not imported: that takes seconds.
  execute_process(
    COMMAND ${VITUNE_TORCH_PYTHON} -c
      "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] + '/include' if s else '')"
    OUTPUT_VARIABLE torch_include OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
# headeronly/ and TORCH_BOX came with 2.10.
if(NOT EXISTS "${torch_include}/torch/headeronly/version.h" OR
   NOT EXISTS "${torch_include}/torch/csrc/stable/macros.h")
  if(VITUNE_TORCH_INCLUDE)
    message(FATAL_ERROR "VITUNE_TORCH_INCLUDE=${VITUNE_TORCH_INCLUDE} has no headers of PyTorch 2.10 or later")
  endif()
  message(STATUS "No headers of PyTorch 2.10 or later: libvitune_torch.so is not built, and Python calls by ctypes")
  return()
endif()
message(STATUS "Operators for PyTorch: headers of ${torch_include}")

# The loader must find PyTorch's functions in libtorch_cpu.so, which the process has loaded. An empty
# library of that name takes its place in the link, so that the headers alone are needed.
set(torch_stub_source ${CMAKE_CURRENT_BINARY_DIR}/torch_stub/stub.cpp)
file(CONFIGURE OUTPUT ${torch_stub_source} CONTENT "")
add_library(vitune_torch_stub SHARED ${torch_stub_source})
set_target_properties(vitune_torch_stub PROPERTIES OUTPUT_NAME torch_cpu
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/torch_stub)

# vitune_torch_module(name SOURCES file...): the operators, and what else is given, as one library.
function(vitune_torch_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/native/*.cpp)
  # A module: the preset for other machines links no C++ runtime into modules, and exceptions of
  # these must reach PyTorch's.
  add_library(${name} MODULE ${sources} ${ARG_SOURCES})
  target_compile_definitions(${name} PRIVATE TORCH_TARGET_VERSION=0x020a000000000000)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_include_directories(${name} SYSTEM PRIVATE ${torch_include})
  target_link_libraries(${name} PRIVATE vitune_options ${CMAKE_DL_LIBS})
  target_link_options(${name} PRIVATE -Wl,--no-as-needed $<TARGET_FILE:vitune_torch_stub> -Wl,--as-needed
                      -Wl,--allow-shlib-undefined -Wl,-z,undefs)
  target_compile_options(${name} PRIVATE ${vitune_fast})
  add_dependencies(${name} vitune_torch_stub)
  set_target_properties(${name} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                        SKIP_BUILD_RPATH ON)
endfunction()

vitune_torch_module(vitune_torch)
