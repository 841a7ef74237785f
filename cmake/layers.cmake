# Where headers are found: public ones as <exogym/NAME.h>; internal ones by their path, from
# runtime/ for what is there ("net/net.h"), else from the root ("nn/cpu/gemm.h").
set(EXO_INCLUDES ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/runtime ${PROJECT_SOURCE_DIR})

# exo_layer(name folder [USES layer...] [CALLS layer...] [LIBS target...] [PROTO file...] [READS
# layer...] [NATIVE])
#
# An object library exo_<name> of the folder's .c files. It includes the public headers, those of
# its own folder and those of the layers that it names under USES; CALLS names further layers whose
# functions of the public headers it calls. Both are declared before it. tools/check_includes.py
# finds other includes, tools/check_links.py other calls. LIBS are third-party targets that this
# layer alone sees. PROTO: proto/<file>.proto, whose generated code it alone sees, and layers that
# name it under READS. NATIVE: compiled for this machine's processor. The source files are those in
# the folder; a new file needs no entry here.
function(exo_layer name folder)
  cmake_parse_arguments(PARSE_ARGV 2 layer "NATIVE" "" "USES;CALLS;LIBS;PROTO;READS")
  set_property(GLOBAL PROPERTY EXO_FOLDER_${name} ${folder})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.c)
  if(NOT sources)
    return()
  endif()
  set(target exo_${name})
  foreach(proto IN LISTS layer_PROTO)
    set(generated ${PROJECT_BINARY_DIR}/proto/${proto}.pb-c)
    add_custom_command(OUTPUT ${generated}.c ${generated}.h
      COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/proto
      COMMAND ${PROTO_TO_C} --c_out=${PROJECT_BINARY_DIR}/proto --proto_path=${PROJECT_SOURCE_DIR}/proto ${proto}.proto
      DEPENDS ${PROJECT_SOURCE_DIR}/proto/${proto}.proto VERBATIM)
    # Not ours, and not written for our warnings.
    set_source_files_properties(${generated}.c PROPERTIES COMPILE_OPTIONS "-w")
    list(APPEND sources ${generated}.c ${generated}.h)
  endforeach()
  add_library(${target} OBJECT ${sources})
  target_include_directories(${target} PRIVATE ${EXO_INCLUDES})
  foreach(used IN LISTS layer_USES layer_CALLS)
    get_property(used_folder GLOBAL PROPERTY EXO_FOLDER_${used})
    if(NOT used_folder)
      message(FATAL_ERROR "layer ${name} uses or calls ${used}, which is not declared before it")
    endif()
  endforeach()
  foreach(read IN LISTS layer_READS)
    add_dependencies(${target} exo_${read}) # its headers are generated first
  endforeach()
  if(layer_PROTO OR layer_READS)
    target_include_directories(${target} SYSTEM PRIVATE ${PROJECT_BINARY_DIR}/proto)
  endif()
  target_link_libraries(${target} PRIVATE ${layer_LIBS})
  if(layer_NATIVE)
    target_compile_options(${target} PRIVATE ${EXO_NATIVE_OPTIONS})
  endif()
  set_target_properties(${target} PROPERTIES EXO_FOLDER ${folder} EXO_LIBS "${layer_LIBS}"
                                             EXO_USES "${layer_USES}" EXO_CALLS "${layer_CALLS}")
  set_property(GLOBAL APPEND PROPERTY EXO_LAYERS ${target})
  set_property(GLOBAL APPEND PROPERTY EXO_LIBS ${layer_LIBS})
endfunction()

# Writes what tools/check_links.py reads: a line for each layer, lowest first, with its name, its
# folder, what it uses, what it calls, and its objects. tools/check_includes.py reads it, too.
function(exo_layers_file path)
  get_property(layers GLOBAL PROPERTY EXO_LAYERS)
  set(rows "")
  foreach(layer IN LISTS layers)
    get_target_property(folder ${layer} EXO_FOLDER)
    get_target_property(uses ${layer} EXO_USES)
    get_target_property(calls ${layer} EXO_CALLS)
    string(REPLACE "exo_" "" name ${layer})
    string(APPEND rows "${name}|${folder}|${uses}|${calls}|$<TARGET_OBJECTS:${layer}>\n")
  endforeach()
  file(GENERATE OUTPUT ${path} CONTENT "${rows}")
endfunction()

# The layers as libraries: exogym (shared, what users link), exogym_internal (static, what tests and
# the programs link: it has the hidden symbols too).
function(exo_library)
  get_property(layers GLOBAL PROPERTY EXO_LAYERS)
  get_property(libs GLOBAL PROPERTY EXO_LIBS)
  set(objects "")
  foreach(layer IN LISTS layers)
    list(APPEND objects $<TARGET_OBJECTS:${layer}>)
  endforeach()

  add_library(exogym SHARED ${objects})
  add_library(exogym::exogym ALIAS exogym)
  set_target_properties(exogym PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
  target_include_directories(exogym PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(exogym PRIVATE ${libs} ${CMAKE_DL_LIBS} m)

  add_library(exogym_internal STATIC ${objects})
  target_include_directories(exogym_internal PUBLIC ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(exogym_internal PUBLIC ${libs} ${CMAKE_DL_LIBS} m)
  # Nobody below calls the top layer: it is asked for here, and its constructor fills the
  # registries.
  target_link_options(exogym_internal INTERFACE -Wl,-u,exo_builtins_register)
endfunction()

# exo_part(name layer...): a static library of these layers only, for a program that shall carry,
# and link, no more than it uses.
function(exo_part name)
  add_library(${name} STATIC)
  target_include_directories(${name} PUBLIC ${EXO_INCLUDES})
  foreach(layer IN LISTS ARGN)
    get_target_property(libs exo_${layer} EXO_LIBS)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:exo_${layer}>)
    target_link_libraries(${name} PUBLIC ${libs})
  endforeach()
  target_link_libraries(${name} PUBLIC ${CMAKE_DL_LIBS} m)
endfunction()

# exo_program(name [PART part] source...): a program with every symbol of the public headers visible
# to the plugins that it loads. PART: a program that loads no plugins; it takes what it uses out of
# that part (exo_part), and libraries that it then needs.
function(exo_program name)
  cmake_parse_arguments(PARSE_ARGV 1 program "" "PART" "")
  add_executable(${name} ${program_UNPARSED_ARGUMENTS})
  if(program_PART)
    target_link_libraries(${name} PRIVATE ${program_PART})
    target_link_options(${name} PRIVATE -Wl,--as-needed)
    return()
  endif()
  target_include_directories(${name} PRIVATE ${EXO_INCLUDES})
  target_link_libraries(${name} PRIVATE -Wl,--whole-archive exogym_internal -Wl,--no-whole-archive)
  set_target_properties(${name} PROPERTIES ENABLE_EXPORTS ON)
endfunction()
