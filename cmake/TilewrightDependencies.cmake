# Third-party libraries, each behind one imported target. Debian 12 package names stand in quickstart's list.
include_guard()

find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED)          # libboost1.81-dev: Asio is header-only
find_package(tl-expected REQUIRED)         # libexpected-dev
find_package(nlohmann_json 3.11 REQUIRED)  # nlohmann-json3-dev
find_package(CLI11 REQUIRED)               # libcli11-dev
find_package(FlatBuffers REQUIRED)         # libflatbuffers-dev
find_program(FLATC_PROGRAM flatc REQUIRED) # flatbuffers-compiler

# Debian has no archive of fmt and spdlog: header-only.
find_package(fmt REQUIRED)
add_library(tilewright_fmt INTERFACE)
target_link_libraries(tilewright_fmt INTERFACE fmt::fmt-header-only)
add_library(tilewright::fmt ALIAS tilewright_fmt)
add_library(tilewright_spdlog INTERFACE)
target_compile_definitions(tilewright_spdlog INTERFACE SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY)
target_link_libraries(tilewright_spdlog INTERFACE fmt::fmt-header-only)
add_library(tilewright::spdlog ALIAS tilewright_spdlog)

# Static archives, so that executables need glibc only.
function(tilewright_archive target archive)
  find_library(TILEWRIGHT_ARCHIVE_${target} NAMES ${archive} REQUIRED)
  add_library(tilewright_${target} INTERFACE)
  target_link_libraries(tilewright_${target} INTERFACE ${TILEWRIGHT_ARCHIVE_${target}} ${ARGN})
  add_library(tilewright::${target} ALIAS tilewright_${target})
endfunction()
tilewright_archive(yaml libyaml-cpp.a)
tilewright_archive(xxhash libxxhash.a)
tilewright_archive(zstd libzstd.a)
tilewright_archive(snappy libsnappy.a)
tilewright_archive(bz2 libbz2.a)
tilewright_archive(lz4 liblz4.a)
tilewright_archive(zlib libz.a)
tilewright_archive(rocksdb librocksdb.a tilewright::zstd tilewright::snappy tilewright::bz2
                   tilewright::lz4 tilewright::zlib Threads::Threads ${CMAKE_DL_LIBS})

# cuda.h and nvrtc.h: of a CUDA toolkit, else of NVIDIA's wheels as ./quickstart unpacks them.
find_path(TILEWRIGHT_CUDA_INCLUDE_DIR NAMES cuda.h
  HINTS ${TILEWRIGHT_CUDA_ROOT}/include $ENV{CUDA_HOME}/include /usr/local/cuda/include
        ${PROJECT_SOURCE_DIR}/build/cuda/include REQUIRED)
find_path(TILEWRIGHT_NVRTC_INCLUDE_DIR NAMES nvrtc.h
  HINTS ${TILEWRIGHT_CUDA_ROOT}/include $ENV{CUDA_HOME}/include /usr/local/cuda/include
        ${PROJECT_SOURCE_DIR}/build/cuda/include REQUIRED)
# Where NVRTC is looked for first: beside the header that we were compiled with.
get_filename_component(TILEWRIGHT_NVRTC_ROOT ${TILEWRIGHT_NVRTC_INCLUDE_DIR} DIRECTORY)
add_library(tilewright_cuda_headers INTERFACE)
target_include_directories(tilewright_cuda_headers SYSTEM INTERFACE
  $<BUILD_INTERFACE:${TILEWRIGHT_CUDA_INCLUDE_DIR}> $<BUILD_INTERFACE:${TILEWRIGHT_NVRTC_INCLUDE_DIR}>)
add_library(tilewright::cuda_headers ALIAS tilewright_cuda_headers)

# tilewright_flatbuffers(TARGET FILES...): adds the generated headers (FILE_generated.h beside the
# schema's path in the build tree) to the target.
function(tilewright_flatbuffers target)
  foreach(schema ${ARGN})
    get_filename_component(stem ${schema} NAME_WE)
    set(header ${CMAKE_CURRENT_BINARY_DIR}/${stem}_generated.h)
    add_custom_command(OUTPUT ${header}
      COMMAND ${FLATC_PROGRAM} --cpp --scoped-enums --gen-object-api --cpp-std c++17
              -I ${PROJECT_SOURCE_DIR} -o ${CMAKE_CURRENT_BINARY_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/${schema}
      DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${schema} VERBATIM)
    target_sources(${target} PRIVATE ${header})
  endforeach()
endfunction()
