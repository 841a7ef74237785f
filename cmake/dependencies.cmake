# Third-party libraries, all of them Debian packages; tools/bootstrap.sh installs them.
find_package(PkgConfig REQUIRED)
find_package(ZLIB REQUIRED)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
pkg_check_modules(fyaml REQUIRED IMPORTED_TARGET libfyaml)
pkg_check_modules(jansson REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(zmq REQUIRED IMPORTED_TARGET libzmq>=4.3)
pkg_check_modules(protobufc REQUIRED IMPORTED_TARGET libprotobuf-c)
# protobuf-c's own command is deprecated since 1.5, and says so at each call; protoc with its plugin is not.
find_program(PROTOC protoc)
find_program(PROTOC_GEN_C protoc-gen-c)
if(PROTOC AND PROTOC_GEN_C)
  set(PROTO_TO_C ${PROTOC} --plugin=protoc-gen-c=${PROTOC_GEN_C})
else()
  find_program(PROTOC_C protoc-c REQUIRED)
  set(PROTO_TO_C ${PROTOC_C})
endif()

# The thread sanitizer must see what ZeroMQ's threads do and order, so its builds take a ZeroMQ that
# was built with it.
if(EXO_SANITIZE STREQUAL "thread")
  set(zmq_folder ${PROJECT_SOURCE_DIR}/build/zmq-thread)
  if(NOT EXISTS ${zmq_folder}/libzmq.so.5)
    message(STATUS "Building ZeroMQ with the thread sanitizer: it takes a minute, once")
  endif()
  execute_process(COMMAND ${PROJECT_SOURCE_DIR}/tools/zmq_sanitized.sh ${zmq_folder} thread RESULT_VARIABLE failed
    OUTPUT_FILE ${PROJECT_BINARY_DIR}/zmq.log ERROR_FILE ${PROJECT_BINARY_DIR}/zmq.log)
  if(failed)
    message(WARNING "There is no ZeroMQ with the thread sanitizer, so tests that need it are skipped. ${PROJECT_BINARY_DIR}/zmq.log says why.")
  else()
    set(EXO_ZMQ_INSTRUMENTED ON)
    set_target_properties(PkgConfig::zmq PROPERTIES INTERFACE_LINK_LIBRARIES ${zmq_folder}/libzmq.so.5)
  endif()
endif()
pkg_check_modules(crypto REQUIRED IMPORTED_TARGET libcrypto)
pkg_check_modules(curl REQUIRED IMPORTED_TARGET libcurl)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(lz4 REQUIRED IMPORTED_TARGET liblz4)
pkg_check_modules(seccomp REQUIRED IMPORTED_TARGET libseccomp)
pkg_check_modules(sqlite REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8>=10.40)

find_path(UNISTRING_INCLUDE uninorm.h REQUIRED)
find_library(UNISTRING_LIBRARY unistring REQUIRED)
add_library(unistring UNKNOWN IMPORTED)
set_target_properties(unistring PROPERTIES IMPORTED_LOCATION ${UNISTRING_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${UNISTRING_INCLUDE})

find_path(UTHASH_INCLUDE uthash.h REQUIRED) # headers only

find_path(DNNL_INCLUDE dnnl.h REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
add_library(dnnl UNKNOWN IMPORTED)
set_target_properties(dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE})

# oneDNN's threads are OpenMP's. exogym spreads work itself, so it tells OpenMP to use one thread;
# that call is all it needs.
find_library(GOMP_LIBRARY NAMES gomp libgomp.so.1 REQUIRED)
add_library(gomp UNKNOWN IMPORTED)
set_target_properties(gomp PROPERTIES IMPORTED_LOCATION ${GOMP_LIBRARY})

set(EXO_NATIVE_OPTIONS -O3)
if(EXO_NATIVE)
  include(CheckCCompilerFlag)
  check_c_compiler_flag(-march=native EXO_HAS_MARCH_NATIVE)
  if(EXO_HAS_MARCH_NATIVE)
    list(APPEND EXO_NATIVE_OPTIONS -march=native)
  endif()
  check_c_compiler_flag(-mprefer-vector-width=512 EXO_HAS_VECTOR_WIDTH)
  if(EXO_HAS_VECTOR_WIDTH)
    list(APPEND EXO_NATIVE_OPTIONS -mprefer-vector-width=512)
  endif()
endif()
