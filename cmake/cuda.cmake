# The kernels for NVIDIA GPUs, as one file for the driver: code of the cards below, and PTX for later ones, which the
# driver compiles. The target cuda_kernels makes cuda_kernels.fatbin, where nvcc is found: SKV_NVCC, a toolkit, or the
# packages that script/setup-cuda installs. With -DSKV_CUDA=ON the library has this file within: `--device cuda`
# needs it.
find_program(SKV_NVCC nvcc PATHS ${PROJECT_SOURCE_DIR}/build/cuda/bin /usr/local/cuda/bin)
if(NOT SKV_NVCC)
  if(SKV_CUDA)
    message(FATAL_ERROR "SKV_CUDA: nvcc was not found (SKV_NVCC names it, script/setup-cuda installs it)")
  endif()
  return()
endif()
set(kernels ${PROJECT_SOURCE_DIR}/src/engine/backend/cuda/kernels)
set(cards)
foreach(card 80 86 89 90a 120)
  list(APPEND cards -gencode=arch=compute_${card},code=sm_${card})
endforeach()
file(GLOB parts CONFIGURE_DEPENDS ${kernels}/*)
add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/cuda_kernels.fatbin
  COMMAND ${SKV_NVCC} -std=c++17 -O3 -fatbin ${cards} -gencode=arch=compute_80,code=compute_80
          -o cuda_kernels.fatbin ${kernels}/kernels.cu
  DEPENDS ${parts} WORKING_DIRECTORY ${PROJECT_BINARY_DIR} VERBATIM)
add_custom_target(cuda_kernels DEPENDS ${PROJECT_BINARY_DIR}/cuda_kernels.fatbin)
if(SKV_CUDA)
  set_source_files_properties(src/engine/backend/cuda/cuda_image.c PROPERTIES
    COMPILE_DEFINITIONS "SKV_CUDA_IMAGE=\"${PROJECT_BINARY_DIR}/cuda_kernels.fatbin\""
    OBJECT_DEPENDS ${PROJECT_BINARY_DIR}/cuda_kernels.fatbin)
endif()
