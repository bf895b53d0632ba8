# Language level, warnings and output folders of every target.
include_guard()
set(CMAKE_INSTALL_LIBDIR lib CACHE PATH "Libraries; programs look for them in ../lib")
include(GNUInstallDirs)

option(TILEWRIGHT_BUILD_TESTS "Build the tests and benchmarks" ON)
set(TILEWRIGHT_SANITIZE "" CACHE STRING "Sanitizers to build with, as -fsanitize takes them")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()

if(TILEWRIGHT_SANITIZE)
  add_compile_options(-fsanitize=${TILEWRIGHT_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${TILEWRIGHT_SANITIZE})
  if(TILEWRIGHT_SANITIZE MATCHES undefined)
    # The address sanitizer sees what these would, and they take half of the compile time.
    add_compile_options(-fno-sanitize=null,vptr,object-size,alignment)
  endif()
endif()

# sanitize_alignment(): in this folder and below, where memory is read as what it is not declared to be.
function(sanitize_alignment)
  if(TILEWRIGHT_SANITIZE MATCHES undefined)
    add_compile_options(-fsanitize=alignment)
  endif()
endfunction()

# Usage requirements that every target of the project has in common.
add_library(tilewright_common INTERFACE)
add_library(tilewright::common ALIAS tilewright_common)
target_include_directories(tilewright_common INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}>)
target_compile_options(tilewright_common INTERFACE
  $<BUILD_INTERFACE:-Wall -Wextra -Wno-missing-field-initializers>)

# tilewright_library(NAME SOURCES... ): a static library of one module with the alias tilewright::NAME.
function(tilewright_library name)
  add_library(tilewright_${name} STATIC ${ARGN})
  add_library(tilewright::${name} ALIAS tilewright_${name})
  target_link_libraries(tilewright_${name} PUBLIC tilewright::common)
endfunction()

# tilewright_executable(NAME SOURCES...): runs from any folder of an install, needs glibc only.
function(tilewright_executable name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE tilewright::common)
  target_link_options(${name} PRIVATE -static-libstdc++ -static-libgcc)
endfunction()
