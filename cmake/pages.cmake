# cmake -DPROGRAM=FILE -DNAME=exogym -DFOLDER=FOLDER [-DCOMMANDS=ON] -P pages.cmake
#
# Writes what a program says of itself into FOLDER as it lies under an installation's share/: manual
# pages, and completion scripts for bash, zsh and fish. COMMANDS: the program has commands, help and
# completion among them.
function(write file)
  execute_process(COMMAND ${PROGRAM} ${ARGN} OUTPUT_FILE ${FOLDER}/${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

foreach(folder man/man1 bash-completion/completions zsh/site-functions fish/vendor_completions.d)
  file(MAKE_DIRECTORY ${FOLDER}/${folder})
endforeach()

set(completion --completion)
if(COMMANDS)
  set(completion completion)
  execute_process(COMMAND ${PROGRAM} list commands OUTPUT_VARIABLE commands COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "(^|\n)[a-z][a-z_-]*" commands "${commands}")
  list(TRANSFORM commands STRIP)
  foreach(command IN LISTS commands)
    write(man/man1/${NAME}-${command}.1 help --man ${command})
  endforeach()
  write(man/man1/${NAME}.1 help --man)
else()
  write(man/man1/${NAME}.1 --man)
endif()
write(bash-completion/completions/${NAME} ${completion} bash)
write(zsh/site-functions/_${NAME} ${completion} zsh)
write(fish/vendor_completions.d/${NAME}.fish ${completion} fish)
