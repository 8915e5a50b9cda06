# What the CUDA backend is made of: its own sources, and the host's once more, whose loops become the device's
# (kernels/loop.h).
set(PLUMBLINE_CUDA_SOURCES)
foreach(source device measure module product sliced_product sort upload)
  list(APPEND PLUMBLINE_CUDA_SOURCES ${CMAKE_CURRENT_LIST_DIR}/${source}.cu)
endforeach()
foreach(source accumulation chain checks elementwise error error_reduction error_softmax matmul movement noise noise_softmax
               normalize operations product_above projection radius radius_reduction reduction registry sharing softmax source)
  list(APPEND PLUMBLINE_CUDA_SOURCES ${CMAKE_CURRENT_LIST_DIR}/../primitive/${source}.cc)
endforeach()
